"""ONNX: what a file's graph holds, and where its tensors' bytes lie; parsed by the `onnx` package.

External data is mapped, after every size and path has been checked against what is on the disk.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from mmap import ACCESS_READ, mmap
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from oxibonsai import _core
from oxibonsai.checkpoint.safetensors_file import StoredTensor
from oxibonsai.errors import FormatError, UnsupportedError

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto, TensorProto

_MOST_BYTES = 1 << 31  # of a protobuf message; larger models have their data outside
_DEEPEST = 8  # graphs within nodes of graphs
# ONNX's numbers of element types: our name, and bytes.
_TYPES = {1: ("F32", 4), 2: ("U8", 1), 10: ("F16", 2), 16: ("BF16", 2)}
_EXTERNAL = 1


@dataclass(frozen=True)
class InlineTensor(StoredTensor):
    """A tensor that the graph holds in another form than its bytes."""

    data: bytes

    def raw(self) -> npt.NDArray[np.uint8]:
        """Return the bytes."""
        return np.frombuffer(self.data, np.uint8)


class OnnxFile:
    """Nodes of all graphs of a file, and its tensors by name.

    Raises:
        FormatError: The file can't be read, or breaks its format.
        UnsupportedError: The `onnx` package is not installed.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.nodes: list[NodeProto] = []
        self._tensors: dict[str, TensorProto] = {}
        self._makers: dict[str, NodeProto] = {}
        self._files: dict[Path, _core.MappedFile] = {}
        self._searched = 0  # tensors mostly lie in the order in which they are asked for
        for graph in _graphs(_parse(path).graph, path):
            if not all(isinstance(text, str) for text in _texts(graph)):
                raise FormatError(f"{path} has a name that is no UTF-8 text")
            self.nodes += graph.node
            self._tensors |= {t.name: t for t in graph.initializer}
            self._makers |= {name: node for node in graph.node for name in node.output}

    def has(self, name: str) -> bool:
        """Return whether there is a tensor of that name."""
        return name in self._tensors

    @property
    def tensor_names(self) -> Iterable[str]:
        """Return the names of all tensors in the file."""
        return self._tensors.keys()

    def origin(self, name: str) -> tuple[str, bool] | None:
        """Return the tensor behind a value, and whether it is transposed; None where it is computed."""
        transposed = False
        for _ in range(_DEEPEST):
            if name in self._tensors:
                return name, transposed
            maker = self._makers.get(name)
            if maker is None or not maker.input:
                return None
            if maker.op_type not in ("Identity", "Reshape", "Transpose"):
                return None
            transposed ^= maker.op_type == "Transpose"
            name = maker.input[0]
        return None

    def tensor(self, name: str) -> StoredTensor:
        """Return a tensor, its size checked against the bytes that there are.

        Raises:
            FormatError: It is damaged, or its external data is not where it says, or elsewhere than
                in the file's folder.
            UnsupportedError: Its elements are of a type that is not known.
        """
        stored = self._tensors[name]
        if stored.data_type not in _TYPES or stored.HasField("segment"):
            raise UnsupportedError(
                f"{self.path}: {name} has elements of ONNX type {stored.data_type}; convert knows "
                + ", ".join(f"{number} ({kind})" for number, (kind, _) in _TYPES.items())
            )
        dtype, size = _TYPES[stored.data_type]
        shape = tuple(stored.dims)
        if any(n < 1 for n in shape):
            raise FormatError(f"{self.path}: {name} has shape {shape}")
        nbytes = size
        for n in shape:  # numpy's product would wrap
            nbytes *= n
        if stored.data_location == _EXTERNAL:
            place, offset = self._external(stored, nbytes)
            return StoredTensor(
                place, name, dtype, shape, offset, offset + nbytes, self._mapped(place)
            )
        data = _inline_bytes(stored)
        if len(data) != nbytes:
            raise FormatError(
                f"{self.path}: {name} has shape {shape}, {nbytes} bytes, but holds {len(data)}"
            )
        if (first := self._find(data)) >= 0:
            return StoredTensor(
                self.path, name, dtype, shape, first, first + nbytes, self._mapped(self.path)
            )
        return InlineTensor(self.path, name, dtype, shape, 0, nbytes, None, data)

    def _find(self, data: bytes) -> int:
        """Return where the file has bytes, so that the parsed copy of them can go; -1: nowhere."""
        with self.path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as whole:
            first = whole.find(data, self._searched)
            if first < 0:
                first = whole.find(data)
        self._searched = max(self._searched, first)
        return first

    def _mapped(self, place: Path) -> _core.MappedFile:
        if place not in self._files:
            self._files[place] = _core.MappedFile(str(place))
        return self._files[place]

    def _external(self, stored: TensorProto, nbytes: int) -> tuple[Path, int]:
        """Return the file that holds a tensor's bytes, and where they begin."""
        where = f"{self.path}: the external data of {stored.name}"
        facts = {entry.key: entry.value for entry in stored.external_data}
        place = self._inside(facts.get("location", ""), where)
        offset = _number(facts.get("offset", "0"), f"{where}: offset")
        length = _number(facts.get("length", str(nbytes)), f"{where}: length")
        try:
            room = place.stat().st_size - offset
        except OSError as e:
            raise FormatError(f"{where}: cannot look at {place}: {e.strerror}") from e
        if length != nbytes or room < nbytes:
            raise FormatError(
                f"{where} should be {nbytes} bytes by its shape; it says {length}, and {place.name} has "
                f"{max(room, 0)} from byte {offset} on"
            )
        return place, offset

    def _inside(self, location: str, where: str) -> Path:
        """Return the named file, which must lie in the folder of the ONNX file."""
        folder = self.path.parent
        parts = PurePosixPath(location).parts
        plain = parts and not set(location) & {"\\", ":", "\0"} and ".." not in parts
        if not plain or location.startswith("/"):
            raise FormatError(
                f"{where} is at {location[:80]!r}, which is no file of the folder {folder}"
            )
        # The hub's cache has links to the folder where the ONNX file itself lies.
        allowed = (folder.resolve(), self.path.resolve().parent)
        try:
            place = (folder / location).resolve()
            inside = place.is_file() and any(place.is_relative_to(a) for a in allowed)
        except (OSError, RuntimeError):  # no name that a file can have, links in a circle
            inside = False
        if not inside:
            raise FormatError(
                f"{where} is at {location[:80]!r}, which is missing from the folder {folder} or leads out "
                "of it"
            )
        return place


