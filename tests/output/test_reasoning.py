"""Reasoning apart from the answer, and its budget."""

from __future__ import annotations

import pytest
from cuts import any_cuts, pieces
from hypothesis import given
from hypothesis import strategies as st

from oxibonsai.chat_template import ChatTemplate
from oxibonsai.errors import RequestError
from oxibonsai.output import (
    ReasoningSplitter,
    ReasoningTags,
    ThinkingBudget,
    find_reasoning_tags,
    starts_inside,
)

THINK = ReasoningTags()


def split(
    parts: list[str], *, inside: bool = False, tags: ReasoningTags = THINK
) -> tuple[str, str]:
    splitter = ReasoningSplitter(tags, inside=inside)
    got = [*(splitter.feed(p) for p in parts), splitter.finish()]
    return "".join(r for r, _ in got), "".join(a for _, a in got)


OUTSIDE = [
    ("<think>\nWhy?\n</think>\n\nBecause.", "Why?", "Because."),
    ("\n<think>a\n\nb</think>c", "a\n\nb", "c"),
    ("<think>\n\n</think>\n\nAnswer", "", "Answer"),
    ("<think>never closed </thin", "never closed </thin", ""),
    ("<think>", "", ""),
    ("No thought.\n", "", "No thought.\n"),
    ("  <thin air>", "", "  <thin air>"),
    ("The tag <think> opens, </think> closes.", "", "The tag <think> opens, </think> closes."),
    ("<think>a</think>b <think>c</think>", "a", "b <think>c</think>"),
    ("<think>a</think>\n\n  indented\n", "a", "  indented\n"),
    ("<think>1 < 2 <</think>x", "1 < 2 <", "x"),
    ("", "", ""),
]
INSIDE = [
    ("Why?\n</think>\n\nBecause.", "Why?", "Because."),
    ("\nstill thinking", "still thinking", ""),
    ("<think>\ntag again</think>x", "tag again", "x"),
    ("</think>\n\nx", "", "x"),
    ("<thi", "<thi", ""),
    ("  a  </think>b", "  a  ", "b"),
]


@pytest.mark.parametrize(("text", "reasoning", "answer"), OUTSIDE)
@given(cuts=any_cuts)
def test_a_block_at_the_beginning_is_reasoning(
    text: str, reasoning: str, answer: str, cuts: list[int]
) -> None:
    assert split(pieces(text, cuts)) == (reasoning, answer)


@pytest.mark.parametrize(("text", "reasoning", "answer"), INSIDE)
@given(cuts=any_cuts)
def test_a_text_may_begin_inside_of_the_block(
    text: str, reasoning: str, answer: str, cuts: list[int]
) -> None:
    assert split(pieces(text, cuts), inside=True) == (reasoning, answer)


@given(st.lists(st.sampled_from(["<", "<think>", "</think>", "</", "\n", "a"])), st.booleans())
def test_every_cut_gives_the_same(parts: list[str], inside: bool) -> None:
    text = "".join(parts)
    assert split(parts, inside=inside) == split(list(text), inside=inside)
    assert split([text], inside=inside) == split(parts, inside=inside)


def test_other_tags() -> None:
    tags = ReasoningTags("[THINK]", "[/THINK]")
    assert split(["[THI", "NK]a[/THINK]b"], tags=tags) == ("a", "b")


def test_the_template_says_whether_and_how_a_model_thinks() -> None:
    assert find_reasoning_tags("{{ content.split('</think>')[-1] }}") == THINK
    assert find_reasoning_tags("[THINK]") == ReasoningTags("[THINK]", "[/THINK]")
    assert find_reasoning_tags(ChatTemplate.chatml().source) is None


QWEN_TAIL = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "<|im_start|>assistant\n<think>\n"
    "{% if enable_thinking is defined and enable_thinking is false %}\n</think>\n\n{% endif %}"
)


def test_the_prompt_says_whether_the_answer_starts_inside() -> None:
    template = ChatTemplate(QWEN_TAIL)
    messages = [{"role": "user", "content": "What is <think>"}]
    assert starts_inside(template.render(messages), THINK)
    assert not starts_inside(template.render(messages, enable_thinking=False), THINK)
    assert not starts_inside(ChatTemplate.chatml().render(messages), THINK)


def test_so_does_a_prefilled_answer() -> None:
    head = "<|im_start|>assistant\n"
    for prefill, inside in [("Well", False), ("<think>Well", True), ("<think>a</think>b", False)]:
        assert starts_inside(head + prefill, THINK, prefill=prefill) is inside
    assert starts_inside(head + "<think>\nWell", THINK, prefill="Well")
    assert not starts_inside(head + "<think>\na</think>", THINK, prefill="a</think>")


# --- the budget -----------------------------------------------------------------------------------

# Byte tokens, and one token for each tag.
OPEN, CLOSE = 256, 257
CLOSING = [CLOSE, 10, 10]


