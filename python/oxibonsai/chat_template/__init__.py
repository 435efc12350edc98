"""Chat templates: Jinja from the model file, rendered in a sandbox with bounds on size and time."""

from oxibonsai.chat_template.marks import Span
from oxibonsai.chat_template.template import (
    MAX_SOURCE,
    ChatTemplate,
    Message,
    TooCostlyError,
    compiled_template,
)

__all__ = ["MAX_SOURCE", "ChatTemplate", "Message", "Span", "TooCostlyError", "compiled_template"]
