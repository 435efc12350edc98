"""Chat templates: Jinja from the model file, rendered in a sandbox with bounds on size and time."""

from oxibonsai.chat_template.builtin import BUILTIN, builtin_template
from oxibonsai.chat_template.sandbox import Span
from oxibonsai.chat_template.template import (
    MAX_SOURCE,
    ChatTemplate,
    Message,
    TooCostlyError,
    compiled_template,
)

__all__ = [
    "BUILTIN",
    "MAX_SOURCE",
    "ChatTemplate",
    "Message",
    "Span",
    "TooCostlyError",
    "builtin_template",
    "compiled_template",
]
