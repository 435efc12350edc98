"""save_pretrained of vocabularies: the library reads them as the model does, and they convert back."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import gguf
import pytest
from tokenizers import Tokenizer as FastTokenizer

import bert_folder
import gguf_copy
from oxibonsai import UnsupportedError
from oxibonsai.checkpoint import Checkpoint
from oxibonsai.convert.language_model import convert
from oxibonsai.export import save_model
from oxibonsai.hf import SentenceTransformer
from oxibonsai.tokenizer import Tokenizer
from oxibonsai.tokenizer.pre_tokenizers import COMPOSES_KEY
from unigram_folder import trained, write

pytest.importorskip("transformers", reason="needs transformers and torch")
import dense_models as dm
import expert_models as em
import recurrent_models as rm
import remote_folders
import transformers

pytestmark = pytest.mark.hf

TEXTS = [
    "Hello world!",
    "unbelievable  teas, a b\n",
    "The caf\u00e9  \u4eca\u65e5",
    " tea",
    "Hell, low\n\n",
]


def vocabulary_keys(path: Path) -> dict[str, object]:
    fields = gguf.GGUFReader(path).fields
    return {k: f.contents() for k, f in fields.items() if k.startswith("tokenizer.")}


def round_trip(folder: Path) -> tuple[Tokenizer, object]:
    """Our tokenizer of a folder's model, and the library's of what is saved of it."""
    path, again = folder.parent / "m.gguf", folder.parent / "again.gguf"
    convert(folder, path, dtype="f32")
    save_model(Checkpoint(path), folder.parent / "saved")
    convert(folder.parent / "saved", again, dtype="f32")
    assert vocabulary_keys(again) == vocabulary_keys(path)
    theirs = transformers.AutoTokenizer.from_pretrained(folder.parent / "saved")
    return Tokenizer.from_gguf(Checkpoint(path).file), theirs


@pytest.mark.parametrize("composes", [None, False])
def test_a_vocabulary_that_composes_is_saved_with_its_normalizer(
    tiny_path: Path, tmp_path: Path, composes: bool | None
) -> None:
    """As Qwen's; unless the file says that it does not."""
    path = tmp_path / "model.gguf"
    stated = {} if composes is None else {COMPOSES_KEY: (composes, "bool")}
    gguf_copy.copy(tiny_path, path, keys=stated)
    save_model(Checkpoint(path), tmp_path / "saved")
    theirs = FastTokenizer.from_file(str(tmp_path / "saved" / "tokenizer.json"))
    convert(tmp_path / "saved", tmp_path / "again.gguf", dtype="f32")
    for text in ("cafe\u0301", "\u1112\u1161\u11ab", "\uff21\u212a"):
        ids = theirs.encode(text, add_special_tokens=False).ids
        for file in (path, tmp_path / "again.gguf"):
            assert Tokenizer.from_gguf(Checkpoint(file).file).encode(text) == ids
    assert COMPOSES_KEY not in vocabulary_keys(tmp_path / "again.gguf") or composes is False


def test_word_pieces(tmp_path: Path) -> None:
    ours, theirs = round_trip(bert_folder.write(tmp_path / "model"))
    for text in TEXTS:
        assert theirs(text)["input_ids"] == ours.encode(text)  # type: ignore[operator]
    pair = theirs("tea", "world")  # type: ignore[operator]
    first, last = ours.encode("tea"), ours.encode("world")
    assert pair["input_ids"] == [*first, *last[1:]]
    assert pair["token_type_ids"] == [0] * len(first) + [1] * (len(last) - 1)


def test_vectors_are_those_of_the_model(tmp_path: Path) -> None:
    model = SentenceTransformer(bert_folder.write(tmp_path / "model"))
    model.save_pretrained(tmp_path / "saved")
    again = SentenceTransformer(tmp_path / "saved")
    assert again.encode(TEXTS).tobytes() == model.encode(TEXTS).tobytes()


def test_unigrams_with_two_separators(tmp_path: Path) -> None:
    folder = write(tmp_path / "model", json.loads(trained().to_str()))
    ours, theirs = round_trip(folder)
    for text in TEXTS:
        assert theirs(text)["input_ids"] == ours.encode(text)  # type: ignore[operator]
    assert theirs("tea", "hot")["input_ids"] == trained().encode("tea", "hot").ids  # type: ignore[operator]


def test_characters_with_merges(tmp_path: Path) -> None:
    case = next(c for c in em.CASES if c.name == "gemma4-shared")
    size = {"vocab_size": 300, "vocab_size_per_layer_input": 300}
    dm.save(dataclasses.replace(case, options={**case.options, **size}), tmp_path / "model")
    rm.write_tokenizer(tmp_path / "model", spm=True)
    ours, theirs = round_trip(tmp_path / "model")
    for text in TEXTS:
        assert theirs(text)["input_ids"] == ours.encode(text)  # type: ignore[operator]


def test_the_file_of_rwkvs_vocabulary(tmp_path: Path) -> None:
    case = next(f for f in remote_folders.FOLDERS if f.name == "rwkv7")
    wide = {
        name: (300, *shape[1:]) if shape[0] == remote_folders.VOCABULARY else shape
        for name, shape in case.outside.items()
    }
    config = {**case.config, "vocab_size": 300}
    remote_folders.save(dataclasses.replace(case, outside=wide, config=config), tmp_path / "model")
    tokens = [*(bytes([b]) for b in range(256)), b"'\"", b"\\'", b"\n\n", "\u4eca".encode()]
    lines = [f"{i} {token!r} {len(token)}\n" for i, token in enumerate(tokens, 1)]
    name = "rwkv_vocab_v20230424.txt"
    (tmp_path / "model" / name).write_text("".join(lines))
    convert(tmp_path / "model", tmp_path / "m.gguf", dtype="f32")
    save_model(Checkpoint(tmp_path / "m.gguf"), tmp_path / "saved")
    assert (tmp_path / "saved" / name).read_text() == "".join(lines)
    convert(tmp_path / "saved", tmp_path / "again.gguf", dtype="f32")
    assert vocabulary_keys(tmp_path / "again.gguf") == vocabulary_keys(tmp_path / "m.gguf")


def test_a_vocabulary_without_a_form_is_refused(tmp_path: Path) -> None:
    convert(bert_folder.write(tmp_path / "model"), tmp_path / "m.gguf", dtype="f32")
    gguf_copy.copy(
        tmp_path / "m.gguf", tmp_path / "x.gguf", keys={"tokenizer.ggml.pre": ("mecab", "str")}
    )
    pytest.importorskip("fugashi", reason="needs the extra ja")
    with pytest.raises(UnsupportedError, match=r"'mecab' has no tokenizer.json"):
        save_model(Checkpoint(tmp_path / "x.gguf"), tmp_path / "saved")
    assert not (tmp_path / "saved").exists()


def test_a_folder_with_folders_gets_all_files_or_none(tmp_path: Path) -> None:
    model = SentenceTransformer(bert_folder.write(tmp_path / "model"))
    taken = tmp_path / "saved" / "modules.json"
    taken.mkdir(parents=True)
    with pytest.raises(IsADirectoryError):
        model.save_pretrained(tmp_path / "saved")
    assert [*(tmp_path / "saved").rglob("*")] == [taken]
    taken.rmdir()
    for _ in range(2):  # the second time, over the files that are there
        model.save_pretrained(tmp_path / "saved")
    assert (tmp_path / "saved" / "1_Pooling" / "config.json").is_file()
    assert not [*(tmp_path / "saved").glob("*.part")]
