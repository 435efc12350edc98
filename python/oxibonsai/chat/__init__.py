"""One answer of a conversation: the prompt, what it must match, how its text is understood."""

from oxibonsai.chat.pictures import place_pictures
from oxibonsai.chat.reply import ChatReply, answer
from oxibonsai.chat.request import ChatRequest
from oxibonsai.chat.template import choose_template, load_template, model_template
from oxibonsai.chat.turn import ChatTurn, prepare, render

__all__ = [
    "ChatReply",
    "ChatRequest",
    "ChatTurn",
    "answer",
    "choose_template",
    "load_template",
    "model_template",
    "place_pictures",
    "prepare",
    "render",
]
