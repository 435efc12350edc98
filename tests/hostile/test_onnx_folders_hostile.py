"""Folders with ONNX models that lie or are damaged: converted whole, or refused with nothing left."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx_models
import pytest
from mutations import JUNK, LittleMemory, edits, flips, prefixes, refused

from oxibonsai import _core
from oxibonsai.convert.language_model import convert

pytest.importorskip("onnx", reason="needs onnx")
pytest.importorskip("transformers", reason="needs transformers and torch")

pytestmark = pytest.mark.hf

Change = Callable[[Any], None]


class Model:
    """A folder that converts, whose ONNX file is rewritten for each lie."""

    def __init__(self, folder: Path) -> None:
        import onnx

        self.folder = folder / "model"
        self.out = folder / "out" / "m.gguf"
        self.out.parent.mkdir()
        graph, _ = onnx_models.build(self.folder, "genai", 4, 32, zeros=True)
        self.file = self.folder / "model.onnx"
        graph.save(self.file, external=True)
        self.whole = self.file.read_bytes()
        self.proto = onnx.load(self.file, load_external_data=False)

    def with_change(self, change: Change) -> bytes:
        """The file's bytes after a change of its message."""
        proto = type(self.proto)()
        proto.CopyFrom(self.proto)
        change(proto)
        data: bytes = proto.SerializeToString()
        return data

    def converts(self, data: bytes, what: str) -> bool:
        """Whether the file does; what is written is whole, and what is refused leaves nothing."""
        self.file.write_bytes(data)
        done = not refused(lambda: convert(self.folder, self.out), what)
        assert os.listdir(self.out.parent) == ([self.out.name] if done else []), what
        if done:
            file = _core.GgufFile(str(self.out))
            for t in file.tensors:
                assert np.isfinite(_core.decode(t.quant_type, file.tensor_bytes(t.name))).all(), (
                    what
                )
            self.out.unlink()
        return done


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return Model(tmp_path_factory.mktemp("onnx"))


def _product(proto: Any) -> Any:
    return next(n for n in proto.graph.node if n.op_type == "MatMulNBits")


def _tensor(proto: Any) -> Any:
    name = _product(proto).input[1]
    return next(t for t in proto.graph.initializer if t.name == name)


def lies(model: Model) -> Iterator[tuple[str, Change]]:
    """Changes that make one product wrong."""
    yield from _attribute_lies(model)
    yield from _input_lies(model)
    yield from _tensor_lies(model)


def _attribute_lies(model: Model) -> Iterator[tuple[str, Change]]:
    numbers = (-(2**63), -1, 0, 1, 3, 7, 48, 2**20, 2**31, 2**32 + 32, 2**62, 2**63 - 1)
    for i, attribute in enumerate(_product(model.proto).attribute):
        for value in numbers:
            yield (
                f"{attribute.name} {value}",
                lambda p, i=i, value=value: setattr(_product(p).attribute[i], "i", value),
            )
        yield f"{attribute.name} left out", lambda p, i=i: _product(p).attribute.pop(i)
        yield (
            f"{attribute.name} a text",
            lambda p, i=i: (
                setattr(_product(p).attribute[i], "type", 3),
                setattr(_product(p).attribute[i], "s", b"x"),
            ),
        )


def _input_lies(model: Model) -> Iterator[tuple[str, Change]]:
    count = len(_product(model.proto).input)
    for i in range(1, count):
        for name in ("", "nothing", "\0", "x", _product(model.proto).input[1 + i % (count - 1)]):
            yield (
                f"input {i} is {name!r}",
                lambda p, i=i, name=name: _product(p).input.__setitem__(i, name),
            )
        yield f"only {i} inputs", lambda p, i=i: _product(p).input.__delitem__(slice(i, None))


def _tensor_lies(model: Model) -> Iterator[tuple[str, Change]]:
    for kind in (0, 1, 3, 7, 9, 11, 16, 17, 21, 22, 23, 99, 2**31 - 1):
        yield (
            f"elements of type {kind}",
            lambda p, kind=kind: setattr(_tensor(p), "data_type", kind),
        )
    shapes = ((), (0,), (-1,), (2**62, 4), (2**63 - 1, 2), (1, 1, 1), (128,), (2**31,), (1,) * 40)
    for shape in shapes:
        yield f"shape {shape[:4]}", lambda p, shape=shape: _reshape(_tensor(p), shape)
    for key in ("location", "offset", "length"):
        for value in {str(v) for v in JUNK} | {"../data.bin", "/etc/passwd", "data.bin/..", "-0"}:
            yield f"{key} {value[:24]!r}", lambda p, key=key, value=value: _external(p, key, value)
        yield f"no {key}", lambda p, key=key: _external(p, key, None)


def _reshape(tensor: Any, shape: tuple[int, ...]) -> None:
    del tensor.dims[:]
    tensor.dims.extend(shape)


def _external(proto: Any, key: str, value: str | None) -> None:
    entries = _tensor(proto).external_data
    for i in reversed(range(len(entries))):
        if entries[i].key == key:
            del entries[i]
    if value is not None:
        entries.add(key=key, value=value)


def test_the_model_converts(model: Model) -> None:
    assert model.converts(model.whole, "unchanged")


def test_lies_are_refused(model: Model) -> None:
    cases = list(lies(model))
    assert len(cases) >= 90
    with LittleMemory():
        converted = [name for name, c in cases if model.converts(model.with_change(c), name)]
    assert len(converted) < len(cases) / 4
    harmful = ("input", "shape", "type", "location", "K ", "N ")
    # Zero points may be left out; an attribute that calls its number a text still has the number.
    harmless = {"input 3 is ''", "K a text", "N a text"}
    assert {n for n in converted if n.startswith(harmful)} <= harmless


def test_damaged_files_are_refused_or_harmless(model: Model) -> None:
    whole = model.whole
    size = len(whole)
    random = np.random.default_rng(9)
    flipped = list(flips(whole, size))
    damaged = [flipped[i] for i in random.choice(len(flipped), 600, replace=False)]
    damaged += list(edits(whole, 400, seed=6))
    damaged += list(prefixes(whole, size))[:: max(1, size // 300)]
    with LittleMemory():
        for i, data in enumerate(damaged):
            model.converts(data, str(i))


def test_external_data_that_ends_early_is_refused(model: Model) -> None:
    data = model.folder / "data.bin"
    whole = data.read_bytes()
    for length in (0, 1, len(whole) // 2, len(whole) - 1):
        data.write_bytes(whole[:length])
        assert not model.converts(model.whole, f"{length} bytes")
    data.write_bytes(whole)
