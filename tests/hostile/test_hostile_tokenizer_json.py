"""A folder's tokenizer files that are broken or made to do harm: one clear error, and little memory."""

from __future__ import annotations

import base64
import json
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oxibonsai import AutoTokenizer
from oxibonsai.errors import FormatError, OxiBonsaiError, RequestError, UnsupportedError
from oxibonsai.tokenizer.files.loading import open_tokenizer
from oxibonsai.tokenizer.files.vocabulary_keys import vocabulary_keys
from tokenizer_folders import FOLDERS

Change = Callable[[dict[str, Any]], Any]


def with_model(**others: Any) -> Change:
    return lambda document: document["model"].update(others)


def with_part(**others: Any) -> Change:
    return lambda document: document.update(others)


def nested(depth: int) -> dict[str, Any]:
    found: dict[str, Any] = {"type": "NFC"}
    for _ in range(depth):
        found = {"type": "Sequence", "normalizers": [found]}
    return found


def added(**others: Any) -> dict[str, Any]:
    flags = dict.fromkeys(["single_word", "lstrip", "rstrip", "normalized", "special"], False)
    return {"id": 10**6, "content": "<x>", **flags, **others}


def frame(name: str) -> dict[str, Any]:
    part = {"SpecialToken": {"id": name, "type_id": 0}}
    return {"type": "TemplateProcessing", "single": [part], "pair": [part], "special_tokens": {}}


WORDS = {"type": "WordLevel", "unk_token": "a"}
CHANGES: dict[str, Change] = {
    "no model": lambda d: d.pop("model"),
    "a model that is no object": with_part(model=5),
    "another model": with_model(type="Neural"),
    "no vocabulary": with_model(vocab={}, merges=[]),
    "a vocabulary that is no object": with_model(vocab=7),
    "an id that is no number": with_model(vocab={"a": "b"}, merges=[]),
    "a negative id": with_model(vocab={"a": -1}, merges=[]),
    "an id of 31 bits": with_part(model={**WORDS, "vocab": {"a": 2**31 - 1}}),
    "an id of 32 bits": with_part(model={**WORDS, "vocab": {"a": 2**32 - 1}}),
    "an id of 40 bits": with_part(model={**WORDS, "vocab": {"a": 2**40}}),
    "merges of nothing": with_model(merges=[["no", "such"]]),
    "merges that are no pairs": with_model(merges=[5]),
    "scores that are none": with_part(model={"type": "Unigram", "unk_id": 0, "vocab": [["a", "b"]]}),
    "an unknown token that is none": with_part(
        model={"type": "Unigram", "unk_id": 9, "vocab": [["a", 0.0]]}
    ),
    "dropout": with_model(dropout=0.5),
    "a nested normalizer": with_part(normalizer=nested(150)),
    "an unknown normalizer": with_part(normalizer={"type": "Spell"}),
    "a table that is none": with_part(
        normalizer={
            "type": "Precompiled",
            "precompiled_charsmap": base64.b64encode(b"\xff" * 40).decode(),
        }
    ),
    "an expression that is none": with_part(
        pre_tokenizer={
            "type": "Split", "pattern": {"Regex": "(["}, "behavior": "Isolated", "invert": False,
        }
    ),
    "a frame of no token": with_part(post_processor=frame("<none>")),
    "a decoder that is a list": with_part(decoder=[]),
    "added tokens that are none": with_part(added_tokens=[5]),
    "an added token far away": with_part(added_tokens=[added()]),
    "an added token without an id": with_part(added_tokens=[{"content": "<x>"}]),
    "an added token whose id is a text": with_part(added_tokens=[added(id="5")]),
}  # fmt: skip


def changed(folder: Path, change: Change) -> Path:
    FOLDERS["gpt2"].write(folder)
    (folder / "tokenizer_config.json").unlink()
    document = json.loads((folder / "tokenizer.json").read_text())
    change(document)
    (folder / "tokenizer.json").write_text(json.dumps(document))
    return folder


