"""apply_chat_template: with the arguments of transformers, what transformers gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tiny_model
from oxibonsai import AutoModelForCausalLM, AutoTokenizer, RequestError, UnsupportedError
from oxibonsai.hf import PreTrainedTokenizer

TEMPLATE = (
    "{{ bos_token }}{%- for tool in tools or [] %}<tool>{{ tool | tojson }}</tool>\n{% endfor %}"
    "{%- for document in documents or [] %}<doc>{{ document.title }}</doc>\n{% endfor %}"
    "{%- for m in messages %}<|im_start|>{{ m.role }}\n"
    "{%- if m.role == 'assistant' %}{% generation %}"
    "{%- if m.reasoning_content is defined %}<think>{{ m.reasoning_content }}</think>{% endif %}"
    "{%- if m.content is defined %}{{ m.content | trim }}{% endif %}<|im_end|>"
    "{% endgeneration %}{%- else %}{{ m.content }}<|im_end|>{% endif %}\n"
    "{%- if m.name is defined %}{{ m.name }}{% endif %}{%- endfor %}"
    "{%- if add_generation_prompt %}<|im_start|>assistant\n"
    "{%- if enable_thinking is defined and enable_thinking is false %}<think></think>{% endif %}"
    "{%- endif %}"
)
PARTS = "{% for m in messages %}{% for p in m.content %}[{{ p.text }}]{% endfor %}{% endfor %}"
CHAT: list[dict[str, Any]] = [
    {"role": "user", "content": "Why abé?", "name": None},
    {"role": "assistant", "content": "ab çab ", "reasoning": "Hm, ab"},
]
OPEN: list[dict[str, Any]] = [*CHAT, {"role": "user", "content": "Sure?"}]
TEXT_PARTS = [
    {
        "role": "assistant",
        "content": [{"type": "text", "text": "One"}, {"type": "text", "text": "Two "}],
    }
]
DOCUMENTS = [{"title": "T", "text": "x"}]
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]


def add(a: int, b: int = 1) -> int:
    """Adds two numbers.

    Args:
        a: The first.
        b: The second.
    """
    return a + b


CALLS: list[tuple[list[Any], dict[str, Any]]] = [
    (OPEN, {}),
    (OPEN, {"tokenize": False}),
    (OPEN, {"add_generation_prompt": True, "enable_thinking": False}),
    (OPEN, {"return_dict": False}),
    (OPEN, {"return_dict": False, "return_tensors": "np"}),
    (OPEN, {"return_tensors": "pt"}),
    (OPEN, {"tools": TOOLS, "tokenize": False}),
    (OPEN, {"tools": [add], "tokenize": False}),
    (OPEN, {"documents": DOCUMENTS, "tokenize": False}),
    (OPEN, {"chat_template": "{% for m in messages %}{{ m.role }}{{ eos_token }}{% endfor %}"}),
    (OPEN, {"bos_token": "<first>", "tokenize": False}),
    (CHAT, {"continue_final_message": True, "tokenize": False}),
    (CHAT, {"continue_final_message": True}),
    (CHAT, {"continue_final_message": "reasoning_content", "tokenize": False}),
    (CHAT, {"continue_final_message": "thinking", "tokenize": False}),
    (TEXT_PARTS, {"continue_final_message": True, "chat_template": PARTS, "tokenize": False}),
    (OPEN, {"truncation": True, "max_length": 9}),
    (OPEN, {"max_length": 9}),
    (OPEN, {"padding": "max_length", "max_length": 200}),
    (OPEN, {"padding": True, "truncation": True, "max_length": 9}),
    ([OPEN, CHAT], {}),
    ([OPEN, CHAT], {"tokenize": False}),
    ([OPEN, CHAT], {"return_dict": False}),
    ([OPEN, CHAT], {"padding": True, "return_tensors": "np"}),
    ([OPEN, CHAT], {"truncation": True, "max_length": 9, "return_tensors": "pt"}),
    (OPEN, {"return_assistant_tokens_mask": True}),
    ([OPEN, CHAT], {"return_assistant_tokens_mask": True}),
    (
        [OPEN, CHAT],
        {"return_assistant_tokens_mask": True, "padding": True, "return_tensors": "np"},
    ),
    (OPEN, {"return_assistant_tokens_mask": True, "truncation": True, "max_length": 60}),
]


@pytest.fixture(scope="module")
def model_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("chat") / "chat.gguf"
    changes = {
        "tokenizer.chat_template": (TEMPLATE, "str"),
        "tokenizer.ggml.bos_token_id": (256, "u32"),
        "tokenizer.ggml.padding_token_id": (258, "u32"),
    }
    tiny_model.write(path, changes=changes)
    return path


@pytest.fixture(scope="module")
def tokenizer(model_path: Path) -> PreTrainedTokenizer:
    return AutoTokenizer.from_pretrained(model_path)


@pytest.fixture(scope="module")
def theirs(model_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The same tokenizer in transformers."""
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("saved")
    AutoModelForCausalLM.from_pretrained(model_path).save_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    tokenizer.padding_side = "left"
    return tokenizer


