"""What of a file of examples is learnt: transformers' assistant masks, and each form by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from oxibonsai import AutoTokenizer, FormatError, RequestError
from oxibonsai.finetune.examples import (
    IGNORED,
    Example,
    holds_preferences,
    pack_examples,
    read_examples,
    read_preferences,
)

pytest.importorskip("transformers", reason="needs transformers (extra: test)")
pytestmark = pytest.mark.hf

# {% generation %} is transformers' own mark of what the assistant says.
MARKED = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' %}"
    "{% generation %}{{ m.content }}<|im_end|>{% endgeneration %}{% else %}{{ m.content }}<|im_end|>"
    "{% endif %}\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# As Qwen3's: reasoning is there in the last turn alone, and asked for by a mark.
THINKING = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' and loop.last %}"
    "<think>\n{{ m.reasoning_content }}</think>\n{% endif %}{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}"
)
TURNS = [
    {"role": "user", "content": "Who?"}, {"role": "assistant", "content": "Ann, I think."},
    {"role": "user", "content": "Sure?"}, {"role": "assistant", "content": "Yes."},
]  # fmt: skip


@pytest.fixture
def tokenizer(tiny_path: Path) -> Any:
    return AutoTokenizer.from_pretrained(tiny_path)


@pytest.fixture
def read(tmp_path: Path, tokenizer: Any) -> Any:
    def read(*rows: Any, context: int = 4096) -> list[Example]:
        file = tmp_path / "data.jsonl"
        file.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
        return read_examples(file, tokenizer, context).items

    return read


def learnt(example: Example, tokenizer: Any) -> str:
    text: str = tokenizer.decode([t for t in example.labels if t != IGNORED])
    return text


def test_what_the_assistant_says_is_what_transformers_marks(tokenizer: Any, read: Any) -> None:
    tokenizer.chat_template = MARKED
    (example,) = read({"messages": TURNS})
    theirs = tokenizer.transformers_tokenizer
    theirs.chat_template = MARKED
    found = theirs.apply_chat_template(TURNS, return_dict=True, return_assistant_tokens_mask=True)
    assert example.ids == found["input_ids"]
    assert [int(label != IGNORED) for label in example.labels] == found["assistant_masks"]
    assert all(
        label in (IGNORED, token) for token, label in zip(*vars(example).values(), strict=True)
    )


def test_an_answer_that_is_written_otherwise_later_is_learnt_by_itself(
    tokenizer: Any, read: Any
) -> None:
    tokenizer.chat_template = THINKING
    thoughtful = [{**m, "reasoning_content": "Hm.\n"} for m in TURNS]
    first, last = read({"messages": thoughtful})
    assert learnt(first, tokenizer) == "Hm.\n</think>\nAnn, I think.<|im_end|>"
    assert learnt(last, tokenizer) == "Hm.\n</think>\nYes.<|im_end|>"
    assert "Sure?" not in tokenizer.decode(first.ids)
    assert "assistant\nAnn, I think." in tokenizer.decode(last.ids)


def test_completions_are_learnt_and_prompts_are_not(tokenizer: Any, read: Any) -> None:
    end = tokenizer.eos_token
    texts, messages, whole = read(
        {"prompt": "2 + 2 = ", "completion": "4"},
        {"prompt": TURNS[:3], "completion": TURNS[3:]},
        {"text": "All of it."},
    )
    assert tokenizer.decode(texts.ids) == f"2 + 2 = 4{end}"
    assert learnt(texts, tokenizer) == f"4{end}"
    assert learnt(messages, tokenizer) == "Yes.<|im_end|>"
    assert whole.labels == whole.ids
    assert learnt(whole, tokenizer) == f"All of it.{end}"


def test_what_is_too_long_is_cut_and_counted(tmp_path: Path, tokenizer: Any) -> None:
    file = tmp_path / "data.jsonl"
    rows = [{"text": "a" * 40}, {"prompt": "b" * 40, "completion": "c"}, {"text": "d"}]
    file.write_text("\n".join(map(json.dumps, rows)))
    found = read_examples(file, tokenizer, 10)
    assert (len(found.items), found.cut, found.dropped) == (2, 2, 1)
    assert [len(e.ids) for e in found.items] == [10, 2]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("[1]", "line 2 is no JSON object"),
        ("{", "line 2 is no JSON"),
        ("{}", "line 2: it has none of messages; prompt and completion; or text"),
        ('{"text": 5}', "line 2: text is 5, which is no text"),
        ('{"messages": "a"}', "line 2: messages is no list of objects"),
        (
            '{"messages": [{"role": "user", "content": "a"}]}',
            "line 2: there is no message of the as",
        ),
        (
            '{"prompt": "a", "completion": []}',
            "line 2: prompt and completion are neither two texts",
        ),
        (
            '{"chosen": "a", "rejected": "b"}',
            "line 2: preferences are learnt from a file of them alone",
        ),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, tokenizer: Any, line: str, problem: str) -> None:
    file = tmp_path / "data.jsonl"
    file.write_text('{"text": "fine"}\n' + line)
    with pytest.raises(FormatError, match=f"data.jsonl, {problem}"):
        read_examples(file, tokenizer, 64)


def test_a_file_without_anything_to_learn_is_refused(tmp_path: Path, tokenizer: Any) -> None:
    file = tmp_path / "data.jsonl"
    with pytest.raises(RequestError, match="cannot read"):
        read_examples(file, tokenizer, 64)
    file.write_text("\n")
    with pytest.raises(RequestError, match=r"has nothing to learn$"):
        read_examples(file, tokenizer, 64)
    file.write_text(json.dumps({"prompt": "b" * 40, "completion": "c"}))
    with pytest.raises(RequestError, match="has nothing to learn within 10 tokens"):
        read_examples(file, tokenizer, 10)


def test_examples_are_packed_whole_where_the_least_room_is_left() -> None:
    lengths = [3, 1, 5, 2, 4, 6]
    examples = [Example([i] * n, [IGNORED] + [i] * (n - 1)) for i, n in enumerate(lengths)]
    rows = pack_examples(examples, 7)
    # 6 and 1; 5 and 2; 4 and 3.
    assert [row.ids for row in rows] == [[5] * 6 + [1], [2] * 5 + [3] * 2, [4] * 4 + [0] * 3]
    assert rows[2].labels == [IGNORED, 4, 4, 4, IGNORED, 0, 0]
    assert rows[2].positions == [0, 1, 2, 3, 0, 1, 2]
    learnt_whole = pack_examples([Example([7, 8], [7, 8]), Example([9], [9])], 3)
    assert learnt_whole[0].labels == [IGNORED, 8, IGNORED]


def test_preferences_are_prompts_with_two_answers(tmp_path: Path, tokenizer: Any) -> None:
    asked, said = TURNS[:3], TURNS[3]
    other = {"role": "assistant", "content": "No."}
    rows: list[dict[str, Any]] = [
        {"prompt": asked, "chosen": [said], "rejected": [other]},
        {"chosen": [*asked, said], "rejected": [*asked, other]},
    ]
    file = tmp_path / "pairs.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    assert holds_preferences(file)
    explicit, implicit = read_preferences(file, tokenizer, 4096).items
    assert explicit == implicit
    assert learnt(explicit.chosen, tokenizer).startswith("Yes.")
    assert learnt(explicit.rejected, tokenizer).startswith("No.")
    cut = len(explicit.rejected.ids) - 2
    assert max(len(e.ids) for e in (explicit.chosen, explicit.rejected)) > cut
    assert read_preferences(file, tokenizer, cut).cut == 2
    file.write_text(json.dumps(rows[0]) + "\n" + json.dumps({"text": "a"}))
    with pytest.raises(FormatError, match=r"line 2: it has not both chosen and rejected"):
        read_preferences(file, tokenizer, 4096)
    file.write_text(json.dumps({"text": "a"}) + "\n" + json.dumps(rows[0]))
    assert not holds_preferences(file)
    with pytest.raises(FormatError, match=r"line 2: preferences are learnt from a file of them"):
        read_examples(file, tokenizer, 4096)
