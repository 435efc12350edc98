"""Prompts of the requests: made-up ones of a length, or those of a file."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from oxibonsai.errors import RequestError

Messages = list[dict[str, Any]]
Prompts = Callable[[int], Messages]  # the messages of the request of that number

# Short everyday words, each one token (with its space) in the usual vocabularies.
# fmt: off
_WORDS = (
    "time", "year", "people", "way", "day", "man", "thing", "woman", "life", "child", "world",
    "school", "state", "family", "student", "group", "country", "problem", "hand", "part", "place",
    "case", "week", "company", "system", "program", "question", "work", "number", "night", "point",
    "home", "water", "room", "mother", "area", "money", "story", "fact", "month", "lot", "right",
    "study", "book", "eye", "job", "word", "business", "issue", "side", "kind", "head", "house",
)
# fmt: on


def made_up(tokens: int, seed: int) -> Prompts:
    """Return the prompts of about `tokens` tokens, each different from its start, so that no cache helps.

    The server's usage says how many there were; the chat template adds its own.
    """

    def messages(number: int) -> Messages:
        draw = random.Random(seed * 1_000_003 + number)
        return [{"role": "user", "content": " ".join(draw.choices(_WORDS, k=tokens))}]

    return messages


def from_file(path: Path) -> Prompts:
    """Read one prompt a line, taken in turn: text, or in a .jsonl file a string or a list of messages.

    Raises:
        RequestError: The file has no prompt, or a line that is none.
    """
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    if not lines:
        raise RequestError(f"{path} has no prompts")
    as_json = path.suffix == ".jsonl"
    prompts = [_messages(line, f"{path}:{i}", as_json) for i, line in enumerate(lines, 1)]
    return lambda number: prompts[number % len(prompts)]


def _messages(line: str, where: str, as_json: bool) -> Messages:
    prompt: Any = line
    if as_json:
        try:
            prompt = json.loads(line)
        except ValueError as e:
            raise RequestError(f"{where}: not JSON: {e}") from None
    if isinstance(prompt, dict):
        prompt = prompt.get("messages")
    if isinstance(prompt, str):
        return [{"role": "user", "content": prompt}]
    if isinstance(prompt, list) and prompt and all(isinstance(m, dict) for m in prompt):
        return prompt
    raise RequestError(f"{where}: a prompt is a string, a list of messages or its object")
