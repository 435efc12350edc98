"""Malformed ONNX files cost one clear error: never a crash, a hang, much memory or another's file."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("onnx", reason="needs the onnx package (extra: convert)")
from onnx import TensorProto, helper, numpy_helper

from oxibonsai.checkpoint.onnx_file import OnnxFile
from oxibonsai.checkpoint.onnx_parameters import onnx_parameters
from oxibonsai.errors import FormatError, OxiBonsaiError, UnsupportedError

WEIGHTS = np.arange(64 * 2 * 16, dtype=np.uint8).reshape(64, 2, 16)
SCALES = np.full((64, 2), 0.5, np.float16)
NODE = "/model/layers.0/mlp/up_proj/MatMul_Q4"


def model(*tensors: Any, nodes: tuple[Any, ...] | None = None) -> Any:
    if not tensors:
        tensors = (numpy_helper.from_array(WEIGHTS, "w"), numpy_helper.from_array(SCALES, "s"))
    facts = {"K": 64, "N": 64, "bits": 4, "block_size": 32}
    node = helper.make_node(
        "MatMulNBits", ["x", "w", "s"], ["y"], NODE, domain="com.microsoft", **facts
    )
    graph = helper.make_graph(list(nodes or (node,)), "g", [], [], list(tensors))
    return helper.make_model(graph)


def external(**facts: str) -> Any:
    """A tensor of 2048 bytes that lies elsewhere."""
    tensor = TensorProto(name="w", data_type=2, dims=[64, 2, 16], data_location=1)
    for key, value in ({"location": "data.bin"} | facts).items():
        tensor.external_data.add(key=key, value=value)
    return tensor


def read(folder: Path, held: Any) -> Any:
    path = folder / "model.onnx"
    path.write_bytes(held if isinstance(held, bytes) else held.SerializeToString())
    found = onnx_parameters(path, 1, tied=False)
    return {name: parameter.values() for name, parameter in found.items()}


def test_the_valid_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "data.bin").write_bytes(b"xx" + WEIGHTS.tobytes())
    inline = read(tmp_path, model())["model.layers.0.mlp.up_proj.weight"]
    assert inline[0, :4].tolist() == [-4.0, -4.0, -3.5, -4.0]  # codes 0 0 1 0, zero point 8
    far = model(external(offset="2", length="2048"), numpy_helper.from_array(SCALES, "s"))
    (found,) = read(tmp_path, far).values()
    assert np.array_equal(found, inline)


PLACES = [
    "", ".", "..", "/etc/hostname", "../data.bin", "sub/../../data.bin", "..\\data.bin", "C:data.bin",
    "sub", "none.bin", "data.bin\0x", "link.bin", "linked/data.bin", "file:///etc/hostname", "x" * 5000,
    "circle",
]  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
def test_data_outside_the_folder_is_refused(place: str, tmp_path: Path) -> None:
    folder = tmp_path / "m"
    (folder / "sub").mkdir(parents=True)
    (tmp_path / "data.bin").write_bytes(WEIGHTS.tobytes())
    (folder / "link.bin").symlink_to(tmp_path / "data.bin")
    (folder / "linked").symlink_to(tmp_path)
    (folder / "circle").symlink_to(folder / "circle")
    held = model(external(location=place), numpy_helper.from_array(SCALES, "s"))
    with pytest.raises(FormatError, match=r"the external data of w is at"):
        read(folder, held)


def test_links_of_the_hubs_cache_are_followed(tmp_path: Path) -> None:
    """It keeps all files of a model in one folder, and links to them in another."""
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshot"
    blobs.mkdir()
    snapshot.mkdir()
    (blobs / "1").write_bytes(
        model(external(), numpy_helper.from_array(SCALES, "s")).SerializeToString()
    )
    (blobs / "2").write_bytes(WEIGHTS.tobytes())
    (snapshot / "model.onnx").symlink_to(blobs / "1")
    (snapshot / "data.bin").symlink_to(blobs / "2")
    assert len(onnx_parameters(snapshot / "model.onnx", 1, tied=False)) == 1


@pytest.mark.parametrize(
    "facts",
    [
        {"offset": "1"},
        {"offset": "-1"},
        {"offset": str(2**63)},
        {"offset": "9" * 5000},
        {"offset": "0x10"},
        {"offset": " 1"},
        {"offset": "\u0661"},
        {"length": "2047"},
        {"length": "0"},
        {"length": str(2**62)},
        {"length": "-2048"},
    ],
)
def test_offsets_and_lengths_are_checked(facts: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "data.bin").write_bytes(WEIGHTS.tobytes())
    held = model(external(**facts), numpy_helper.from_array(SCALES, "s"))
    with pytest.raises(FormatError, match="the external data of w"):
        read(tmp_path, held)


def tensor(**fields: Any) -> Any:
    return TensorProto(**({"name": "w", "data_type": 2, "dims": [64, 2, 16]} | fields))


def nested(depth: int) -> Any:
    graph = helper.make_graph([helper.make_node("Identity", ["a"], ["b"])], "g", [], [])
    for _ in range(depth):
        node = helper.make_node("If", ["a"], ["b"], then_branch=graph)
        graph = helper.make_graph([node], "g", [], [])
    return helper.make_model(graph)


def far_nested(depth: int) -> bytes:
    """A graph in an attribute of a node of a graph, and so on, deeper than the package can make it."""
    data = b""
    for number in (*(6, 5, 1) * depth, 7):  # attribute.g, node.attribute, graph.node, model.graph
        length, size = bytearray(), len(data)
        while size > 127:
            length.append(size & 127 | 128)
            size >>= 7
        data = bytes([number << 3 | 2, *length, size]) + data
    return data


RAW = WEIGHTS.tobytes()
S = numpy_helper.from_array(SCALES, "s")
HOSTILE: dict[str, Callable[[], Any]] = {
    "empty": lambda: b"",
    "text": lambda: b"<!DOCTYPE html><html>not a model</html>" * 9,
    "zeros": lambda: bytes(4096),
    "no nodes": lambda: helper.make_model(helper.make_graph([], "g", [], [])),
    **{
        f"{name!r} in bytes": lambda name=name: VALID.replace(name, b"\xff" + name[1:])  # type: ignore[misc]
        for name in (b"MatMulNBits", b"/model", b"w", b"y")
    },
    "cut": lambda: model().SerializeToString()[:-7],
    "dims of 2**62": lambda: model(tensor(dims=[2**62, 4], raw_data=RAW), S),
    "dims that wrap": lambda: model(tensor(dims=[2**32, 2**32, 2**32], raw_data=RAW), S),
    "a dim of 0": lambda: model(tensor(dims=[0, 2, 16]), S),
    "negative dims": lambda: model(tensor(dims=[-64, -2, 16], raw_data=RAW), S),
    "too few bytes": lambda: model(tensor(raw_data=RAW[1:]), S),
    "too many bytes": lambda: model(tensor(raw_data=RAW + b"x"), S),
    "no bytes": lambda: model(tensor(), S),
    "int32 bytes": lambda: model(tensor(int32_data=[1] * 5), S),
    "strings": lambda: model(tensor(data_type=8, string_data=[b"x"] * 2048), S),
    "unknown type": lambda: model(tensor(data_type=99, raw_data=RAW), S),
    "4-bit type": lambda: model(tensor(data_type=21, raw_data=RAW), S),
    "a segment": lambda: model(
        tensor(raw_data=RAW, segment=TensorProto.Segment(begin=0, end=9)), S
    ),
    "no tensors": lambda: model(S),
    "scales of bytes": lambda: model(tensor(raw_data=RAW), tensor(name="s", raw_data=RAW)),
    "a product without inputs": lambda: model(
        nodes=(helper.make_node("MatMulNBits", [], ["y"], NODE),)
    ),
    "a circle": lambda: model(
        nodes=(
            helper.make_node("Identity", ["a"], ["b"]),
            helper.make_node("Identity", ["b"], ["a"]),
            helper.make_node("MatMulNBits", ["x", "a", "s"], ["y"], NODE),
        )
    ),
    "graphs in graphs": lambda: nested(12),
    "graphs far in graphs": lambda: far_nested(20000),
}


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", HOSTILE)
def test_malformed_files_are_refused(name: str, tmp_path: Path) -> None:
    held = HOSTILE[name]()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises((FormatError, UnsupportedError)) as error:
        read(tmp_path, held)
    assert "model.onnx" in str(error.value)
    assert "\n" not in str(error.value)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50 * 1024  # KiB


def test_a_large_file_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "model.onnx").open("wb") as file:
        os.truncate(file.fileno(), 1 << 31)
    with pytest.raises(FormatError, match="2 GiB or more"):
        OnnxFile(tmp_path / "model.onnx")


VALID = model().SerializeToString()


@given(at=st.integers(0, len(VALID) - 1), value=st.integers(0, 255), kept=st.booleans())
def test_a_damaged_file_gives_an_error_or_whole_parameters(
    at: int, value: int, kept: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    data = VALID[:at] + bytes([value]) + VALID[at + 1 :] if kept else VALID[:at]
    with suppress(OxiBonsaiError):
        for values in read(tmp_path_factory.mktemp("onnx"), data).values():
            assert values.ndim <= 2
