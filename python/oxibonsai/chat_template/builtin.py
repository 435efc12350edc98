# ruff: noqa: RUF001
"""Chat templates by llama.cpp's names, as Jinja, after the formats that the models' authors publish.

Most formats put marks around each message. Those are listed as marks, the others are written out.
"""

from __future__ import annotations

import json
from functools import cache
from typing import NamedTuple

TEXT, ROLE = "{text}", "{role}"


class Marks(NamedTuple):
    """A format that writes one message after the other.

    Attributes:
        user: How the user's message is written: ``{text}`` is its content, ``{role}`` its role.
        assistant: Likewise the assistant's; empty: as the user's.
        system: Likewise the system's; empty: as the user's; None: there is none.
        answer: What the assistant's answer follows.
        opening: What stands before all messages.
        strips: Roles whose contents lose the space around them.
    """

    user: str
    assistant: str = ""
    system: str | None = ""
    answer: str = ""
    opening: str = ""
    strips: tuple[str, ...] = ()


_ALL = ("system", "user", "assistant")
_MARKS: dict[str, Marks] = {
    "chatml": Marks("<|im_start|>{role}\n{text}<|im_end|>\n", answer="<|im_start|>assistant\n"),
    "llama3": Marks(
        "<|start_header_id|>{role}<|end_header_id|>\n\n{text}<|eot_id|>",
        answer="<|start_header_id|>assistant<|end_header_id|>\n\n", strips=_ALL,
    ),
    "llama4": Marks(
        "<|header_start|>{role}<|header_end|>\n\n{text}<|eot|>",
        answer="<|header_start|>assistant<|header_end|>\n\n", strips=_ALL,
    ),
    "mistral-v7": Marks("[INST] {text}[/INST]", " {text}</s>", "[SYSTEM_PROMPT] {text}[/SYSTEM_PROMPT]"),
    "mistral-v7-tekken": Marks(
        "[INST]{text}[/INST]", "{text}</s>", "[SYSTEM_PROMPT]{text}[/SYSTEM_PROMPT]"
    ),
    "phi3": Marks("<|{role}|>\n{text}<|end|>\n", answer="<|assistant|>\n"),
    "phi4": Marks("<|im_start|>{role}<|im_sep|>{text}<|im_end|>", answer="<|im_start|>assistant<|im_sep|>"),
    "falcon3": Marks("<|{role}|>\n{text}\n", answer="<|assistant|>\n"),
    "zephyr": Marks("<|{role}|>\n{text}<|endoftext|>\n", answer="<|assistant|>\n"),
    "openchat": Marks(
        "GPT4 Correct User: {text}<|end_of_turn|>", "GPT4 Correct Assistant: {text}<|end_of_turn|>",
        "{text}<|end_of_turn|>", "GPT4 Correct Assistant:",
    ),
    "vicuna": Marks("USER: {text}\n", "ASSISTANT: {text}</s>\n", "{text}\n\n", "ASSISTANT:"),
    "vicuna-orca": Marks("USER: {text}\n", "ASSISTANT: {text}</s>\n", "SYSTEM: {text}\n", "ASSISTANT:"),
    "deepseek": Marks(
        "### Instruction:\n{text}\n", "### Response:\n{text}\n<|EOT|>\n", "{text}", "### Response:\n"
    ),
    "deepseek2": Marks(
        "User: {text}\n\n", "Assistant: {text}<｜end▁of▁sentence｜>", "{text}\n\n", "Assistant:"
    ),
    "deepseek3": Marks(
        "<｜User｜>{text}", "<｜Assistant｜>{text}<｜end▁of▁sentence｜>", "{text}\n\n", "<｜Assistant｜>"
    ),
    "deepseek-ocr": Marks("{text}"),
    "command-r": Marks(
        "<|START_OF_TURN_TOKEN|><|USER_TOKEN|>{text}<|END_OF_TURN_TOKEN|>",
        "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>{text}<|END_OF_TURN_TOKEN|>",
        "<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>{text}<|END_OF_TURN_TOKEN|>",
        "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>", strips=_ALL,
    ),
    "chatglm3": Marks("<|{role}|>\n {text}", answer="<|assistant|>", opening="[gMASK]sop"),
    "chatglm4": Marks("<|{role}|>\n{text}", answer="<|assistant|>\n", opening="[gMASK]<sop>"),
    "glmedge": Marks("<|{role}|>\n{text}", answer="<|assistant|>"),
    "minicpm": Marks("<用户>{text}<AI>", "{text}", "{text}", strips=_ALL),
    "exaone3": Marks(
        "[|user|]{text}\n", "[|assistant|]{text}[|endofturn|]\n", "[|system|]{text}[|endofturn|]\n",
        "[|assistant|]", strips=_ALL,
    ),
    "exaone4": Marks(
        "[|user|]{text}\n", "[|assistant|]{text}[|endofturn|]\n", "[|system|]{text}[|endofturn|]\n",
        "[|assistant|]", strips=_ALL,
    ),
    "exaone-moe": Marks("<|{role}|>\n{text}<|endofturn|>\n", answer="<|assistant|>\n", strips=_ALL),
    "granite": Marks(
        "<|start_of_role|>{role}<|end_of_role|>{text}<|end_of_text|>\n",
        answer="<|start_of_role|>assistant<|end_of_role|>",
    ),
    "megrez": Marks(
        "<|role_start|>{role}<|role_end|>{text}<|turn_end|>", answer="<|role_start|>assistant<|role_end|>"
    ),
    "bailing": Marks(
        "<role>HUMAN</role>{text}", "<role>ASSISTANT</role>{text}", "<role>SYSTEM</role>{text}",
        "<role>ASSISTANT</role>",
    ),
    "smolvlm": Marks(
        "User: {text}<end_of_utterance>\n", "Assistant: {text}<end_of_utterance>\n", "{text}\n\n",
        "Assistant:", "<|im_start|>",
    ),
    "hunyuan-moe": Marks(
        "<|startoftext|>{text}<|extra_0|>", "{text}<|eos|>", "<|startoftext|>{text}<|extra_4|>"
    ),
    "gpt-oss": Marks(
        "<|start|>{role}<|message|>{text}<|end|>", "<|start|>{role}<|message|>{text}<|return|>",
        answer="<|start|>assistant",
    ),
    "kimi-k2": Marks(
        "<|im_user|>user<|im_middle|>{text}<|im_end|>",
        "<|im_assistant|>assistant<|im_middle|>{text}<|im_end|>",
        "<|im_system|>system<|im_middle|>{text}<|im_end|>", "<|im_assistant|>assistant<|im_middle|>",
    ),
    "seed_oss": Marks("<seed:bos>{role}\n{text}<seed:eos>", answer="<seed:bos>assistant\n",
                      strips=("assistant",)),
    "grok-2": Marks(
        "Human: {text}<|separator|>\n\n", "Assistant: {text}<|separator|>\n\n",
        "System: {text}<|separator|>\n\n", "Assistant:", strips=("system", "user"),
    ),
    "solar-open": Marks("<|begin|>{role}<|content|>{text}<|end|>", answer="<|begin|>assistant"),
    "yandex": Marks(
        " Пользователь: {text}\n\n", " Ассистент: {text}\n\n", None, " Ассистент:[SEP]"
    ),
}  # fmt: skip
_MARKS |= {
    "granite-4.0": _MARKS["granite"],
    "granite-4.1": _MARKS["granite"],
    "bailing-think": _MARKS["bailing"]._replace(answer="<role>ASSISTANT</role><think>"),
}


