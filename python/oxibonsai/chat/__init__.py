"""One answer of a conversation: the prompt, what it must match, how its text is understood."""

from oxibonsai.chat.reply import ChatReply, answer
from oxibonsai.chat.request import ChatRequest
from oxibonsai.chat.turn import ChatTurn, prepare, render

__all__ = ["ChatReply", "ChatRequest", "ChatTurn", "answer", "prepare", "render"]
