"""The routes that need the model; imported after the fork, with the core."""

from __future__ import annotations

from oxibonsai.server.app import Server
from oxibonsai.server.llama_server.completion import native_completion_blueprint
from oxibonsai.server.llama_server.lora import lora_blueprint
from oxibonsai.server.llama_server.props import props_blueprint
from oxibonsai.server.llama_server.slots import slots_blueprint
from oxibonsai.server.llama_server.tokenize import token_blueprint
from oxibonsai.server.openai.chat_completions import chat_blueprint
from oxibonsai.server.openai.completions import completions_blueprint
from oxibonsai.server.openai.embeddings import embeddings_blueprint


def register_api(app: Server) -> None:
    """Adds them to the application."""
    app.register_blueprint(chat_blueprint(app))
    app.register_blueprint(completions_blueprint(app))
    app.register_blueprint(native_completion_blueprint(app))
    app.register_blueprint(embeddings_blueprint(app))
    app.register_blueprint(token_blueprint(app))
    app.register_blueprint(props_blueprint(app))
    app.register_blueprint(slots_blueprint(app))
    app.register_blueprint(lora_blueprint(app))