def _mistral(before: str, inner: str, content: str = "m.content") -> str:
    """Return the format of Mistral's first versions, in which a system message begins a user's turn."""
    return (
        "{% set ns = namespace(inside=false) %}{% for m in messages %}"
        f"{{% if not ns.inside %}}{{{{ '{before}[INST]{inner}' }}}}"
        "{% set ns.inside = true %}{% endif %}"
        "{% if m.role == 'system' %}{{ m.content + '\\n\\n' }}"
        f"{{% elif m.role == 'user' %}}{{{{ m.content + '{before}[/INST]' }}}}"
        f"{{% else %}}{{{{ '{inner}' + {content} + '</s>' }}}}"
        "{% set ns.inside = false %}{% endif %}{% endfor %}"
    )


def _llama2(system: str, again: str = "[INST] ", content: str = "m.content") -> str:
    """Return the format of Llama 2, whose system message stands in the first turn."""
    return (
        "{% set ns = namespace(inside=true) %}{{ '[INST] ' }}{% for m in messages %}"
        f"{{% set text = {content} %}}"
        f"{{% if not ns.inside %}}{{{{ '{again}' }}}}{{% set ns.inside = true %}}{{% endif %}}"
        f"{{% if m.role == 'system' %}}{{{{ {system} }}}}"
        "{% elif m.role == 'user' %}{{ text + ' [/INST]' }}"
        "{% else %}{{ text + '</s>' }}{% set ns.inside = false %}{% endif %}{% endfor %}"
    )