def plain(result: Any) -> Any:
    """Lists for arrays and tensors, with their kind."""
    if hasattr(result, "items"):
        return {key: plain(value) for key, value in result.items() if key != "token_type_ids"}
    return (type(result), result.tolist()) if hasattr(result, "tolist") else result


@pytest.mark.hf
@pytest.mark.parametrize(("conversation", "options"), CALLS, ids=range(len(CALLS)))
def test_a_call_gives_what_it_gives_in_transformers(
    tokenizer: PreTrainedTokenizer, theirs: Any, conversation: list[Any], options: dict[str, Any]
) -> None:
    ours = tokenizer.apply_chat_template(conversation, **options)
    assert plain(ours) == plain(theirs.apply_chat_template(conversation, **options))


@pytest.mark.hf
@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_and_truncation_follow_their_side(
    tokenizer: PreTrainedTokenizer, theirs: Any, side: str
) -> None:
    options = {"padding": "max_length", "truncation": True, "max_length": 90}
    for each in (tokenizer, theirs):
        each.padding_side = each.truncation_side = side
    try:
        ours, expected = (
            t.apply_chat_template([OPEN, CHAT], **options) for t in (tokenizer, theirs)
        )
        assert plain(ours) == plain(expected)
        ours, expected = (t(["a", "abababab"], padding="max_length", truncation=True, max_length=3)
                          for t in (tokenizer, theirs))  # fmt: skip
        assert plain(ours) == plain(expected)
    finally:
        for each in (tokenizer, theirs):
            each.padding_side, each.truncation_side = "left", "right"


def test_a_template_that_is_set_is_used(tokenizer: PreTrainedTokenizer) -> None:
    other = PreTrainedTokenizer(tokenizer.tokenizer, None)
    with pytest.raises(RequestError, match="no chat template"):
        other.apply_chat_template(OPEN)
    other.chat_template = "{{ messages[0].content }}"
    assert other.apply_chat_template(OPEN, tokenize=False) == "Why abé?"


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("continue_final_mesage", "'continue_final_message'"),
        ("enable_thinkin", "'enable_thinking'"),
        ("add_generation_promt", "'add_generation_prompt'"),
        ("xyz", None),
    ],
)
def test_a_keyword_that_nobody_reads_is_refused_by_name(
    tokenizer: PreTrainedTokenizer, name: str, meant: str | None
) -> None:
    with pytest.raises(TypeError, match=f"'{name}'") as e:
        tokenizer.apply_chat_template(OPEN, **{name: True})
    assert (f"did you mean {meant}?" in str(e.value)) == (meant is not None)


@pytest.mark.parametrize(
    ("conversation", "options", "message"),
    [
        ([], {}, "conversation is empty"),
        (["Hi"], {}, "message 0 is 'Hi'"),
        (CHAT, {"continue_final_message": True, "add_generation_prompt": True}, "excludes"),
        (CHAT, {"continue_final_message": "tool_calls"}, "no 'tool_calls'"),
        (CHAT, {"continue_final_message": True, "chat_template": "x"}, "does not read 'content'"),
        (CHAT, {"return_assistant_tokens_mask": True, "return_dict": False}, "needs tokenize"),
        (CHAT, {"return_assistant_tokens_mask": True, "chat_template": "x"}, "generation"),
        (CHAT, {"padding": "widest"}, "padding is 'widest'"),
        (CHAT, {"truncation": "soon"}, "truncation is 'soon'"),
        ([CHAT, OPEN], {"return_tensors": "np"}, "pass padding=True"),
        (CHAT, {"return_tensors": "tf"}, "return_tensors is 'tf'"),
        (CHAT, {"tools": ["add"]}, "the tool 'add'"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(
    tokenizer: PreTrainedTokenizer, conversation: list[Any], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(RequestError, match=message):
        tokenizer.apply_chat_template(conversation, **options)


def test_what_is_not_there_is_said(tokenizer: PreTrainedTokenizer) -> None:
    with pytest.raises(UnsupportedError, match="sanitize_control_tokens"):
        tokenizer.apply_chat_template(OPEN, sanitize_control_tokens=True)


def test_the_context_of_the_model_is_the_longest(tokenizer: PreTrainedTokenizer) -> None:
    long = [{"role": "user", "content": "x" * 2 * tiny_model.CONTEXT}]
    encoding = tokenizer.apply_chat_template(long, truncation=True)
    assert len(encoding["input_ids"]) == tiny_model.CONTEXT


def test_the_result_goes_into_generate(model_path: Path, tokenizer: PreTrainedTokenizer) -> None:
    model = AutoModelForCausalLM.from_pretrained(model_path)
    inputs = tokenizer.apply_chat_template(OPEN, add_generation_prompt=True, return_tensors="np")
    out = model.generate(**inputs, max_new_tokens=3, eos_token_id=())
    assert np.array_equal(out[:, :-3], inputs.input_ids)
