"""Tokenizers side by side with transformers, on the same vocabulary."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import hf_folders
import numpy as np
import pytest

from oxibonsai import AutoTokenizer, RequestError, UnsupportedError
from oxibonsai.hf import PreTrainedTokenizer

transformers = pytest.importorskip("transformers")
torch = pytest.importorskip("torch")
pytestmark = pytest.mark.hf

TEXT = "Once upon a time, na\u00efve \U0001f333s\u00e9 <s>x"
TEXTS = [TEXT, "the", "Hello there!\n"]
PAIR = "and then \u00e9 the end"

CALLS: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "one": ((TEXT,), {}),
    "several": ((TEXTS,), {}),
    "pair": ((TEXT, PAIR), {}),
    "pairs": (([TEXT, "the"], [PAIR, "a"]), {}),
    "padded": ((TEXTS,), {"padding": True}),
    "padded-right": ((TEXTS,), {"padding": "longest", "padding_side": "right"}),
    "padded-multiple": ((TEXTS,), {"padding": True, "pad_to_multiple_of": 8}),
    "max-length": ((TEXTS,), {"padding": "max_length", "max_length": 40, "truncation": True}),
    "cut": ((TEXTS,), {"truncation": True, "max_length": 6}),
    "cut-pair": ((TEXT, PAIR), {"truncation": True, "max_length": 12}),
    "cut-odd-pair": ((TEXT, PAIR), {"truncation": True, "max_length": 13}),
    "cut-odd-pair-turned": ((PAIR, TEXT), {"truncation": True, "max_length": 13}),
    "cut-longer-second": (("a", TEXT), {"truncation": True, "max_length": 12}),
    "cut-short-pair": ((TEXT, "a"), {"truncation": "longest_first", "max_length": 12}),
    "cut-first": ((TEXT, PAIR), {"truncation": "only_first", "max_length": 50}),
    "cut-second": ((TEXT, PAIR), {"truncation": "only_second", "max_length": 50}),
    "plain": ((TEXT,), {"add_special_tokens": False}),
    "offsets": ((TEXTS,), {"return_offsets_mapping": True, "padding": True}),
    "offsets-pair": ((TEXT, PAIR), {"return_offsets_mapping": True}),
    "types": ((TEXT, PAIR), {"return_token_type_ids": True}),
    "special-mask": ((TEXTS,), {"return_special_tokens_mask": True, "padding": True}),
    "no-mask": ((TEXT,), {"return_attention_mask": False}),
    "tensors": ((TEXT,), {"return_tensors": "pt"}),
    "batch-tensors": ((TEXTS,), {"return_tensors": "pt", "padding": True}),
    "arrays": ((TEXTS,), {"return_tensors": "np", "padding": True}),
}


def plain(encoding: Any) -> dict[str, Any]:
    return {
        name: (type(value).__module__, value.tolist()) if hasattr(value, "tolist") else value
        for name, value in encoding.items()
    }


@pytest.mark.parametrize("name", CALLS)
def test_calls(tokenizer: PreTrainedTokenizer, their_tokenizer: Any, name: str) -> None:
    args, options = CALLS[name]
    assert plain(tokenizer(*args, **options)) == plain(their_tokenizer(*args, **options))


def test_encodings_know_where_tokens_come_from(
    tokenizer: PreTrainedTokenizer, their_tokenizer: Any
) -> None:
    options = {"return_offsets_mapping": True, "padding": True}
    ours, theirs = (t(TEXTS, **options) for t in (tokenizer, their_tokenizer))
    for i in range(len(TEXTS)):
        assert ours.tokens(i) == theirs.tokens(i)
        assert ours.sequence_ids(i) == theirs.sequence_ids(i)
    for char in range(len(TEXT)):
        assert ours.char_to_token(0, char) == theirs.char_to_token(0, char)
    token = ours.char_to_token(0, 5)
    assert ours.token_to_chars(0, token) == tuple(theirs.token_to_chars(0, token))
    assert ours.input_ids == theirs.input_ids == ours["input_ids"]
    moved = tokenizer(TEXT, return_tensors="pt").to("cpu")
    assert moved.input_ids.device.type == "cpu"
    assert isinstance(moved, dict)


def test_padding_afterwards(tokenizer: PreTrainedTokenizer, their_tokenizer: Any) -> None:
    for options in ({}, {"return_tensors": "pt"}, {"padding": "max_length", "max_length": 50}):
        ours = tokenizer.pad([tokenizer(t) for t in TEXTS], **options)
        theirs = their_tokenizer.pad([their_tokenizer(t) for t in TEXTS], **options)
        assert plain(ours) == plain(theirs)
        ours, theirs = (t.pad(dict(t(TEXTS)), **options) for t in (tokenizer, their_tokenizer))
        assert plain(ours) == plain(theirs)


def test_decoding(tokenizer: PreTrainedTokenizer, their_tokenizer: Any) -> None:
    ids = tokenizer(TEXTS, padding=True).input_ids
    for skip in (False, True):
        for given in (
            ids[0],
            ids,
            np.array(ids),
            torch.tensor(ids),
            torch.tensor(ids[0]),
            ids[0][3],
        ):
            ours = tokenizer.decode(given, skip_special_tokens=skip)
            assert ours == their_tokenizer.decode(given, skip_special_tokens=skip)
        ours = tokenizer.batch_decode(ids, skip_special_tokens=skip)
        assert ours == their_tokenizer.batch_decode(ids, skip_special_tokens=skip)


def test_vocabulary(tokenizer: PreTrainedTokenizer, their_tokenizer: Any) -> None:
    assert tokenizer.get_vocab() == their_tokenizer.get_vocab()
    assert len(tokenizer) == len(their_tokenizer)
    for name in ("bos_token", "eos_token", "pad_token", "unk_token"):
        assert getattr(tokenizer, name) == getattr(their_tokenizer, name)
        assert getattr(tokenizer, f"{name}_id") == getattr(their_tokenizer, f"{name}_id")
    assert tokenizer.special_tokens_map == dict(their_tokenizer.special_tokens_map)
    assert sorted(tokenizer.all_special_tokens) == sorted(their_tokenizer.all_special_tokens)
    tokens = tokenizer.tokenize(TEXT)
    assert tokens == their_tokenizer.tokenize(TEXT)
    assert tokenizer.convert_tokens_to_ids(tokens) == their_tokenizer.convert_tokens_to_ids(tokens)
    ids = tokenizer(TEXT).input_ids
    assert tokenizer.convert_ids_to_tokens(ids) == their_tokenizer.convert_ids_to_tokens(ids)
    assert tokenizer.convert_ids_to_tokens(ids[0]) == their_tokenizer.convert_ids_to_tokens(ids[0])
    assert tokenizer.convert_tokens_to_ids("the") == their_tokenizer.convert_tokens_to_ids("the")
    assert tokenizer.convert_tokens_to_string(tokens) == TEXT
    for pair in (False, True):
        ours = tokenizer.num_special_tokens_to_add(pair)
        assert ours == their_tokenizer.num_special_tokens_to_add(pair)


def test_special_tokens_can_be_set(hf_folder: Path, their_tokenizer: Any) -> None:
    ours = AutoTokenizer.from_pretrained(hf_folder, padding_side="right")
    ours.pad_token = ours.eos_token
    assert ours.pad_token_id == ours.eos_token_id
    assert ours(["the", TEXT], padding=True).input_ids[0][-1] == ours.eos_token_id
    ours.pad_token_id = 5
    assert ours.pad_token == ours.convert_ids_to_tokens(5)
    assert ours.add_special_tokens({"pad_token": "<pad>"}) == 0
    assert ours.pad_token_id == their_tokenizer.pad_token_id
    with pytest.raises(UnsupportedError, match="no row for a new token"):
        ours.add_tokens(["<new>"])
    with pytest.raises(UnsupportedError, match="not in the vocabulary"):
        ours.pad_token = "<new>"


def test_saved_and_as_transformers(
    tokenizer: PreTrainedTokenizer, their_tokenizer: Any, tmp_path: Path
) -> None:
    paths = tokenizer.save_pretrained(tmp_path / "t")
    assert all(Path(p).is_file() for p in paths)
    saved = transformers.AutoTokenizer.from_pretrained(tmp_path / "t")
    assert saved(TEXTS).input_ids == their_tokenizer(TEXTS).input_ids
    view = tokenizer.transformers_tokenizer
    assert isinstance(view, transformers.PreTrainedTokenizerFast)
    assert view(TEXTS).input_ids == tokenizer(TEXTS).input_ids
    again = pickle.loads(pickle.dumps(tokenizer))
    assert again(TEXTS).input_ids == tokenizer(TEXTS).input_ids


def test_one_with_a_bos_and_a_space_before_texts(tmp_path: Path) -> None:
    case = next(c for c in hf_folders.CASES if c.name == "llama-spm")
    hf_folders.save(case, tmp_path / "m")
    ours = AutoTokenizer.from_pretrained(tmp_path / "m")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "m", padding_side="left")
    for name in ("one", "pair", "padded", "cut", "cut-pair", "special-mask", "types", "plain"):
        args, options = CALLS[name]
        assert plain(ours(*args, **options)) == plain(theirs(*args, **options))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"truncation": "middle"}, "truncation is 'middle'"),
        ({"padding": "sideways"}, "padding is 'sideways'"),
        ({"return_tensors": "tf"}, "return_tensors is 'tf'"),
        ({"return_tensors": "pt"}, "different lengths"),
        ({"truncation": True, "max_length": -1}, "max_length is -1"),
    ],
)
def test_bad_arguments(tokenizer: PreTrainedTokenizer, options: dict, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        tokenizer(TEXTS, **options)
    with pytest.raises(RequestError, match="must be a string"):
        tokenizer([5])
    with pytest.raises(TypeError, match="strides"):
        tokenizer(TEXTS, strides=3)