@pytest.mark.parametrize("name", CHANGES)
def test_a_broken_tokenizer_json_is_one_error(name: str, tmp_path: Path) -> None:
    folder = changed(tmp_path, CHANGES[name])
    tracemalloc.start()
    with pytest.raises((FormatError, UnsupportedError), match=str(tmp_path)):
        open_tokenizer(folder).encode("a text \u00e9")
    assert tracemalloc.get_traced_memory()[1] < 64 << 20
    tracemalloc.stop()
    with pytest.raises((FormatError, UnsupportedError)):
        AutoTokenizer.from_pretrained(folder)("a text \u00e9")


CONTENTS = {
    "empty": b"",
    "cut off": b'{"model": {"type": "BPE", "vo',
    "no UTF-8": b'{"model": "\xff"}',
    "a list": b"[]",
    "deep": b'{"normalizer":' * 100_000,
    "deep lists": b'{"normalizer":' + b"[" * 200_000,
}


@pytest.mark.parametrize(
    "file", ["tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"]
)
@pytest.mark.parametrize("name", CONTENTS)
def test_a_damaged_file_is_named(name: str, file: str, tmp_path: Path) -> None:
    folder = FOLDERS["gpt2"].write(tmp_path)
    (folder / file).write_bytes(CONTENTS[name])
    with pytest.raises(FormatError, match=file):
        open_tokenizer(folder)
    with pytest.raises(FormatError, match=file):
        vocabulary_keys(folder, 500)


def test_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"has no tokenizer\.json"):
        open_tokenizer(tmp_path)
    with pytest.raises(FormatError, match=r"has no tokenizer\.json"):
        open_tokenizer(tmp_path / "nowhere")


def test_a_file_larger_than_any_vocabulary_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "tokenizer.json").open("wb") as file:
        file.truncate(1 << 30)  # a hole, which takes no room
    tracemalloc.start()
    with pytest.raises(FormatError, match="no vocabulary is as large"):
        open_tokenizer(tmp_path)
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


def test_ids_beyond_the_rows_of_the_model(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="outside the vocabulary of 100"):
        open_tokenizer(FOLDERS["gpt2"].write(tmp_path), 100)


@pytest.mark.parametrize(
    "template",
    [
        "{% include 'chat_template.jinja' %}",
        "{{ '' if x }",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    ],
)
def test_a_template_that_calls_itself(template: str, tmp_path: Path) -> None:
    folder = FOLDERS["gpt2"].write(tmp_path)
    (folder / "chat_template.jinja").write_text(template)
    with pytest.raises(OxiBonsaiError):
        AutoTokenizer.from_pretrained(folder).apply_chat_template(
            [{"role": "user", "content": "x"}]
        )


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-9, 2**33)
    | st.floats(allow_nan=False)
    | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=6,
)
KEYS = [
    "normalizer",
    "pre_tokenizer",
    "post_processor",
    "decoder",
    "model",
    "added_tokens",
    "version",
]


@given(
    key=st.sampled_from(KEYS),
    value=JSON,
    which=st.none() | st.integers(0, 9),
    name=st.sampled_from(["gpt2", "bert", "t5"]),
)
@settings(max_examples=150, deadline=None)
def test_parts_of_another_type(
    tmp_path_factory: pytest.TempPathFactory, key: str, value: Any, which: int | None, name: str
) -> None:
    """Opened as it says, or refused by an error of ours."""
    folder = tmp_path_factory.mktemp("t")
    document = json.loads(FOLDERS[name].make().to_str())
    if which is not None and isinstance(document[key], dict):
        field = sorted(document[key])[which % len(document[key])]
        document[key][field] = value
    else:
        document[key] = value
    (folder / "tokenizer.json").write_text(json.dumps(document))
    for read in (open_tokenizer, lambda place: vocabulary_keys(place, 600)):
        with suppress(FormatError, UnsupportedError, RequestError):
            read(folder)
