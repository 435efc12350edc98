"""Prompts, made up and from files."""

from __future__ import annotations

from pathlib import Path

import pytest

from oxibonsai.errors import RequestError
from oxibonsai.loadtest.prompts import from_file, made_up


def test_made_up_prompts_differ_from_the_start_and_repeat_by_seed() -> None:
    prompts = made_up(50, seed=1)
    texts = [prompts(i)[0]["content"] for i in range(40)]
    assert all(len(text.split()) == 50 for text in texts)
    assert len({" ".join(text.split()[:8]) for text in texts}) == 40
    assert made_up(50, seed=1)(3) == prompts(3)
    assert made_up(50, seed=2)(3) != prompts(3)


def test_a_text_file_has_a_prompt_a_line(tmp_path: Path) -> None:
    path = tmp_path / "prompts.txt"
    path.write_text('one\n\n"two"\n')
    prompts = from_file(path)
    assert [prompts(i)[0]["content"] for i in range(3)] == ["one", '"two"', "one"]


def test_a_jsonl_file_has_strings_messages_or_objects(tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text(
        '"one"\n[{"role": "user", "content": "two"}]\n'
        '{"messages": [{"role": "user", "content": "three"}]}\n'
    )
    prompts = from_file(path)
    assert [prompts(i)[0]["content"] for i in range(3)] == ["one", "two", "three"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("\n", "has no prompts"),
        ("{", "bad.jsonl:1: not JSON"),
        ('"x"\n3', "bad.jsonl:2: a prompt is"),
        ("[]", "bad.jsonl:1: a prompt is"),
        ('{"text": "x"}', "bad.jsonl:1: a prompt is"),
    ],
)
def test_a_bad_file_is_refused_with_its_line(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(content)
    with pytest.raises(RequestError, match=message):
        from_file(path)