def _parse(path: Path) -> ModelProto:
    try:
        import onnx
        from google.protobuf.message import DecodeError
    except ImportError as e:
        raise UnsupportedError(
            f"reading {path} needs the onnx package: pip install 'oxibonsai[convert]'"
        ) from e
    try:
        if path.stat().st_size >= _MOST_BYTES:
            raise FormatError(f"{path} has 2 GiB or more, which no ONNX file can have")
        model = onnx.load_model(path, load_external_data=False)
    except (OSError, DecodeError, ValueError) as e:
        raise FormatError(f"cannot read {path} as ONNX: {e}") from e
    if not model.graph.node:
        raise FormatError(f"{path} is no ONNX model: its graph has no nodes")
    return model


def _graphs(graph: GraphProto, path: Path, depth: int = 0) -> Iterator[GraphProto]:
    """Yield a graph and those within its nodes: merged exports have one graph for each branch."""
    if depth > _DEEPEST:
        raise FormatError(f"{path} has graphs nested more than {_DEEPEST} deep")
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            inner = [attribute.g] if attribute.HasField("g") else []
            for g in (*inner, *attribute.graphs):
                yield from _graphs(g, path, depth + 1)


def _texts(graph: GraphProto) -> Iterator[Any]:
    """Yield values that should be text; protobuf gives bytes for those that are not."""
    for node in graph.node:
        yield from (node.name, node.op_type, *node.input, *node.output)
    for tensor in graph.initializer:
        yield tensor.name
        for entry in tensor.external_data:
            yield from (entry.key, entry.value)


def _inline_bytes(stored: TensorProto) -> bytes:
    """Return little-endian bytes, from whichever of its fields the tensor uses."""
    if stored.HasField("raw_data"):
        return bytes(stored.raw_data)
    if stored.float_data:
        return np.asarray(stored.float_data, "<f4").tobytes()
    words = np.asarray(stored.int32_data, np.int64)  # halves and bytes stand in these, one in each
    return words.astype(f"<u{_TYPES[stored.data_type][1]}").tobytes()


def _number(text: str, what: str) -> int:
    if not text.isascii() or not text.isdecimal() or len(text) > 18:
        raise FormatError(f"{what} is {text[:40]!r}, not a count of bytes")
    return int(text)
