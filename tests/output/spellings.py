# ruff: noqa: RUF001
"""How each further family of models writes a call."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from oxibonsai.output.tools import ToolFormat, detect_tool_format

Fields = dict[str, Any]


@dataclass(frozen=True)
class Spelling:
    """A format, and texts in it.

    Attributes:
        tells: Text of a template that tells the format.
        calls: Writes calls, of which each is a name and arguments.
        marks: Texts that are special tokens in the vocabularies of the family.
    """

    tells: str
    calls: Callable[[list[tuple[str, Fields]]], str]
    marks: tuple[str, ...]

    @property
    def format(self) -> ToolFormat:
        found = detect_tool_format(self.tells)
        assert found is not None
        return found

    def call(self, name: str, **fields: Any) -> str:
        return self.calls([(name, fields)])


def text_of(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def json_of(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def objects(
    opening: str, closing: str, *, name: str = "name", key: str = "arguments", lines: bool = False
) -> Spelling:
    def calls(listed: list[tuple[str, Fields]]) -> str:
        each = [f'{{"{name}": "{n}", "{key}": {json_of(f)}}}' for n, f in listed]
        if lines:
            return f"{opening}\n{''.join(f'{e}{chr(10)}' for e in each)}{closing}"
        return f"{opening}[{', '.join(each)}]{closing}"

    tells = f"{opening}{'' if lines else '['} {closing}"
    if lines:
        tells = f"{opening}{closing}"
    return Spelling(tells, calls, tuple(m for m in (opening, closing) if m.startswith("<")))


def apertus(listed: list[tuple[str, Fields]]) -> str:
    each = (f'{{"{n}": {json_of(f)}}}' for n, f in listed)
    return f"<|tools_prefix|>[{', '.join(each)}]<|tools_suffix|>"


def deepseek_r1(listed: list[tuple[str, Fields]]) -> str:
    each = (
        f"<｜tool▁call▁begin｜>function<｜tool▁sep｜>{n}\n```json\n{json_of(f)}\n```<｜tool▁call▁end｜>"
        for n, f in listed
    )
    return f"<｜tool▁calls▁begin｜>{chr(10).join(each)}<｜tool▁calls▁end｜>"


def deepseek_v3(listed: list[tuple[str, Fields]]) -> str:
    each = (
        f"<｜tool▁call▁begin｜>{n}<｜tool▁sep｜>{json_of(f)}<｜tool▁call▁end｜>" for n, f in listed
    )
    return f"<｜tool▁calls▁begin｜>{''.join(each)}<｜tool▁calls▁end｜>"


def kimi_k2(listed: list[tuple[str, Fields]]) -> str:
    each = (
        f"<|tool_call_begin|>functions.{n}:{i}<|tool_call_argument_begin|>{json_of(f)}<|tool_call_end|>"
        for i, (n, f) in enumerate(listed)
    )
    return f"<|tool_calls_section_begin|>{''.join(each)}<|tool_calls_section_end|>"


def functionary(listed: list[tuple[str, Fields]]) -> str:
    return "".join(f"<function={n}>{json_of(f)}</function>" for n, f in listed)


def seed(listed: list[tuple[str, Fields]]) -> str:
    def one(name: str, fields: Fields) -> str:
        inner = "".join(f"<parameter={k}>{text_of(v)}</parameter>\n" for k, v in fields.items())
        return f"<seed:tool_call>\n<function={name}>\n{inner}</function>\n</seed:tool_call>"

    return "\n".join(one(n, f) for n, f in listed)


def minimax_m2(listed: list[tuple[str, Fields]]) -> str:
    def one(name: str, fields: Fields) -> str:
        each = (f'<parameter name="{k}">{text_of(v)}</parameter>\n' for k, v in fields.items())
        return f'<invoke name="{name}">\n{"".join(each)}</invoke>\n'

    return f"<minimax:tool_call>\n{''.join(one(n, f) for n, f in listed)}</minimax:tool_call>"


def dsml(block: str) -> Callable[[list[tuple[str, Fields]]], str]:
    def value(key: str, value: Any) -> str:
        is_text = str(isinstance(value, str)).lower()
        head = f'<｜DSML｜parameter name="{key}" string="{is_text}">'
        return f"{head}{text_of(value)}</｜DSML｜parameter>\n"

    def one(name: str, fields: Fields) -> str:
        inner = "".join(value(k, v) for k, v in fields.items())
        return f'<｜DSML｜invoke name="{name}">\n{inner}</｜DSML｜invoke>\n'

    def calls(listed: list[tuple[str, Fields]]) -> str:
        return f"<｜DSML｜{block}>\n{''.join(one(n, f) for n, f in listed)}</｜DSML｜{block}>"

    return calls


def glm(listed: list[tuple[str, Fields]]) -> str:
    def one(name: str, fields: Fields) -> str:
        each = (
            f"<arg_key>{k}</arg_key>\n<arg_value>{text_of(v)}</arg_value>\n"
            for k, v in fields.items()
        )
        return f"<tool_call>{name}\n{''.join(each)}</tool_call>"

    return "\n".join(one(n, f) for n, f in listed)


def lfm2(listed: list[tuple[str, Fields]]) -> str:
    each = (f"{n}({', '.join(f'{k}={json_of(v)}' for k, v in f.items())})" for n, f in listed)
    return f"<|tool_call_start|>[{', '.join(each)}]<|tool_call_end|>"


def gemma(opening: str, closing: str, quote: str) -> Callable[[list[tuple[str, Fields]]], str]:
    def value(value: Any) -> str:
        if isinstance(value, str):
            return f"{quote}{value}{quote}"
        if isinstance(value, list):
            return f"[{','.join(map(spell, value))}]"
        if isinstance(value, dict):
            return f"{{{','.join(f'{k}:{spell(v)}' for k, v in value.items())}}}"
        return json_of(value)

    spell = value

    def calls(listed: list[tuple[str, Fields]]) -> str:
        return "".join(f"{opening}call:{n}{value(f)}{closing}" for n, f in listed)

    return calls


_R1_MARKS = ("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>")
_R1_MARKS += ("<｜tool▁call▁end｜>", "<｜tool▁sep｜>")
_GLM_MARKS = (
    "<tool_call>",
    "</tool_call>",
    "<arg_key>",
    "</arg_key>",
    "<arg_value>",
    "</arg_value>",
)
_KIMI_MARKS = ("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "<|tool_call_begin|>")
_KIMI_MARKS += ("<|tool_call_argument_begin|>", "<|tool_call_end|>")
_GEMMA4 = ("<|tool_call>", "<tool_call|>", '<|"|>')
_FUNCTION_GEMMA = ("<start_function_call>", "<end_function_call>", "<escape>")

SPELLINGS: dict[str, Spelling] = {
    "granite": objects("<|tool_call|>", ""),
    "phi4": objects("<|tool_call|>", "<|/tool_call|>"),
    "nemotron": objects("<TOOLCALL>", "</TOOLCALL>"),
    "apriel": objects("<tool_calls>", "</tool_calls>"),
    "minimax_m1": objects("<tool_calls>", "</tool_calls>", lines=True),
    "functools": objects("functools", ""),
    "command_r": objects("<|START_ACTION|>", "<|END_ACTION|>", name="tool_name", key="parameters"),
    "apertus": Spelling("<|tools_prefix|>", apertus, ("<|tools_prefix|>", "<|tools_suffix|>")),
    "deepseek_r1": Spelling("<｜tool▁calls▁begin｜> ```json", deepseek_r1, _R1_MARKS),
    "deepseek_v3": Spelling("<｜tool▁calls▁begin｜>", deepseek_v3, _R1_MARKS),
    "kimi_k2": Spelling("<|tool_calls_section_begin|>", kimi_k2, _KIMI_MARKS),
    "functionary": Spelling("<function=a> {} </function>", functionary, ()),
    "seed": Spelling("<seed:tool_call>", seed, ("<seed:tool_call>", "</seed:tool_call>")),
    "minimax_m2": Spelling(
        "<minimax:tool_call> <invoke name=", minimax_m2, ("<minimax:tool_call>", "</minimax:tool_call>")
    ),
    "dsml": Spelling("<｜DSML｜function_calls>", dsml("function_calls"), ("｜DSML｜",)),
    "dsml of V4": Spelling("'｜DSML｜' tool_calls", dsml("tool_calls"), ("｜DSML｜",)),
    "glm": Spelling("<tool_call> <arg_key> <arg_value>", glm, _GLM_MARKS),
    "lfm2": Spelling("<|tool_list_start|>", lfm2, ("<|tool_call_start|>", "<|tool_call_end|>")),
    "gemma4": Spelling("<|tool_call> <tool_call|>", gemma(*_GEMMA4), _GEMMA4),
    "function_gemma": Spelling("<start_function_call>", gemma(*_FUNCTION_GEMMA), _FUNCTION_GEMMA),
}  # fmt: skip
