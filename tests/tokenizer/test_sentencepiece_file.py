"""Folders with SentencePiece's own file: the same ids as SentencePiece gives, hostile files refused."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hf_folders import VOCABULARY
from hypothesis import given
from hypothesis import strategies as st
from sentencepiece import SentencePieceProcessor, SentencePieceTrainer, sentencepiece_model_pb2

import tiny_model
from oxibonsai.checkpoint import Checkpoint
from oxibonsai.checkpoint.folder import ModelFolder
from oxibonsai.convert.text_tokenizer import tokenizer_keys
from oxibonsai.errors import FormatError, OxiBonsaiError, UnsupportedError
from oxibonsai.tokenizer import Tokenizer

SENTENCES = [
    "Hello world, it is all well.", "The tree is tall; the hill is still taller.", "Tell them: yes!",
    "Is it 12 or 13?  Two  spaces.", "hello\thelp\nheld", "\u00fcber \u4f60\u597d",
]  # fmt: skip


def trained(**options: Any) -> bytes:
    """A small SentencePiece model."""
    out = io.BytesIO()
    settings = {
        "vocab_size": 300, "model_type": "bpe", "byte_fallback": True, "character_coverage": 1.0,
        "normalization_rule_name": "identity", "remove_extra_whitespaces": False,
        "hard_vocab_limit": False, "minloglevel": 2, **options,
    }  # fmt: skip
    SentencePieceTrainer.train(sentence_iterator=iter(SENTENCES * 5), model_writer=out, **settings)
    return out.getvalue()


def write_folder(folder: Path, content: bytes, **files: Any) -> Path:
    config = {"model_type": "llama", "vocab_size": VOCABULARY}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.model").write_bytes(content)
    for name, value in files.items():
        (folder / f"{name}.json").write_text(json.dumps(value))
    return folder


def tokenizer_of(folder: Path) -> Tokenizer:
    keys = tokenizer_keys(ModelFolder(folder))
    tiny_model.write(folder / "tiny.gguf", changes=keys, tensors={})
    return Tokenizer.from_gguf(Checkpoint(folder / "tiny.gguf").file)


@pytest.fixture(scope="module")
def content() -> bytes:
    return trained()


@pytest.fixture(scope="module")
def pair(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> tuple[Tokenizer, SentencePieceProcessor]:
    folder = write_folder(tmp_path_factory.mktemp("spm"), content)
    return tokenizer_of(folder), SentencePieceProcessor(model_proto=content)


@given(text=st.text(st.sampled_from("Helo wrdtis,.12\n\t\u00fc\u4f60\U0001f600"), max_size=40))
def test_ids_are_those_of_sentencepiece(
    pair: tuple[Tokenizer, SentencePieceProcessor], text: str
) -> None:
    ours, theirs = pair
    assert ours.encode(text, add_special=False) == theirs.encode(text)


def test_a_prefix_that_is_off_stays_off(tmp_path: Path) -> None:
    content = trained(add_dummy_prefix=False)
    ours = tokenizer_of(write_folder(tmp_path, content))
    theirs = SentencePieceProcessor(model_proto=content)
    assert ours.encode("Hello tree", add_special=False) == theirs.encode("Hello tree")


def test_ends_come_from_the_file_where_nothing_else_names_them(
    tmp_path: Path, content: bytes
) -> None:
    keys = tokenizer_keys(ModelFolder(write_folder(tmp_path, content)))
    assert keys["tokenizer.ggml.bos_token_id"] == (1, "u32")
    assert keys["tokenizer.ggml.eos_token_id"] == (2, "u32")
    assert keys["tokenizer.ggml.unknown_token_id"] == (0, "u32")


def test_added_tokens_lie_behind_the_pieces(tmp_path: Path, content: bytes) -> None:
    config = {
        "added_tokens_decoder": {"305": {"content": "<turn>", "special": True}},
        "eos_token": "<turn>",
    }
    folder = write_folder(tmp_path, content, added_tokens={"<extra>": 304}, tokenizer_config=config)
    tokenizer = tokenizer_of(folder)
    assert tokenizer.encode("<turn>", add_special=False, parse_special=True) == [305]
    assert 304 in tokenizer.encode("<extra>", add_special=False)
    assert tokenizer_keys(ModelFolder(folder))["tokenizer.ggml.eos_token_id"] == (305, "u32")


def _unigram(_: bytes) -> bytes:
    return trained(model_type="unigram")


def _normalising(_: bytes) -> bytes:
    return trained(normalization_rule_name="nmt_nfkc")


def _endless_score(content: bytes) -> bytes:
    model = sentencepiece_model_pb2.ModelProto.FromString(content)
    model.pieces[5].score = float("nan")
    return bytes(model.SerializeToString())


def _large(content: bytes) -> bytes:
    model = sentencepiece_model_pb2.ModelProto.FromString(content)
    for i in range(VOCABULARY):
        model.pieces.add(piece=f"x{i}", score=0.0)
    return bytes(model.SerializeToString())


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (_unigram, UnsupportedError, "not those of BPE"),
        (_normalising, UnsupportedError, "normalises"),
        (_endless_score, FormatError, "not finite"),
        (_large, FormatError, "pieces, but the model a vocabulary of"),
        (lambda c: c[: len(c) // 2], FormatError, "cannot read"),
        (lambda _: b"\xff" * 64, FormatError, "cannot read"),
    ],
)
def test_other_files_are_refused(
    tmp_path: Path,
    content: bytes,
    change: Callable[[bytes], bytes],
    error: type[OxiBonsaiError],
    words: str,
) -> None:
    folder = write_folder(tmp_path, change(content))
    with pytest.raises(error, match=words):
        tokenizer_keys(ModelFolder(folder))


@pytest.mark.parametrize("index", ["x", "-1", str(VOCABULARY)])
def test_an_added_token_outside_the_vocabulary_is_refused(
    tmp_path: Path, content: bytes, index: str
) -> None:
    config = {"added_tokens_decoder": {index: {"content": "<turn>"}}}
    folder = write_folder(tmp_path, content, tokenizer_config=config)
    with pytest.raises(FormatError, match="outside the vocabulary"):
        tokenizer_keys(ModelFolder(folder))
