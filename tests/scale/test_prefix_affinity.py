"""Which replica a prompt is sent to."""

from __future__ import annotations

import json
from typing import Any

import pytest

from oxibonsai.ray_app.prefix_affinity import BLOCK_CHARACTERS, PrefixAffinity, prompt_blocks

LOADS = {"a": 0, "b": 0, "c": 0}


def chat(*contents: str, **fields: Any) -> bytes:
    messages = [{"role": "user", "content": text} for text in contents]
    return json.dumps({"model": "m", "messages": messages, **fields}).encode()


def test_the_blocks_of_a_prompt_begin_those_of_its_continuation() -> None:
    first = prompt_blocks(chat("x" * 1000))
    more = prompt_blocks(chat("x" * 1000, "answer", "y" * 1000))
    assert len(first) == 4
    assert more[: len(first) - 1] == first[:-1]
    assert len(more) > len(first)


@pytest.mark.parametrize(
    "other",
    [
        chat("y" + "x" * 1000),
        chat("x" * 1000, model="other"),
        chat("x" * 1000, tools=[{"type": "function"}]),
        chat("x" * 1000, prompt_cache_key="k"),
    ],
)
def test_other_prompts_have_other_blocks(other: bytes) -> None:
    blocks = prompt_blocks(chat("x" * 1000))
    assert not set(blocks) & set(prompt_blocks(other))


def test_keys_share_no_blocks() -> None:
    assert not set(prompt_blocks(chat("x" * 1000), "one")) & set(
        prompt_blocks(chat("x" * 1000), "other")
    )


def test_requests_of_one_cache_key_belong_together() -> None:
    short, long = (prompt_blocks(chat(t, prompt_cache_key="k")) for t in ("hi", "z" * 600))
    assert short == long[:1]


@pytest.mark.parametrize(
    "body",
    [b"", b"[1]", b"{", b'{"model": "m"}', b"[" * 100_000, chat("x" * (BLOCK_CHARACTERS // 2))],
)
def test_what_has_no_long_prompt_has_no_blocks(body: bytes) -> None:
    assert prompt_blocks(body) == []


@pytest.mark.parametrize("name", ["input", "prompt"])
def test_the_prompts_of_all_apis_are_read(name: str) -> None:
    body = json.dumps({name: "x" * 600}).encode()
    assert len(prompt_blocks(body)) == 2


def test_the_replica_with_the_longest_beginning_is_preferred() -> None:
    affinity: PrefixAffinity[str] = PrefixAffinity()
    affinity.remember([1, 2], "a")
    affinity.remember([1, 2, 3, 4], "b")
    assert affinity.prefer([1, 2, 3, 9], LOADS) == "b"
    assert affinity.prefer([1, 9], {**LOADS, "b": 1}) == "a"
    assert affinity.prefer([9], LOADS) is None
    assert affinity.prefer([], LOADS) is None


def test_a_replica_that_is_gone_is_not_preferred() -> None:
    affinity: PrefixAffinity[str] = PrefixAffinity()
    affinity.remember([1, 2], "a")
    affinity.remember([1], "b")
    assert affinity.prefer([1, 2], {"b": 0, "c": 0}) == "b"
    affinity.forget("b")
    assert affinity.prefer([1, 2], {"b": 0, "c": 0}) is None


def test_a_replica_with_too_many_requests_is_not_preferred() -> None:
    affinity: PrefixAffinity[str] = PrefixAffinity(max_imbalance=4)
    affinity.remember([1], "a")
    assert affinity.prefer([1], {"a": 7, "b": 3}) == "a"
    assert affinity.prefer([1], {"a": 8, "b": 3}) is None


def test_the_ends_of_old_prompts_are_forgotten_first() -> None:
    affinity: PrefixAffinity[str] = PrefixAffinity(max_blocks=4)
    affinity.remember([1, 2, 3], "a")
    affinity.remember([7, 8], "b")
    assert affinity.prefer([1, 2], LOADS) == "a"
    affinity.remember([9, 10], "c")
    assert affinity.prefer([1, 2], LOADS) is None
    assert affinity.prefer([7], LOADS) == "b"
