"""Templates by llama.cpp's names: the text of each is the one that llama.cpp writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from oxibonsai.chat_template import ChatTemplate
from oxibonsai.chat_template.builtin import BUILTIN, builtin_template, find_builtin
from oxibonsai.errors import RequestError


@pytest.fixture(scope="module")
def recorded(truth_folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((truth_folder / "chat_templates.json").read_text("utf-8"))
    return found


def test_llama_cpp_knows_the_same_names(recorded: dict[str, Any]) -> None:
    assert set(BUILTIN) == set(recorded["texts"])


@pytest.mark.parametrize("name", BUILTIN)
def test_the_text_is_that_of_llama_cpp(recorded: dict[str, Any], name: str) -> None:
    template = ChatTemplate(builtin_template(name))
    for messages, texts in zip(recorded["conversations"], recorded["texts"][name], strict=True):
        if name == "yandex" and messages[0]["role"] == "system":
            # llama.cpp leaves it out, for the format has none.
            with pytest.raises(RequestError, match="there is no role system"):
                template.render(messages)
            continue
        for with_answer, text in zip((True, False), texts, strict=True):
            assert template.render(messages, add_generation_prompt=with_answer) == text


def test_chatml_is_one_template() -> None:
    said = [{"role": "system", "content": "a"}, {"role": "user", "content": "b"}]
    assert ChatTemplate.chatml().render(said) == ChatTemplate(builtin_template("chatml")).render(
        said
    )


def test_a_role_that_a_format_does_not_know_is_refused() -> None:
    with pytest.raises(RequestError, match="there is no role tool"):
        ChatTemplate(builtin_template("vicuna")).render([{"role": "tool", "content": "1"}])


@pytest.mark.parametrize(
    ("tokens", "architecture", "name"),
    [
        ({"<|im_start|>", "<|im_end|>"}, "llama", "chatml"),
        ({"<|start_header_id|>", "<|eot_id|>"}, "llama", "llama3"),
        ({"<start_of_turn>"}, "gemma3", "gemma"),
        ({"[INST]"}, "llama", "mistral-v3"),
        (set(), "rwkv7", "rwkv-world"),
        (set(), "llama", None),
    ],
)
def test_a_vocabulary_tells_the_format_that_it_was_made_for(
    tokens: set[str], architecture: str, name: str | None
) -> None:
    assert find_builtin(frozenset(tokens), architecture) == name
