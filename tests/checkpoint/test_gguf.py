"""GGUF files written by others are read, and ours are read by others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oxibonsai import _core
from oxibonsai.errors import FormatError, RequestError, UnsupportedError
from oxibonsai.files.whole_file import written_whole


def test_a_file_of_the_gguf_package_is_read(tmp_path: Path) -> None:
    path = tmp_path / "theirs.gguf"
    values = np.arange(96, dtype=np.float32).reshape(3, 32)
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_uint32("a.u32", 7)
    writer.add_float32("a.f32", 1.5)
    writer.add_bool("a.bool", True)
    writer.add_string("a.str", "héllo")
    writer.add_array("a.ints", [1, -2, 3])
    writer.add_array("a.strings", ["x", "", "ü"])
    writer.add_tensor("values", values)
    writer.add_tensor("halves", values.astype(np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    file = _core.GgufFile(str(path))
    assert file.version == 3
    assert [file.get(f"a.{k}") for k in ("u32", "f32", "bool", "str")] == [7, 1.5, True, "héllo"]
    assert file.get("a.ints").tolist() == [1, -2, 3]
    assert file.get("a.strings") == ["x", "", "ü"]
    assert file.get("absent", 5) == 5
    assert file.metadata_type("a.u32") == "u32"
    assert file.tensor("values").shape == (3, 32)
    assert np.array_equal(file.tensor_bytes("values").view(np.float32), values.ravel())
    assert file.tensor("halves").quant_type == "F16"


ENTRIES = {
    "n.u8": (255, "u8"),
    "n.i16": (-300, "i16"),
    "n.u64": (2**63, "u64"),
    "n.f64": (1e300, "f64"),
    "n.bool": (True, "bool"),
    "n.str": ("text é", "str"),
    "n.list": ([1.5, -2.5], "arr[f32]"),
    "n.texts": (["a", "b c"], "arr[str]"),
}


def write(
    path: Path,
    entries: dict[str, tuple[Any, str]],
    tensors: list[tuple[str, tuple[int, ...], int, bytes]],
) -> None:
    writer = _core.GgufWriter(path.open("wb"))
    for key, (value, kind) in entries.items():
        writer.add_metadata(key, value, kind)
    for name, shape, gguf_id, data in tensors:
        writer.add_tensor(name, shape, gguf_id, len(data))
    writer.write_header()
    for _, _, _, data in tensors:
        writer.write_tensor(np.frombuffer(data, dtype=np.uint8))
    writer.close()


def test_our_files_are_read_by_the_gguf_package(tmp_path: Path) -> None:
    path = tmp_path / "ours.gguf"
    values = np.arange(64, dtype=np.float32).reshape(2, 32)
    write(
        path,
        {"general.architecture": ("llama", "str"), **ENTRIES},
        [("t", (2, 32), 0, values.tobytes())],
    )
    reader = gguf.GGUFReader(str(path))
    assert reader.fields["n.u64"].contents() == 2**63
    assert reader.fields["n.texts"].contents() == ["a", "b c"]
    assert np.array_equal(reader.tensors[0].data, values)
    ours = _core.GgufFile(str(path))
    for key, (value, _) in ENTRIES.items():
        got = ours.get(key)
        assert (got.tolist() if isinstance(got, np.ndarray) else got) == value


def test_the_same_calls_give_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write(tmp_path / name, ENTRIES, [("t", (32,), 0, bytes(128))])
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_an_unfinished_file_never_appears(tmp_path: Path) -> None:
    def unfinished() -> None:
        with written_whole(tmp_path / "x.gguf") as file:
            writer = _core.GgufWriter(file)
            writer.add_tensor("t", (32,), 0, 128)
            writer.write_header()
            writer.close()

    with pytest.raises(RequestError, match="not every tensor"):
        unfinished()
    assert list(tmp_path.iterdir()) == []


@settings(max_examples=50, deadline=None)
@given(
    st.dictionaries(
        st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=20),
        st.one_of(
            st.text(max_size=20),
            st.integers(-(2**63), 2**63 - 1),
            st.lists(st.text(max_size=5), max_size=4),
        ),
        max_size=6,
    )
)
def test_any_metadata_survive(
    tmp_path_factory: pytest.TempPathFactory, entries: dict[str, Any]
) -> None:
    kinds = {str: "str", int: "i64", list: "arr[str]"}
    entries.pop("general.alignment", None)
    path = tmp_path_factory.mktemp("gguf") / "x.gguf"
    write(path, {k: (v, kinds[type(v)]) for k, v in entries.items()}, [])
    file = _core.GgufFile(str(path))
    assert {k: file.get(k) for k in file.keys()} == entries  # noqa: SIM118 - not a dict


ROWS, COLS = 64, 256
RNG = np.random.default_rng(0)


def two_bit_blocks(group: int, *, scale_last: bool = False) -> bytes:
    blocks = ROWS * COLS // group
    codes = (RNG.integers(0, 3, (blocks, group // 4, 4)) << np.arange(0, 8, 2)).sum(-1)
    scales = RNG.uniform(0.01, 0.1, blocks).astype(np.float16).view(np.uint8).reshape(-1, 2)
    parts = [codes.astype(np.uint8), scales] if scale_last else [scales, codes.astype(np.uint8)]
    return np.concatenate(parts, axis=1).tobytes()


@pytest.mark.parametrize(
    ("layout", "data"),
    [
        ("Q2_0_g64", two_bit_blocks(64)),
        ("Q2_0_g128", two_bit_blocks(128)),
        ("TQ2_0_g128", two_bit_blocks(128, scale_last=True)),
    ],
)
def test_the_layout_of_type_42_is_found(layout: str, data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    write(path, {}, [("a", (ROWS, COLS), 42, data), ("b", (32,), 0, bytes(128))])
    assert _core.GgufFile(str(path)).tensor("a").quant_type == layout
    write(path, {}, [("b", (32,), 0, bytes(128)), ("a", (ROWS, COLS), 42, data)])
    assert _core.GgufFile(str(path)).tensor("a").quant_type == layout


def test_a_layout_that_cannot_be_told_is_refused_and_can_be_named(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    zeros = bytes(34 * 128)  # both places of the scale read as zero
    write(path, {}, [("a", (64, 256), 42, zeros), ("b", (32,), 0, bytes(128))])
    with pytest.raises(UnsupportedError, match="--quant-type"):
        _core.GgufFile(str(path))
    for name, layout in (("PQ2_0", "Q2_0_g128"), ("TQ2_0_g128", "TQ2_0_g128")):
        assert _core.GgufFile(str(path), name).tensor("a").quant_type == layout
    with pytest.raises(FormatError, match="does not fit"):
        _core.GgufFile(str(path), "Q2_0_g64")
    with pytest.raises(RequestError, match="no layout of type 42"):
        _core.GgufFile(str(path), "Q4_0")


def test_types_without_a_decoder_are_listed_and_refused_as_weights(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    write(path, {}, [("a", (256,), 28, bytes(8 * 256))])
    file = _core.GgufFile(str(path))
    assert file.tensor("a").quant_type == "F64"
    assert not file.tensor("a").decodable
    with pytest.raises(UnsupportedError, match=r"tensor a .* has type F64"):
        _core.Weight(file, "a")


def test_text_that_is_no_utf8_keeps_its_bytes(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    write(path, {"k": (b"\xff\xfe".decode("utf-8", "surrogateescape"), "str")}, [])
    assert _core.GgufFile(str(path)).get("k").encode("utf-8", "surrogateescape") == b"\xff\xfe"


def test_a_missing_file_and_a_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"cannot open .*absent"):
        _core.GgufFile(str(tmp_path / "absent"))
    with pytest.raises(FormatError, match="not a regular file"):
        _core.GgufFile(str(tmp_path))
