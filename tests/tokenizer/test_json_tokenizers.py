"""Folders with a ``tokenizer.json``: ids, offsets and texts are those of `tokenizers` and transformers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as FastTokenizer

import tokenizer_folders
from oxibonsai.errors import RequestError
from oxibonsai.structured.bridge import special_texts
from oxibonsai.tokenizer import StreamDecoder, Tokenizer, pieces
from oxibonsai.tokenizer.files.loading import open_tokenizer
from tokenizer_folders import FOLDERS

NAMES = list(FOLDERS)


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the folders lie, by their names."""
    place = tmp_path_factory.mktemp("tokenizers")
    for name, folder in FOLDERS.items():
        folder.write(place / name)
    return place


@pytest.fixture(scope="session")
def opened(place: Path) -> dict[str, Tokenizer]:
    """Our tokenizer of each folder."""
    return {name: open_tokenizer(place / name) for name in FOLDERS}


@pytest.mark.parametrize("name", NAMES)
def test_ids_and_offsets_are_those_of_tokenizers(opened: dict[str, Tokenizer], name: str) -> None:
    ours, theirs = opened[name], FOLDERS[name].make()
    for text in FOLDERS[name].texts():
        expected = theirs.encode(text, add_special_tokens=False)
        assert ours.encode(text, add_special=False, parse_special=True) == expected.ids, text
        assert ours.encode_with_offsets(text, parse_special=True) == (
            expected.ids,
            expected.offsets,
        )
        framed = theirs.encode(text).ids
        if text.strip():
            assert ours.encode(text, parse_special=True) == framed, text
        assert ours.decode(framed, skip_special=False) == theirs.decode(framed, False), text
        assert ours.decode(framed) == theirs.decode(framed), text


@pytest.mark.parametrize("name", NAMES)
@given(text=st.text(max_size=60))
@settings(max_examples=40)
def test_random_texts(opened: dict[str, Tokenizer], name: str, text: str) -> None:
    ours, theirs = opened[name], FOLDERS[name].make()
    ids = ours.encode(text, add_special=False, parse_special=True)
    assert ids == theirs.encode(text, add_special_tokens=False).ids
    assert ours.decode(ids) == theirs.decode(ids)
    if name in ("llama3", "gpt2", "roberta", "gemma"):  # whose tokens are the bytes of the text
        assert ours.decode(ours.encode(text, add_special=False)) == text


@pytest.mark.parametrize("name", NAMES)
def test_a_text_from_a_user_makes_no_special_token(opened: dict[str, Tokenizer], name: str) -> None:
    ours, theirs = opened[name], FastTokenizer.from_str(FOLDERS[name].make().to_str())
    theirs.encode_special_tokens = True
    forged = 0
    for text in FOLDERS[name].texts():
        ids, expected = (
            ours.encode(text, add_special=False),
            theirs.encode(text, add_special_tokens=False),
        )
        assert not set(ids) & ours.special_ids - {ours.unk_id}, text
        if set(expected.ids) & ours.special_ids - {ours.unk_id}:
            forged += 1  # Unigram takes a special token for a piece of a text
        else:
            assert ids == expected.ids
    assert forged == 0 or name in ("t5", "xlm_r")


@pytest.mark.parametrize("name", [n for n in NAMES if n not in ("bert", "word_level", "clip")])
def test_a_stream_gives_the_text_of_the_decoder(opened: dict[str, Tokenizer], name: str) -> None:
    ours = opened[name]
    for text in FOLDERS[name].texts():
        ids = ours.encode(text, add_special=False, parse_special=True)
        stream = StreamDecoder(ours)
        assert "".join([*map(stream.feed, ids), stream.flush()]) == ours.decode(ids), text


def test_the_bytes_of_tokens(opened: dict[str, Tokenizer]) -> None:
    def bytes_of(name: str, token: str) -> bytes:
        tokenizer = opened[name]
        return tokenizer.token_bytes(tokenizer.vocabulary.texts.index(token))

    assert bytes_of("qwen2", "\u0120the") == b" the"
    assert bytes_of("qwen2", "<|im_end|>") == b"<|im_end|>"
    assert bytes_of("gemma", "<0xE4>") == b"\xe4"
    assert bytes_of("gemma", "\u2581the") == b" the"
    assert bytes_of("mistral", "\u2581") == b" "
    assert bytes_of("bert", "##s") == b"s"
    assert bytes_of("bert", "the") == b" the"
    assert bytes_of("clip", "the</w>") == b"the "
    assert bytes_of("word_level", "the") == b" the"
    with pytest.raises(RequestError, match="outside the vocabulary"):
        opened["gemma"].token_bytes(10_000)


def test_what_ends_and_what_is_no_text(opened: dict[str, Tokenizer]) -> None:
    qwen = opened["qwen2"]
    texts = qwen.vocabulary.texts
    assert {texts[i] for i in qwen.eos_ids} == {"<|im_end|>", "<|endoftext|>"}
    assert (qwen.bos_id, qwen.pad_id) == (None, texts.index("<|endoftext|>"))
    assert not qwen.add_bos
    assert texts.index("<tool_call>") not in qwen.special_ids
    assert set(special_texts(qwen).values()) == {
        "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tool_call>",
    }  # fmt: skip
    assert opened["llama3"].add_bos
    assert opened["t5"].vocabulary.add_eos
    assert opened["clip"].frame() == [(1, 0), (2, 0), (None, 0), (3, 0)]


def test_every_eos_of_the_generation_config_ends(place: Path, tmp_path: Path) -> None:
    folder = FOLDERS["qwen2"].write(tmp_path)
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [1, 2, 3, 4]}))
    assert open_tokenizer(folder).eos_ids >= {1, 2, 3, 4}


@pytest.mark.parametrize("name", NAMES)
def test_pieces_have_the_ids_of_the_whole(
    opened: dict[str, Tokenizer], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = opened[name]
    text = " ".join([*FOLDERS[name].texts(), *tokenizer_folders.CORPUS])
    counted: list[int] = []
    whole = ours.encode(text, parse_special=True)
    alone = ours.encode(text)
    monkeypatch.setattr(pieces, "PIECE", 1)
    assert ours.encode(text, parse_special=True, watch=counted.append) == whole
    assert ours.encode(text) == alone
    uncut = ("roberta", "xlm_r", "bert", "word_level", "clip")  # see docs/tokenizers.md
    assert (len(set(counted)) > 20) == (name not in uncut)


def test_a_text_has_never_fewer_tokens_than_its_length_says(opened: dict[str, Tokenizer]) -> None:
    jamo = "\u1112\u1161\u11ab" * 300
    for name, ours in opened.items():
        for text in (*FOLDERS[name].texts(), jamo, "the" * 500):
            assert ours.least_tokens(text) <= len(ours.encode(text)), (name, text)
    assert opened["qwen2"].least_tokens("the world" * 1000) > 100


def test_the_rows_of_a_model_are_filled_up(place: Path) -> None:
    ours = open_tokenizer(place / "qwen2", 500)
    assert ours.vocab_size == 500
    assert ours.token_bytes(499) == b"[PAD499]"
    assert ours.decode([499]) == ""
