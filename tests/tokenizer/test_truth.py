"""Token ids against llama.cpp's, on every recorded text."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from oxibonsai import _core
from oxibonsai.tokenizer import StreamDecoder, Tokenizer

NAMES = ["qwen2", "llama-bpe", "llama-spm", "gpt-2", "phi-3"]
SEPARATOR = "\n__ggml_vocab_test__\n"


@pytest.fixture(scope="module", params=NAMES)
def recorded(
    request: pytest.FixtureRequest, truth_folder: Path
) -> tuple[Tokenizer, list[tuple[str, list[int]]]]:
    path = truth_folder / "vocab" / f"ggml-vocab-{request.param}.gguf"
    with open(f"{path}.inp", newline="") as file:
        texts = file.read().split(SEPARATOR)
    ids = [[int(i) for i in line.split()] for line in Path(f"{path}.out").read_text().split("\n")]
    return Tokenizer.from_gguf(_core.GgufFile(str(path))), list(zip(texts, ids, strict=False))


Recorded = tuple[Tokenizer, list[tuple[str, list[int]]]]


def test_every_record_has_equal_ids(recorded: Recorded) -> None:
    tokenizer, records = recorded
    assert len(records) > 40
    for text, ids in records:
        assert tokenizer.encode(text, add_special=False) == ids, text


def test_decoding_gives_the_text_back(recorded: Recorded) -> None:
    tokenizer, records = recorded
    for text, ids in records:
        assert tokenizer.decode(ids) == text


def test_a_stream_never_cuts_a_character_and_joins_to_the_text(recorded: Recorded) -> None:
    tokenizer, records = recorded
    for text, ids in records:
        stream = StreamDecoder(tokenizer)
        pieces = [stream.feed(i) for i in ids]
        assert all("\ufffd" not in p for p in pieces)
        assert "".join([*pieces, stream.flush()]) == text


@pytest.mark.slow
@pytest.mark.parametrize("name", ["smollm2", "gemma270m"])
def test_prompts_of_real_models_have_equal_ids(
    name: str, truth_folder: Path, request: pytest.FixtureRequest
) -> None:
    path = request.getfixturevalue({"smollm2": "smollm2_path", "gemma270m": "gemma_path"}[name])
    tokenizer = Tokenizer.from_gguf(_core.GgufFile(str(path)))
    for prompt in json.loads((truth_folder / "oracle" / f"{name}.json").read_text())["prompts"]:
        ids = tokenizer.encode(
            prompt["prompt"],
            add_special=prompt["add_special"],
            parse_special=prompt["parse_special"],
        )
        assert ids == prompt["tokens"]
