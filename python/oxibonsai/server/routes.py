"""The routes of every API, put together; imported after the fork, since they import the core."""

from __future__ import annotations

from functools import partial

from oxibonsai.server.anthropic.errors import anthropic_error
from oxibonsai.server.anthropic.routes import messages_blueprint
from oxibonsai.server.errors import register_error_formats
from oxibonsai.server.llama_server.completion import native_completion_blueprint
from oxibonsai.server.llama_server.lora import lora_blueprint
from oxibonsai.server.llama_server.props import props_blueprint
from oxibonsai.server.llama_server.rerank import rerank_blueprint
from oxibonsai.server.llama_server.router import router_blueprint
from oxibonsai.server.llama_server.slots import slots_blueprint
from oxibonsai.server.llama_server.tokenize import token_blueprint
from oxibonsai.server.ollama.embed import ollama_embed_blueprint
from oxibonsai.server.ollama.errors import ollama_error
from oxibonsai.server.ollama.generate import ollama_generate_blueprint
from oxibonsai.server.ollama.models import ollama_models_blueprint
from oxibonsai.server.openai.assistants.assistant_routes import assistants_blueprint
from oxibonsai.server.openai.assistants.run_routes import run_steps_blueprint, runs_blueprint
from oxibonsai.server.openai.assistants.run_service import RunService
from oxibonsai.server.openai.assistants.thread_routes import (
    thread_messages_blueprint,
    threads_blueprint,
)
from oxibonsai.server.openai.background_tasks import BackgroundTasks
from oxibonsai.server.openai.chat_completions import chat_blueprint
from oxibonsai.server.openai.completions import completions_blueprint
from oxibonsai.server.openai.elsewhere import Elsewhere
from oxibonsai.server.openai.embeddings import embeddings_blueprint
from oxibonsai.server.openai.files import files_blueprint
from oxibonsai.server.openai.images import images_blueprint
from oxibonsai.server.openai.interrupted import fail_interrupted
from oxibonsai.server.openai.responses.routes import responses_blueprint
from oxibonsai.server.openai.responses.service import ResponseService
from oxibonsai.server.server import Server
from oxibonsai.server.stores.peers import PeerWork


def register_routes(app: Server) -> None:
    """Adds all routes that need the model or the store."""
    _register_generation(app)
    _register_stored(app)


def _register_generation(app: Server) -> None:
    app.register_blueprint(chat_blueprint(app))
    app.register_blueprint(completions_blueprint(app))
    app.register_blueprint(native_completion_blueprint(app))
    app.register_blueprint(embeddings_blueprint(app))
    app.register_blueprint(rerank_blueprint(app))
    app.register_blueprint(images_blueprint(app))
    app.register_blueprint(token_blueprint(app))
    app.register_blueprint(props_blueprint(app))
    app.register_blueprint(slots_blueprint(app))
    app.register_blueprint(lora_blueprint(app))
    app.register_blueprint(router_blueprint(app))
    app.register_blueprint(ollama_generate_blueprint(app))
    app.register_blueprint(ollama_embed_blueprint(app))
    app.register_blueprint(ollama_models_blueprint(app))


def _register_stored(app: Server) -> None:
    """Fails what an earlier process left unfinished, then adds the routes on stored objects."""
    settings, store = app.settings, app.store
    register_error_formats(app, {"/v1/messages": anthropic_error, "/api/": ollama_error})
    running = 2 * settings.parallel * settings.replicas
    tasks = BackgroundTasks(app.lifecycle, running=running, waiting=settings.queue_size)
    if app.peers is None:
        fail_interrupted(store)
    else:
        sweep = partial(fail_interrupted, store)
        app.peers.begin(PeerWork(cancel=tasks.cancel, sweep=sweep))
    elsewhere = Elsewhere(app.peers)
    runs = RunService(app, tasks, elsewhere)
    responses = ResponseService(app, tasks, elsewhere)
    app.register_blueprint(files_blueprint(store.files, max_upload_bytes=settings.max_upload_bytes))
    app.register_blueprint(responses_blueprint(responses, store.responses))
    app.register_blueprint(messages_blueprint(app))
    app.register_blueprint(assistants_blueprint(store.assistants))
    app.register_blueprint(threads_blueprint(store, runs))
    app.register_blueprint(thread_messages_blueprint(store, runs))
    app.register_blueprint(runs_blueprint(store, runs, app.lifecycle))
    app.register_blueprint(run_steps_blueprint(store, runs))
