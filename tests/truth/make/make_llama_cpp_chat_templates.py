"""Records what llama.cpp's built-in chat templates make of conversations.

    python tests/truth/make make_llama_cpp_chat_templates

Needs llama-cpp-python. The result is ``truth/chat_templates.json``: conversations, and for each name
the text of each of them, with and without the head of an answer.
"""

from __future__ import annotations

import ctypes
import json
from pathlib import Path

import llama_cpp as lib

OUT = Path(__file__).parents[1] / "chat_templates.json"
_QUESTION = {"role": "user", "content": " Why is\nthe sky 'blue'? "}
_ANSWER = {"role": "assistant", "content": ' Because of "Rayleigh" scattering.\n'}
CONVERSATIONS = [
    [_QUESTION],
    [{"role": "system", "content": "Be brief. "}, _QUESTION],
    [
        {"role": "system", "content": "Be brief."},
        _QUESTION,
        _ANSWER,
        {"role": "user", "content": "日本語 <b>&amp;</b>?"},
    ],
    [_QUESTION, _ANSWER, {"role": "user", "content": "And"}, _ANSWER],
]


def names() -> list[str]:
    """Return llama.cpp's names of templates."""
    room = (ctypes.c_char_p * 256)()
    count = lib.llama_chat_builtin_templates(room, len(room))
    return sorted(name.decode() for name in room[:count])


def render(name: str, messages: list[dict[str, str]], with_answer: bool) -> str:
    """Return llama.cpp's text of a conversation."""
    chat = (lib.llama_chat_message * len(messages))()
    for place, message in zip(chat, messages, strict=True):
        place.role, place.content = message["role"].encode(), message["content"].encode()
    room = ctypes.create_string_buffer(1 << 14)
    size = lib.llama_chat_apply_template(
        name.encode(), chat, len(chat), with_answer, room, len(room)
    )
    assert 0 < size < len(room), name
    return room.raw[:size].decode()


if __name__ == "__main__":
    texts = {
        name: [
            [render(name, c, with_answer) for with_answer in (True, False)] for c in CONVERSATIONS
        ]
        for name in names()
    }
    lines = [
        f"{json.dumps(name)}: {json.dumps(found, ensure_ascii=False)}"
        for name, found in texts.items()
    ]
    said = json.dumps(CONVERSATIONS, ensure_ascii=False)
    OUT.write_text(
        f'{{"conversations": {said},\n"texts": {{\n' + ",\n".join(lines) + "\n}}\n",
        encoding="utf-8",
    )