def token_bytes(token: int) -> bytes:
    return {OPEN: b"<think>", CLOSE: b"</think>"}.get(token) or bytes([token])


def budget(limit: int, *, inside: bool = False) -> ThinkingBudget:
    return ThinkingBudget(
        limit, token_bytes=token_bytes, closing=CLOSING, tags=THINK, inside=inside
    )


def generate(counter: ThinkingBudget, wanted: list[int]) -> list[int]:
    """What an engine does: the forced token, or else the one that the model wants."""
    out = []
    for token in wanted:
        while counter.forced():
            out.append(counter.forced()[0])
            counter.feed(out[-1])
        out.append(token)
        counter.feed(token)
    return out


def test_spent_tokens_are_followed_by_the_end_of_reasoning() -> None:
    assert generate(budget(3), [OPEN, *b"abcdef"]) == [OPEN, *b"abc", *CLOSING, *b"def"]
    assert generate(budget(3, inside=True), list(b"abcdef")) == [*b"abc", *CLOSING, *b"def"]


def test_a_budget_of_zero_ends_it_at_once() -> None:
    assert budget(0, inside=True).forced() == CLOSING
    assert generate(budget(0), [OPEN, *b"a"]) == [OPEN, *CLOSING, *b"a"]


def test_who_ends_in_time_is_left_alone() -> None:
    wanted = [OPEN, *b"ab", CLOSE, *b"\n\nanswer of many tokens", OPEN, *b"abcdef"]
    assert generate(budget(3), wanted) == wanted
    no_thought = list(b"answer with a <think> in it")
    assert generate(budget(0), no_thought) == no_thought


def test_tags_may_be_spelled_in_several_tokens() -> None:
    counter = budget(2)
    made = generate(counter, list(b"<think>abcd</think>ok"))
    assert made[: 9 + len(CLOSING)] == [*b"<think>ab", *CLOSING]
    assert counter.spent == 2


def test_a_character_that_the_budget_would_cut_is_completed() -> None:
    counter = budget(4)
    made = generate(counter, [OPEN, *"é€é".encode()])
    assert made == [OPEN, *"é€".encode(), *CLOSING, *"é".encode()]
    assert counter.spent == 5
    broken = generate(budget(1), [OPEN, 0xF0, 0x9F, *b"ab"])  # no character comes of it
    assert broken == [OPEN, 0xF0, 0x9F, *b"a", *CLOSING, *b"b"]


def test_another_token_than_the_forced_one_is_an_error() -> None:
    counter = budget(0, inside=True)
    with pytest.raises(RequestError, match="forces 257"):
        counter.feed(65)


def test_a_fork_goes_on_by_itself() -> None:
    counter = budget(3)
    made = generate(counter, [OPEN, *"aé".encode()[:2]])
    other = counter.fork()
    assert made + generate(other, [*"é".encode()[1:], *b"bcd"]) == [
        *[OPEN, *"aé".encode()],
        *CLOSING,
        *b"bcd",
    ]
    assert counter.spent == 2
    assert generate(counter, [*"é".encode()[1:], CLOSE]) == [*"é".encode()[1:], *CLOSING, CLOSE]


def test_a_budget_that_can_not_work_is_refused() -> None:
    with pytest.raises(RequestError, match="thinking_budget is -1"):
        budget(-1)
    with pytest.raises(RequestError, match="</think>"):
        ThinkingBudget(1, token_bytes=token_bytes, closing=[10], tags=THINK, inside=False)


@pytest.mark.parametrize(
    ("source", "open_tag"),
    [
        ("{{ '<think>' }}", "<think>"),
        ("content.split('</think>')", "<think>"),
        ("[THINK]", "[THINK]"),
        ("'<seed:think>'", "<seed:think>"),
        ("<mm:think>", "<mm:think>"),
        ("<|channel>thought\n", "<|channel>thought"),
        ("<|START_THINKING|>", "<|START_THINKING|>"),
        ("<|inner_prefix|>", "<|inner_prefix|>"),
        ("<thinking>", "<thinking>"),
        ("<|channel|>analysis<|message|>", "<|channel|>analysis<|message|>"),
        ("<|end|> <|user|>", None),
    ],
)
def test_the_template_tells_the_tags(source: str, open_tag: str | None) -> None:
    tags = find_reasoning_tags(source)
    assert (None if tags is None else tags.open) == open_tag
    if tags is None:
        return
    # A token of the vocabulary may be the beginning of a tag.
    assert {
        tags.close,
        tags.open[: tags.open.index("]" if "[" in tags.open else ">") + 1],
    } <= tags.marks
    if tags.answer:
        return
    text = f"{tags.open}\nHm.\n{tags.close}\n\nYes."
    assert split(list(text), tags=tags) == ("Hm.", "Yes.")
