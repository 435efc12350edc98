"""Every key that opening a model reads, with every kind of value: it works, or one typed error says why."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gguf_files
import pytest
from gguf_files import entry, string, u32, u64

import oxibonsai
import tiny_model
from oxibonsai import SamplingParams, _core
from oxibonsai.chat import model_template
from oxibonsai.checkpoint import Checkpoint
from oxibonsai.checkpoint.gguf import GgufModel
from oxibonsai.cli import info
from oxibonsai.errors import OxiBonsaiError
from oxibonsai.server.app import create_app
from oxibonsai.server.engine_backend import served_models
from oxibonsai.server.lifecycle import Lifecycle, Phase
from oxibonsai.server.setting_sources import load_settings

U8, I32, U32, F32, BOOL, STRING, ARRAY, U64, F64 = 0, 5, 4, 6, 7, 8, 9, 10, 12


def array(kind: int, *items: bytes) -> tuple[int, bytes]:
    return ARRAY, u32(kind) + u64(len(items)) + b"".join(items)


NAN = struct.pack("<f", math.nan)
WRONG: dict[str, tuple[int, bytes]] = {
    "true": (BOOL, b"\1"),
    "zero": (U8, b"\0"),
    "minus one": (I32, struct.pack("<i", -1)),
    "huge": (U64, u64(2**64 - 1)),
    "real": (F64, struct.pack("<d", 1.5)),
    "NaN": (F32, NAN),
    "infinite": (F32, struct.pack("<f", math.inf)),
    "no text": (STRING, string("")),
    "a text": (STRING, string("a")),
    "a long text": (STRING, string("{{" * 50_000)),
    "no UTF-8": (STRING, string(b"\xff")),
    "no numbers": array(U32),
    "no texts": array(STRING),
    "numbers": array(U32, u32(1), u32(2)),
    "truths": array(BOOL, b"\1", b"\0"),
    "NaNs": array(F32, NAN, NAN),
    "texts": array(STRING, string("a"), string("a")),
    "broken texts": array(STRING, string(b"\xff"), string(b"\xfe")),
    "arrays": array(ARRAY, u32(U32) + u64(2) + u32(1) + u32(2)),
    "arrays of texts": array(ARRAY, u32(STRING) + u64(1) + string("a")),
}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("base") / "base.gguf"
    tiny_model.write(path)
    return path


@pytest.fixture(scope="module")
def keys(base: Path) -> list[str]:
    """What is read when the file is opened, and what it has beside."""
    asked: dict[str, None] = {}
    get = GgufModel.get

    def noted(self: GgufModel, key: str, default: Any = None) -> Any:
        asked[key] = None
        return get(self, key, default)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GgufModel, "get", noted)
        assert use(base) is None
    asked |= dict.fromkeys(["general.architecture", "general.type", "tokenizer.ggml.model"])
    asked |= dict.fromkeys(["tokenizer.chat_template", "general.unknown"])
    return list(asked | dict.fromkeys(_core.GgufFile(str(base)).keys()))


def write(base: Path, path: Path, key: str, kind: int, value: bytes) -> None:
    """The base with one key set to a value that its own writers would not write."""
    donor = path.with_suffix(".donor")
    donor.write_bytes(gguf_files.gguf((entry(key, kind, value),)))
    odd, file = _core.GgufFile(str(donor)), _core.GgufFile(str(base))
    with path.open("wb") as out:
        writer = _core.GgufWriter(out)
        for own in file.keys():  # noqa: SIM118 - not a dict
            if own != key:
                writer.copy_metadata(file, own)
        writer.copy_metadata(odd, key)
        for tensor in file.tensors:
            writer.add_tensor(tensor.name, tensor.shape, tensor.gguf_id, tensor.nbytes)
        writer.write_header()
        for tensor in file.tensors:
            writer.write_tensor(file.tensor_bytes(tensor.name))
        writer.close()
    donor.unlink()


def use(path: Path) -> str | None:
    """Open a file in every way; the errors that are told, None if there are none."""
    told = [attempt(lambda: json.dumps(info.describe(Checkpoint(path)), allow_nan=False))]
    checkpoint = attempt(lambda: Checkpoint(path))
    if isinstance(checkpoint, Checkpoint):
        told += [
            attempt(lambda: checkpoint.architecture),
            attempt(lambda: checkpoint.has_tokenizer),
        ]
        told.append(attempt(lambda: checkpoint.trained_context))
    told.append(attempt(lambda: generate(path)))
    errors = [str(e) for e in told if isinstance(e, OxiBonsaiError)]
    return "; ".join(errors) or None


def attempt(action: Callable[[], Any]) -> Any:
    try:
        return action()
    except OxiBonsaiError as e:
        return e


def generate(path: Path) -> None:
    engine = oxibonsai.load(path, threads=1, parity="off", ctx_size=64, mmproj=False)
    if engine.has_tokenizer:
        engine.submit(engine.tokenizer.encode("ab"), SamplingParams(max_tokens=1))
        engine.step()
    model_template(engine)


@pytest.fixture(scope="module")
def files(base: Path, keys: list[str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A file for each key and value."""
    folder = tmp_path_factory.mktemp("wrong")
    made = {}
    for i, key in enumerate(keys):
        for j, (name, value) in enumerate(WRONG.items()):
            path = folder / f"{i}-{j}.gguf"
            write(base, path, key, *value)
            made[f"{key} = {name}"] = path
    return made


def untyped(files: dict[str, Path], action: Callable[[Path], Any]) -> Iterator[str]:
    for name, path in files.items():
        try:
            action(path)
        except Exception as e:
            yield f"{name}: {e!r:.200}"


@pytest.mark.filterwarnings("ignore")
def test_each_key_of_a_wrong_kind_is_a_typed_error_or_read(files: dict[str, Path]) -> None:
    assert len(files) > 25 * len(WRONG)
    assert list(untyped(files, use)) == []


def test_the_server_lists_and_shows_each_file(
    files: dict[str, Path], tmp_path: Path, base: Path
) -> None:
    folder = next(iter(files.values())).parent
    settings = load_settings({"state_dir": tmp_path, "models_dir": folder, "threads": 1})
    models = served_models(settings, Lifecycle())
    app = create_app(settings, models)
    app.lifecycle.advance(Phase.READY)
    client = app.test_client()
    try:
        listed = client.get("/api/tags")
        assert listed.status_code == 200
        assert len(json.loads(listed.text, parse_constant=pytest.fail)["models"]) == len(files)
        odd = []
        for name, path in files.items():
            for verbose in (False, True):
                shown = client.post("/api/show", json={"model": path.stem, "verbose": verbose})
                json.loads(shown.text, parse_constant=pytest.fail)
                if shown.status_code not in (200, 503):
                    odd.append(f"{name}: {shown.status_code}")
        assert odd == []
    finally:
        models.close()
        app.store.close()
