"""What the seedlings learnt from: requests that are what they were, filters, and forms."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from filters import cleaned, repeated_sentence
from prepare import form, held_out, requests_hash, unbroken
from topics import request

MANIFEST = Path(__file__).parents[2] / "seedling" / "manifest.json"
STORY = (
    "Tom had a red ball. He took it to the park on a sunny day. A small dog ran up and wanted to play. "
    "Tom threw the ball far over the grass. The dog brought it back with a happy bark. They became good "
    "friends and met again every morning."
)


def test_the_requests_are_those_of_the_manifest() -> None:
    manifest = json.loads(MANIFEST.read_text())
    assert requests_hash(manifest["texts"]) == manifest["sha256_requests"]


def test_a_good_story_is_kept_and_its_signs_made_plain() -> None:
    assert cleaned("story", f"  {STORY}\n ", "stop") == STORY
    curly = STORY.replace("Tom had", "\u201cTom\u2019s ball\u2026\u201d \u2014 he had")
    assert cleaned("story", curly, "stop") == STORY.replace("Tom had", '"Tom\'s ball..." - he had')


def test_a_text_that_was_cut_ends_with_its_last_whole_sentence() -> None:
    assert cleaned("story", f"{STORY} And then he", "length") == STORY
    assert cleaned("story", f"{STORY} And then he", "stop") is None


@pytest.mark.parametrize(
    "text",
    [
        "A ball.",  # too short
        f"{STORY} # A heading.",
        f"{STORY} Caf\u00e9.",
        f"{STORY} I am an AI language model.",
        f"{STORY} He was glad today. He was glad today.",
        f"{STORY} " + "It was as big as it. " * 3,
        STORY + " word" * 240 + ".",
    ],
)
def test_a_text_that_is_odd_is_dropped(text: str) -> None:
    assert cleaned("story", text, "stop") is None


def test_sentences_of_three_words_count_as_repeated_whatever_their_case() -> None:
    assert repeated_sentence("He ran home. Then he slept. HE RAN HOME!")
    assert not repeated_sentence("Oh no! A dog. Oh no! Yes, a dog.")


def test_texts_are_learnt_alone_asked_for_and_continued() -> None:
    text = "Once upon a time, a fox saw a bird in a tree and sang."
    assert form(3, "story", "", text) == text
    asked = form(4, "story", "", text)
    assert asked.startswith(
        f"<|im_start|>user\nTell me a story about {request(4).subject}.<|im_end|>"
    )
    assert asked.endswith(f"<|im_start|>assistant\n{text}<|im_end|>\n")
    opening, rest = form(5, "story", "", text).split("<|im_end|>\n<|im_start|>assistant\n")
    opening, rest = opening.removeprefix("<|im_start|>user\n"), rest.removesuffix("<|im_end|>\n")
    assert f"{opening} {rest}" == text
    assert 2 <= len(opening.split()) <= 8


def test_only_texts_without_a_gap_before_them_are_used() -> None:
    lines = [json.dumps({"number": n}) for n in (1, 0, 4, 2)]
    assert [json.loads(line)["number"] for line in unbroken(lines)] == [0, 1, 2]


def test_one_text_of_32_is_held_out() -> None:
    assert 250 < sum(held_out(n) for n in range(10_000)) < 380
