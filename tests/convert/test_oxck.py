"""OXCK and back: the values and keys of whole models, which then give the same logits."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import oxibonsai
from oxibonsai import RequestError, _core
from oxibonsai.checkpoint.metadata import as_read
from oxibonsai.checkpoint.oxck_file import header, open_oxck, record_head
from oxibonsai.cli.main import _group

FILE_TYPE = "general.file_type"


def convert(source: Path, out: Path, *options: str) -> None:
    line = ["convert", str(source), str(out), *options]
    done = CliRunner().invoke(_group(), line, catch_exceptions=False)
    assert done.exit_code == 0, done.output


def assert_same_model(before: Path, after: Path) -> None:
    """All keys with their types, and all values as what ggml decodes them to."""
    old, new = _core.GgufFile(str(before)), _core.GgufFile(str(after))
    assert [k for k in old.keys() if k != FILE_TYPE] == [k for k in new.keys() if k != FILE_TYPE]  # noqa: SIM118
    for key in old.keys():  # noqa: SIM118 - not a dict
        if key == FILE_TYPE:
            assert new.get(key) == 0
            continue
        assert new.metadata_type(key) == old.metadata_type(key)
        assert np.array_equal(new.get(key), old.get(key)), key
        assert np.asarray(new.get(key)).dtype == np.asarray(old.get(key)).dtype, key
    assert [(t.name, t.shape) for t in new.tensors] == [(t.name, t.shape) for t in old.tensors]
    for tensor in old.tensors:
        values = _core.decode(tensor.quant_type, old.tensor_bytes(tensor.name))
        assert new.tensor(tensor.name).quant_type == "F32"
        assert new.tensor_bytes(tensor.name).tobytes() == values.tobytes(), tensor.name


def test_a_model_there_and_back_has_its_keys_and_values(tiny_path: Path, tmp_path: Path) -> None:
    convert(tiny_path, tmp_path / "m.oxck")
    convert(tmp_path / "m.oxck", tmp_path / "m.gguf")
    assert_same_model(tiny_path, tmp_path / "m.gguf")
    engines = [oxibonsai.load(p, parity="off") for p in (tiny_path, tmp_path / "m.gguf")]
    old, new = (e.logits([5, 6, 7]) for e in engines)
    # One-bit products round activations to int8, float32 products don't.
    assert np.corrcoef(old.ravel(), new.ravel())[0, 1] > 0.99
    convert(tmp_path / "m.gguf", tmp_path / "again.oxck", "--type", "f32")
    assert (tmp_path / "again.oxck").read_bytes() == (tmp_path / "m.oxck").read_bytes()


@pytest.mark.slow
def test_smollm2_there_and_back_has_its_keys_and_values(smollm2_path: Path, tmp_path: Path) -> None:
    convert(smollm2_path, tmp_path / "m.oxck")
    convert(tmp_path / "m.oxck", tmp_path / "m.gguf")
    assert_same_model(smollm2_path, tmp_path / "m.gguf")


def test_the_bytes_are_those_of_the_description(tiny_path: Path, tmp_path: Path) -> None:
    """Read by hand, with struct alone."""
    convert(tiny_path, tmp_path / "m.oxck")
    data = (tmp_path / "m.oxck").read_bytes()
    magic, version, flags, count, length = struct.unpack_from("<4sIQQI", data)
    assert (magic, version, flags) == (b"OXCK", 1, 0)
    file = _core.GgufFile(str(tiny_path))
    assert count == len(file.tensors)
    at = 28 + length
    for tensor in file.tensors:
        (size,) = struct.unpack_from("<I", data, at)
        name = data[at + 4 : at + 4 + size].decode()
        at += 4 + size
        (ndim,) = struct.unpack_from("<I", data, at)
        *shape, values = struct.unpack_from(f"<{ndim}QQ", data, at + 4)
        at += 4 + 8 * ndim + 8
        found = np.frombuffer(data, "<f4", values, at)
        at += 4 * values
        assert (name, tuple(shape)) == (tensor.name, tuple(tensor.shape))
        assert np.array_equal(
            found, _core.decode(tensor.quant_type, file.tensor_bytes(name)).ravel()
        )
    assert at == len(data)


KEY_VALUES = st.one_of(
    st.tuples(st.integers(0, 2**32 - 1), st.just("u32")),
    st.tuples(st.integers(-(2**63), 2**63 - 1), st.just("i64")),
    st.tuples(st.integers(0, 255), st.just("u8")),
    st.tuples(st.floats(width=32), st.just("f32")),
    st.tuples(st.floats(), st.just("f64")),
    st.tuples(st.booleans(), st.just("bool")),
    st.tuples(st.text(), st.just("str")),
    st.tuples(st.lists(st.text(), max_size=5), st.just("arr[str]")),
    st.tuples(st.lists(st.integers(-(2**31), 2**31 - 1), max_size=5), st.just("arr[i32]")),
    st.tuples(st.lists(st.floats(width=32), max_size=5), st.just("arr[f32]")),
)
NAMES = st.text(min_size=1, max_size=30)
TENSORS = arrays.arrays(
    np.float32, arrays.array_shapes(max_dims=4, max_side=4), elements=st.floats(width=32)
)


@settings(deadline=None)
@given(
    keys=st.dictionaries(NAMES, KEY_VALUES, max_size=6),
    tensors=st.dictionaries(NAMES, TENSORS, max_size=4),
)
def test_whatever_is_written_is_read(keys, tensors, tmp_path_factory) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path_factory.mktemp("oxck") / "m.oxck"
    parts = [header(keys, len(tensors))]
    for name, values in tensors.items():
        parts += [*record_head(name, values.shape), values.astype("<f4").tobytes()]
    path.write_bytes(b"".join(parts))
    model = open_oxck(path)
    assert model.keys() == list(keys)
    for key, entry in keys.items():
        assert model.metadata_type(key) == entry[1]
        found, wanted = model.get(key), as_read(*entry)
        assert repr(found) == repr(wanted)
    assert [t.name for t in model.tensors] == list(tensors)
    for name, values in tensors.items():
        assert model.tensor(name).shape == values.shape
        assert model.tensor_bytes(name).tobytes() == values.tobytes()


@pytest.mark.parametrize("options", [("--type", "q4_0"), ("--mmproj",), ("--base", "x")], ids=str)
def test_what_oxck_does_not_hold_is_refused(
    options: tuple[str, ...], tiny_path: Path, tmp_path: Path
) -> None:
    line = ["convert", str(tiny_path), str(tmp_path / "m.oxck"), *options]
    with pytest.raises(RequestError):
        CliRunner().invoke(_group(), line, catch_exceptions=False)
    assert not (tmp_path / "m.oxck").exists()


def test_a_model_is_not_written_over_itself(tiny_path: Path, tmp_path: Path) -> None:
    place = tmp_path / "m.oxck"
    convert(tiny_path, place)
    before = place.read_bytes()
    with pytest.raises(RequestError, match="both OXCK files"):
        CliRunner().invoke(_group(), ["convert", str(place), str(place)], catch_exceptions=False)
    assert place.read_bytes() == before
