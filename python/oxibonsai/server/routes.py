"""The routes of every API, put together; imported after the fork, since they import the core."""

from __future__ import annotations

from oxibonsai.server.anthropic.batches import message_batches_blueprint
from oxibonsai.server.anthropic.routes import anthropic_error, messages_blueprint
from oxibonsai.server.batches.runner import BatchRunner
from oxibonsai.server.elsewhere import Elsewhere
from oxibonsai.server.errors import register_error_formats
from oxibonsai.server.llama_server.completion import native_completion_blueprint
from oxibonsai.server.llama_server.props import lora_blueprint, props_blueprint
from oxibonsai.server.llama_server.rerank import rerank_blueprint
from oxibonsai.server.llama_server.router import router_blueprint
from oxibonsai.server.llama_server.slots import slots_blueprint
from oxibonsai.server.llama_server.tokenize import token_blueprint
from oxibonsai.server.llama_server.tools import tools_blueprint
from oxibonsai.server.ollama.answer import ollama_error
from oxibonsai.server.ollama.embed import ollama_embed_blueprint
from oxibonsai.server.ollama.generate import ollama_generate_blueprint
from oxibonsai.server.ollama.models import ollama_models_blueprint
from oxibonsai.server.openai.assistants.run_routes import run_steps_blueprint, runs_blueprint
from oxibonsai.server.openai.assistants.run_service import RunService
from oxibonsai.server.openai.assistants.thread_routes import (
    assistants_blueprint,
    thread_messages_blueprint,
    threads_blueprint,
)
from oxibonsai.server.openai.background_tasks import BackgroundTasks, fail_interrupted
from oxibonsai.server.openai.batches import batches_blueprint
from oxibonsai.server.openai.chat_completions import chat_blueprint
from oxibonsai.server.openai.completions import completions_blueprint
from oxibonsai.server.openai.conversations import (
    conversations_blueprint,
    stored_completions_blueprint,
)
from oxibonsai.server.openai.embeddings import embeddings_blueprint
from oxibonsai.server.openai.files import files_blueprint
from oxibonsai.server.openai.images import images_blueprint
from oxibonsai.server.openai.kept_answers import KeptAnswers, kept_answers_blueprint
from oxibonsai.server.openai.responses.routes import responses_blueprint
from oxibonsai.server.openai.responses.service import ResponseService
from oxibonsai.server.server import Server
from oxibonsai.server.stores.peers import Key, PeerWork


def register_routes(app: Server) -> None:
    """Add all routes that need the model or the store."""
    _register_generation(app)
    _register_stored(app)


def _register_generation(app: Server) -> None:
    answers = KeptAnswers(app.lifecycle)
    app.register_blueprint(chat_blueprint(app, answers))
    app.register_blueprint(kept_answers_blueprint(answers))
    app.register_blueprint(completions_blueprint(app))
    app.register_blueprint(native_completion_blueprint(app))
    app.register_blueprint(embeddings_blueprint(app))
    app.register_blueprint(rerank_blueprint(app))
    app.register_blueprint(images_blueprint(app))
    app.register_blueprint(token_blueprint(app))
    app.register_blueprint(props_blueprint(app))
    app.register_blueprint(slots_blueprint(app))
    app.register_blueprint(tools_blueprint(app))
    app.register_blueprint(lora_blueprint(app))
    app.register_blueprint(router_blueprint(app))
    app.register_blueprint(ollama_generate_blueprint(app))
    app.register_blueprint(ollama_embed_blueprint(app))
    app.register_blueprint(ollama_models_blueprint(app))


def _register_stored(app: Server) -> None:
    """Add the routes on stored objects, and goes on with what an earlier process left unfinished."""
    settings, store = app.settings, app.store
    register_error_formats(app, {"/v1/messages": anthropic_error, "/api/": ollama_error})
    running = 2 * settings.parallel * settings.replicas
    tasks = BackgroundTasks(app.lifecycle, running=running, waiting=settings.queue_size)
    elsewhere = Elsewhere(app.peers)
    runs = RunService(app, tasks, elsewhere)
    responses = ResponseService(app, tasks, elsewhere)
    batches = BatchRunner(
        app, elsewhere, threads=settings.threads_for_batches, most_of_owner=settings.max_batches
    )
    app.register_blueprint(files_blueprint(store.files, max_upload_bytes=settings.max_upload_bytes))
    app.register_blueprint(responses_blueprint(responses, store.responses))
    app.register_blueprint(conversations_blueprint(store))
    app.register_blueprint(stored_completions_blueprint(store.chat_completions))
    app.register_blueprint(messages_blueprint(app))
    app.register_blueprint(batches_blueprint(store, batches))
    app.register_blueprint(message_batches_blueprint(store, batches))
    app.register_blueprint(assistants_blueprint(store.assistants))
    app.register_blueprint(threads_blueprint(store, runs))
    app.register_blueprint(thread_messages_blueprint(store, runs))
    app.register_blueprint(runs_blueprint(store, runs, app.lifecycle))
    app.register_blueprint(run_steps_blueprint(store, runs))
    _take_over(app, tasks, batches)


def _take_over(app: Server, tasks: BackgroundTasks, batches: BatchRunner) -> None:
    """Take over the work of servers that ended: batches go on, responses and runs have failed."""

    def cancel(key: Key) -> None:
        tasks.cancel(key)
        batches.withdraw(key)

    def sweep(living: frozenset[int] = frozenset()) -> None:
        fail_interrupted(app.store, living)
        batches.resume(living)

    if app.peers is None:
        sweep()
    else:
        app.peers.begin(PeerWork(cancel, sweep))
