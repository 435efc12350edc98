"""The routes on what the server keeps, and ``/v1/messages``; imported after the fork."""

from __future__ import annotations

from oxibonsai.server.anthropic.errors import register_anthropic_errors
from oxibonsai.server.anthropic.routes import messages_blueprint
from oxibonsai.server.app import Server
from oxibonsai.server.openai.assistants.assistant_routes import assistants_blueprint
from oxibonsai.server.openai.assistants.run_routes import run_steps_blueprint, runs_blueprint
from oxibonsai.server.openai.assistants.run_service import RunService
from oxibonsai.server.openai.assistants.thread_routes import (
    thread_messages_blueprint,
    threads_blueprint,
)
from oxibonsai.server.openai.files import files_blueprint
from oxibonsai.server.openai.interrupted import fail_interrupted
from oxibonsai.server.openai.jobs import Jobs
from oxibonsai.server.openai.responses.routes import responses_blueprint
from oxibonsai.server.openai.responses.service import ResponseService


def register_stored_apis(app: Server) -> None:
    """Ends what an earlier process left, and adds the routes to the application."""
    settings, store = app.settings, app.store
    fail_interrupted(store)
    running = 2 * settings.parallel * settings.replicas
    jobs = Jobs(app.lifecycle, running=running, waiting=settings.queue_size)
    runs = RunService(store, app.generations, jobs, settings)
    app.register_blueprint(files_blueprint(store.files, max_upload_bytes=settings.max_upload_bytes))
    app.register_blueprint(responses_blueprint(ResponseService(app, jobs), store.responses))
    register_anthropic_errors(app)
    app.register_blueprint(messages_blueprint(app))
    app.register_blueprint(assistants_blueprint(store.assistants))
    app.register_blueprint(threads_blueprint(store, runs))
    app.register_blueprint(thread_messages_blueprint(store, runs))
    app.register_blueprint(runs_blueprint(store, runs, app.lifecycle))
    app.register_blueprint(run_steps_blueprint(store, runs))
