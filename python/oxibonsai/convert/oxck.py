"""Between OXCK and GGUF: all keys, and all tensors as float32."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from oxibonsai import _core
from oxibonsai.checkpoint import Checkpoint
from oxibonsai.checkpoint.gguf import SPLIT_KEYS
from oxibonsai.checkpoint.metadata import Metadata
from oxibonsai.checkpoint.oxck_file import header, open_oxck, record_head
from oxibonsai.errors import RequestError, UnsupportedError
from oxibonsai.files.progress import Progress, counted
from oxibonsai.files.whole_file import follow_links, written_whole

_FILE_TYPE = "general.file_type"
_ALL_F32 = (0, "u32")
_F32 = 0  # GGUF's number


def write_oxck(checkpoint: Checkpoint, out: Path, progress: Progress | None = None) -> None:
    """Write a model as an OXCK file, which appears under its name when it is complete.

    Args:
        checkpoint: Any model.
        out: The file.
        progress: Told the bytes that are written.

    Raises:
        RequestError: It would be written over the model.
        UnsupportedError: A tensor has a type that does not stand for floats.
    """
    _check_place(out, [checkpoint.path, *checkpoint.file.paths])
    tensors = checkpoint.file.tensors
    unknown = next((t for t in tensors if not t.decodable), None)
    if unknown is not None:
        raise UnsupportedError(
            f"{checkpoint.path}: tensor {unknown.name} has type {unknown.quant_type}, which an OXCK file "
            "can't hold"
        )
    metadata: Metadata = {
        key: (checkpoint.file.get(key), checkpoint.file.metadata_type(key))
        for key in checkpoint.file.keys()  # noqa: SIM118 - not a dict
        if key not in SPLIT_KEYS
    }
    if _FILE_TYPE in metadata:
        metadata[_FILE_TYPE] = _ALL_F32
    report = counted(sum(t.nbytes for t in tensors), progress)
    with written_whole(out) as sink:
        sink.write(header(metadata, len(tensors)))
        for tensor in tensors:
            for part in record_head(tensor.name, tuple(tensor.shape)):
                sink.write(part)
            blocks = checkpoint.file.tensor_bytes(tensor.name)
            sink.write(_core.decode(tensor.quant_type, blocks).astype("<f4", copy=False).tobytes())
            checkpoint.file.release(tensor.name)
            report(tensor.nbytes)
        checkpoint.file.check_unchanged()


def write_gguf(source: Path, out: Path, progress: Progress | None = None) -> None:
    """Write the model of an OXCK file as a GGUF file of float32.

    Args:
        source: The OXCK file.
        out: The file.
        progress: Told the bytes that are written.

    Raises:
        RequestError: It would be written over its source.
        FormatError: The source is damaged.
        UnsupportedError: The source is of another version.
    """
    _check_place(out, [source])
    model = open_oxck(source)
    report = counted(model.size, progress)
    with written_whole(out) as sink:
        writer = _core.GgufWriter(sink)
        for key in model.keys():  # noqa: SIM118 - not a dict
            model.copy_metadata(writer, key)
        for tensor in model.tensors:
            writer.add_tensor(tensor.name, tensor.shape, _F32, tensor.nbytes)
        writer.write_header()
        for tensor in model.tensors:
            writer.write_tensor(np.ascontiguousarray(tensor.make()))
            tensor.done()
            report(tensor.nbytes)
        writer.close()


def _check_place(out: Path, read: list[Path]) -> None:
    if follow_links(out) in {path.resolve() for path in read}:
        raise RequestError(f"{out} is what would be converted: name another OUT")
