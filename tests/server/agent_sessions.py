"""A scripted agent on a small random Qwen3.5: thirty turns with tools, and what was read for each."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from oxibonsai.server.server import Server

sys.path.insert(0, str(Path(__file__).parents[1] / "models"))

CONTEXT = 12288
LONG_CONTEXT = 36864
TURNS = 30
# A question of the user, then results of tools; as coding agents work.
_TURNS_OF_A_QUESTION = 10
_SYSTEM = "You turn lamps on and off in a house with many rooms. Look before you act. " * 4

_REPEATS_OF_LONG = 100

# In the manner of Qwen's: turns before the last question lose their reasoning, results are a user's turn.
TEMPLATE = """\
{%- set ns = namespace(last=-1) %}
{%- for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}
{%- for m in messages %}
{%- if m.role == 'assistant' %}{{ '<|im_start|>assistant\n' }}
{%- if loop.index0 > ns.last %}{{ '<think>\n' + (m.reasoning_content or '') + '\n</think>\n\n' }}{% endif %}
{{- m.content or '' }}
{%- for c in m.tool_calls or [] %}
{{- '<tool_call>\n{"name": "' + c.function.name + '", "arguments": ' + c.function.arguments | tojson }}
{{- '}\n</tool_call>' }}
{%- endfor %}{{ '<|im_end|>\n' }}
{%- elif m.role == 'tool' %}
{{- '<|im_start|>user\n<tool_response>\n' + m.content + '\n</tool_response><|im_end|>\n' }}
{%- else %}{{ '<|im_start|>' + m.role + '\n' + m.content }}
{%- if loop.first and tools %}{% for t in tools %}{{ t | tojson }}{% endfor %}{% endif %}
{{- '<|im_end|>\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n<think>\n' }}
{%- if enable_thinking is defined and not enable_thinking %}{{ '\n</think>\n\n' }}{% endif %}
{%- endif %}"""

_SPECIAL = ("<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tool_call>", "</tool_call>")
_TOOL = {
    "type": "function",
    "function": {
        "name": "lamp",
        "description": "Turns a lamp on or off.",
        "parameters": {
            "type": "object",
            "properties": {"on": {"type": "boolean"}},
            "required": ["on"],
            "additionalProperties": False,
        },
    },
}


def make_model(folder: Path, context: int = CONTEXT) -> Path:
    """Structure of the 27B, few layers; the tokenizer has the template's marks."""
    import json

    from recurrent_models import CASES, Case

    from oxibonsai.convert.language_model import convert

    case = next(c for c in CASES if c.name == "qwen35")
    options = {**case.options, "max_position_embeddings": context}
    Case(case.name, case.kind, options, (), case.hub).save(folder / "model")
    path = folder / "model" / "tokenizer.json"
    document = json.loads(path.read_text())
    first = max(t["id"] for t in document["added_tokens"]) + 1
    like = document["added_tokens"][0]
    document["added_tokens"] += [
        {**like, "id": first + i, "content": text} for i, text in enumerate(_SPECIAL)
    ]
    path.write_text(json.dumps(document))
    (folder / "model" / "chat_template.jinja").write_text(TEMPLATE)
    convert(folder / "model", folder / "agent.gguf", dtype="f32")
    return folder / "agent.gguf"


@dataclass
class Turn:
    """One request of the agent.

    Attributes:
        message: The answer.
        read: Prompt tokens that were read for it, as the answer says.
        cached: Prompt tokens that were found, as its usage says.
        new: Prompt tokens that no earlier text began with.
        prompt: Its tokens.
        messages: How many came before the answer.
    """

    message: dict[str, Any]
    read: int
    cached: int
    new: int
    prompt: int
    messages: int


@dataclass
class Agent:
    """Asks a server in the way of a coding agent, and watches what is read.

    Attributes:
        thinks: Whether the model reasons; the reasoning is never sent back.
        messages: The conversation.
        texts: Tokens of all texts so far, with their answers.
    """

    thinks: bool
    messages: list[dict[str, Any]] = field(
        default_factory=lambda: [{"role": "system", "content": _SYSTEM}]
    )
    texts: list[list[int]] = field(default_factory=list)

    def say(self, number: int) -> None:
        """Add what comes before the answer of a turn: a question, or the result of the call before."""
        # An answer that is sent back may differ in a blank, and is read again then.
        repeats = 2 if self.thinks else 4
        if number % _TURNS_OF_A_QUESTION == 0:
            text = f"Question {number}: which lamps are on, and why is that so? " * repeats
            self.messages.append({"role": "user", "content": text})
            return
        (call,) = self.messages[-1]["tool_calls"]
        text = f"Lamp {number} of the house is now as you have asked, room by room. " * repeats
        self.messages.append({"role": "tool", "tool_call_id": call["id"], "content": text})

    def ask(self, server: Server, number: int) -> Turn:
        """Have the next message answered."""
        body = {
            "messages": self.messages,
            "tools": [_TOOL],
            "tool_choice": "required",
            "parallel_tool_calls": False,
            "max_tokens": 120,
            "seed": number,
            "temperature": 0.0 if number % 2 else 1.0,
            "chat_template_kwargs": {"enable_thinking": self.thinks},
        }
        answer = server.test_client().post("/v1/chat/completions", json=body)
        assert answer.status_code == 200, answer.text
        whole = answer.get_json()
        sequence = max(server.submitter.slots.slots, key=lambda s: s.task).sequence
        assert sequence is not None
        ids = sequence.history[: sequence.num_prompt_tokens]
        known = max((_common(ids, text) for text in self.texts), default=0)
        self.texts.append(list(sequence.history))
        message = whole["choices"][0]["message"]
        return Turn(
            message,
            whole["timings"]["prompt_n"],
            whole["usage"]["prompt_tokens_details"]["cached_tokens"],
            len(ids) - known,
            whole["usage"]["prompt_tokens"],
            len(self.messages),
        )

    def take(self, message: dict[str, Any]) -> None:
        """Keep an answer as a client does that knows no reasoning."""
        self.messages.append({k: v for k, v in message.items() if k != "reasoning_content"})

    def run(self, server: Server, first: int = 0, end: int = TURNS) -> list[Turn]:
        """Take turns ``first`` to ``end - 1``."""
        turns = []
        for number in range(first, end):
            self.say(number)
            turns.append(self.ask(server, number))
            self.take(turns[-1].message)
        return turns


def long_agent() -> Agent:
    """Return an agent whose rules are long: with its turns, the context holds more than 32K tokens."""
    return Agent(True, [{"role": "system", "content": _SYSTEM * _REPEATS_OF_LONG}])


def told(turn: Turn) -> tuple[Any, ...]:
    """What has to be the same whatever was cached; ids of calls are drawn anew."""
    message = turn.message
    calls = [c["function"] for c in message["tool_calls"]]
    return message.get("reasoning_content"), message["content"], calls


def _common(a: list[int], b: list[int]) -> int:
    return next(
        (i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b))
    )