_IN_SYS = "'<<SYS>>\\n' + text + '\\n<</SYS>>\\n\\n'"
# Gemma and Orion have no system message: it goes before the next one of the user.
_HELD = "{% set ns = namespace(system='') %}{% for m in messages %}{% if m.role == 'system' %}"
_TEMPLATES: dict[str, str] = {
    "mistral-v1": _mistral(" ", " "),
    "mistral-v3": _mistral("", " ", "m.content | trim"),
    "mistral-v3-tekken": _mistral("", ""),
    "llama2": _llama2("text + '\\n'"),
    "llama2-sys": _llama2(_IN_SYS),
    "llama2-sys-bos": _llama2(_IN_SYS, "<s>[INST] "),
    "llama2-sys-strip": _llama2(_IN_SYS, content="m.content | trim"),
    "monarch": (
        "{% for m in messages %}{{ ('' if loop.first else '<s>') + m.role + '\\n' + m.content }}"
        "{{ '</s>\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<s>assistant\\n' }}{% endif %}"
    ),
    "gemma": (
        f"{_HELD}{{% set ns.system = ns.system + (m.content | trim) %}}{{% else %}}"
        "{{ '<start_of_turn>' + ('model' if m.role == 'assistant' else m.role) + '\\n' }}"
        "{% if ns.system and m.role != 'assistant' %}{{ ns.system + '\\n\\n' }}{% set ns.system = '' %}"
        "{% endif %}{{ (m.content | trim) + '<end_of_turn>\\n' }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}"
    ),
    "orion": (
        f"{_HELD}{{% set ns.system = ns.system + m.content %}}{{% elif m.role == 'user' %}}"
        "{{ 'Human: ' }}{% if ns.system %}{{ ns.system + '\\n\\n' }}{% set ns.system = '' %}{% endif %}"
        "{{ m.content + '\\n\\nAssistant: </s>' }}{% else %}{{ m.content + '</s>' }}{% endif %}{% endfor %}"
    ),
    "rwkv-world": (
        "{% for m in messages %}{{ {'system': 'System', 'user': 'User', 'assistant': 'Assistant'}[m.role]"
        " + ': ' + (m.content | trim) + '\\n\\n' }}{% endfor %}"
        "{% if messages[-1].role == 'user' %}{{ 'Assistant:' }}{% endif %}"
    ),
    "gigachat": (
        "{{ '<s>' }}{% for m in messages %}{% if m.role == 'system' %}{{ m.content + '<|message_sep|>' }}"
        "{% elif m.role == 'user' %}{{ 'user<|role_sep|>' + m.content + '<|message_sep|>"
        "available functions<|role_sep|>[]<|message_sep|>' }}"
        "{% else %}{{ 'assistant<|role_sep|>' + m.content + '<|message_sep|>' }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}{{ 'assistant<|role_sep|>' }}{% endif %}"
    ),
    "bailing2": (
        "{% if messages[0].role != 'system' %}"
        "{{ '<role>SYSTEM</role>detailed thinking off<|role_end|>' }}{% endif %}{% for m in messages %}"
        "{{ '<role>' + ('HUMAN' if m.role == 'user' else m.role | upper) + '</role>' + m.content"
        " + '<|role_end|>' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<role>ASSISTANT</role>' }}{% endif %}"
    ),
    "hunyuan-dense": (
        "{% for m in messages %}{% if m.role == 'assistant' %}"
        "{{ '<｜hy_Assistant｜>' + m.content + '<｜hy_place▁holder▁no▁2｜>' }}{% elif m.role == 'user' %}"
        "{{ '<｜hy_User｜>' + m.content + '<｜hy_Assistant｜>' }}{% elif loop.first %}"
        "{{ m.content + '<｜hy_place▁holder▁no▁3｜>' }}{% endif %}{% endfor %}"
    ),
    "hunyuan-vl": (
        "{{ '<｜hy_begin▁of▁sentence｜>' }}{% for m in messages %}{% if m.role == 'assistant' %}"
        "{{ m.content + '<｜hy_Assistant｜>' }}{% elif m.role == 'user' %}{{ m.content + '<｜hy_User｜>' }}"
        "{% elif loop.first %}{{ m.content + '<｜hy_place▁holder▁no▁3｜>' }}{% endif %}{% endfor %}"
    ),
    "pangu-embedded": (
        "{% if messages[0].role != 'system' %}{{ '[unused9]系统：[unused10]' }}{% endif %}"
        "{% for m in messages %}{{ '[unused9]' + {'system': '系统', 'user': '用户', 'assistant': '助手',"
        " 'tool': '工具', 'function': '方法'}[m.role] + '：' + m.content + '[unused10]' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '[unused9]助手：' }}{% endif %}"
    ),
}  # fmt: skip

