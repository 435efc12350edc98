"""One answer of a conversation: the prompt, what it must match, how its text is understood."""

from oxibonsai.chat.prepared_prompt import PreparedPrompt, prepare, render
from oxibonsai.chat.reply import ChatReply, answer
from oxibonsai.chat.request import ChatRequest
from oxibonsai.chat.template import (
    choose_template,
    fallback_template,
    load_template,
    model_template,
    read_template,
)
from oxibonsai.vision.prompt_images import place_images

__all__ = [
    "ChatReply",
    "ChatRequest",
    "PreparedPrompt",
    "answer",
    "choose_template",
    "fallback_template",
    "load_template",
    "model_template",
    "place_images",
    "prepare",
    "read_template",
    "render",
]