# Which format a vocabulary without a template was made for: tokens that it alone has all of.
_TOKENS: tuple[tuple[tuple[str, ...], str], ...] = (
    (("<|im_start|>", "<|im_sep|>"), "phi4"),
    (("<|im_start|>", "<end_of_utterance>"), "smolvlm"),
    (("<|im_start|>",), "chatml"),
    (("<|start_header_id|>", "<|eot_id|>"), "llama3"),
    (("<|header_start|>", "<|eot|>"), "llama4"),
    (("<start_of_turn>",), "gemma"),
    (("<|START_OF_TURN_TOKEN|>",), "command-r"),
    (("<|start_of_role|>",), "granite"),
    (("[|assistant|]", "[|endofturn|]"), "exaone3"),
    (("<|assistant|>", "<|end|>"), "phi3"),
    (("<|start|>", "<|message|>"), "gpt-oss"),
    (("<|im_middle|>",), "kimi-k2"),
    (("<seed:bos>",), "seed_oss"),
    (("<｜User｜>",), "deepseek3"),
    (("[SYSTEM_PROMPT]", "[INST]"), "mistral-v7"),
    (("[INST]",), "mistral-v3"),
    (("[gMASK]", "<sop>"), "chatglm4"),
    (("<用户>",), "minicpm"),
)  # fmt: skip
# Families whose models all have one format, written in ordinary words.
_FAMILIES = {
    "rwkv6": "rwkv-world",
    "rwkv7": "rwkv-world",
    "orion": "orion",
    "deepseek2": "deepseek2",
}


def _pieces(pattern: str, strips: bool) -> str:
    """Return the Jinja expression of a message's pattern."""
    text = "(m.content | trim)" if strips else "m.content"
    parts: list[str] = []
    rest = pattern
    while rest:
        places = [(rest.find(mark), mark) for mark in (TEXT, ROLE) if mark in rest]
        place, mark = min(places, default=(len(rest), ""))
        if place:
            parts.append(json.dumps(rest[:place], ensure_ascii=False))
        if mark:
            parts.append(text if mark == TEXT else "m.role")
        rest = rest[place + len(mark) :]
    return " + ".join(parts)


def _jinja(marks: Marks) -> str:
    """Return the template of a format of marks; it refuses roles that the format does not know."""
    by_role = {"user": marks.user, "assistant": marks.assistant or marks.user}
    if marks.system is not None:
        by_role["system"] = marks.system or marks.user
    others = marks.user if ROLE in marks.user else ""
    branches = [
        f"m.role == '{role}' %}}{{{{ {_pieces(pattern, role in marks.strips)} }}}}"
        for role, pattern in by_role.items()
    ]
    lines = ["{% for m in messages %}{% if ", "{% elif ".join(branches), "{% else %}"]
    if others:
        lines.append(f"{{{{ {_pieces(others, 'user' in marks.strips)} }}}}")
    else:
        lines.append("{{ raise_exception('there is no role ' + m.role) }}")
    lines.append("{% endif %}{% endfor %}")
    if marks.opening:
        lines.insert(0, f"{{{{ {json.dumps(marks.opening)} }}}}")
    if marks.answer:
        answer = json.dumps(marks.answer, ensure_ascii=False)
        lines.append(f"{{% if add_generation_prompt %}}{{{{ {answer} }}}}{{% endif %}}")
    return "".join(lines)


BUILTIN = tuple(sorted([*_MARKS, *_TEMPLATES]))


@cache
def builtin_template(name: str) -> str:
    """Return the Jinja of one of ``BUILTIN``."""
    return _TEMPLATES[name] if name in _TEMPLATES else _jinja(_MARKS[name])


def find_builtin(tokens: frozenset[str], architecture: str) -> str | None:
    """Return the name of the format that a vocabulary or a family was made for; None: it is not known.

    Args:
        tokens: Texts of the vocabulary.
        architecture: The file's ``general.architecture``.
    """
    found = (name for texts, name in _TOKENS if all(text in tokens for text in texts))
    return next(found, _FAMILIES.get(architecture))
