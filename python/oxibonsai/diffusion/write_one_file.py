"""Writes an image model of any layout as one GGUF file."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from oxibonsai import _core
from oxibonsai.checkpoint.packs.exact_blocks import EXACT_TYPES
from oxibonsai.convert.stored_types import encode_measured
from oxibonsai.convert.target import check_dtype
from oxibonsai.diffusion.model_files import ModelFiles
from oxibonsai.diffusion.network import Network
from oxibonsai.diffusion.network_tensors import NetworkTensors
from oxibonsai.diffusion.one_file import (
    ARCHITECTURE,
    COUNTS,
    TEXT_ARCHITECTURE_KEY,
    TEXT_LAYERS_KEY,
    TEXT_PREFIXES,
    TRANSFORMER_KEYS,
    VAE_CONFIG_KEY,
    VAE_PREFIX,
)
from oxibonsai.errors import FormatError, RequestError
from oxibonsai.files.progress import Progress, counted
from oxibonsai.files.whole_file import written_whole
from oxibonsai.quantize.weight_types import WeightType, find_type, type_named

_BLOCKS = ("transformer_blocks.", "single_transformer_blocks.")
_FLOATS = ("F32", "F16", "BF16")
_Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class _Planned:
    """A tensor to write."""

    name: str
    shape: tuple[int, ...]
    type: WeightType
    blocks: Callable[[], _Bytes]

    @property
    def nbytes(self) -> int:
        return self.type.size(int(np.prod(self.shape)))


def write_one_file(
    files: ModelFiles,
    out: str | os.PathLike[str],
    *,
    dtype: str = "auto",
    threads: int = 1,
    progress: Progress | None = None,
) -> None:
    """Write the file, which appears under its name when it is complete.

    Args:
        files: The model.
        out: Replaced where it exists.
        dtype: Of the matrices of the transformer's blocks. ``"auto"``: each as it is stored, which loses
            nothing. Any other type of ``oxibonsai convert``, of which ``pq2_0``, ``q1_0`` and
            ``ptq1_0`` are for weights that are ternary or binary already. All other tensors stay as
            they are stored.
        threads: They share out the rows that are encoded.
        progress: Told after each tensor.

    Raises:
        RequestError: There is no such type.
        FormatError: A matrix does not fit the type, or its values are not finite.
    """
    target = None if dtype.lower() == "auto" else _target(dtype)
    tensors = _of_transformer(files.transformer, target, threads)
    tensors += [_planned(files.vae, n, f"{VAE_PREFIX}{n}") for n in sorted(files.vae.tensors.names)]
    tensors += _of_text_encoder(files)
    report = counted(sum(t.nbytes for t in tensors), progress)
    with written_whole(Path(out)) as sink:
        writer = _core.GgufWriter(sink)
        _write_keys(writer, files)
        for tensor in tensors:
            writer.add_tensor(tensor.name, tensor.shape, tensor.type.gguf_id, tensor.nbytes)
        writer.write_header()
        for tensor in tensors:
            writer.write_tensor(np.ascontiguousarray(tensor.blocks()).reshape(-1))
            report(tensor.nbytes)
        writer.close()


def _target(dtype: str) -> str:
    """Return the name of a type that a single matrix can be stored as."""
    check_dtype(dtype)
    if dtype.lower() not in EXACT_TYPES and find_type(dtype) is None:
        raise RequestError(f"{dtype} is a mix of types for language models; name one type")
    return dtype.lower()


def _planned(network: Network, name: str, written: str) -> _Planned:
    """Return a tensor as it is stored."""
    tensors = network.tensors
    kind = type_named(tensors.quant_type(name))
    return _Planned(written, tensors.shape(name), kind, lambda: tensors.stored(name))


def _of_transformer(network: Network, target: str | None, threads: int) -> list[_Planned]:
    found = []
    for name in sorted(network.tensors.names):
        in_block = name.startswith(_BLOCKS) and len(network.tensors.shape(name)) == 2
        if target is not None and in_block:
            planned = _encoded(network, name, target, threads)
        else:
            planned = _planned(network, name, name)
        if planned.type.name not in _FLOATS:
            planned = replace(planned, name=name.removesuffix(".weight"))
        found.append(planned)
    return found


def _encoded(network: Network, name: str, target: str, threads: int) -> _Planned:
    """Return a tensor in another type; its values are read when it is written."""
    kind, shape = type_named(target), network.tensors.shape(name)
    where = f"{network.tensors.path}: {name}"
    if shape[-1] % kind.group:
        raise FormatError(
            f"{where} has rows of {shape[-1]}, no multiple of {kind.group} ({target})"
        )

    def blocks() -> _Bytes:
        return encode_measured(network.tensors.array(name), target, where, threads=threads)[0]

    return _Planned(name, shape, kind, blocks)


def _of_text_encoder(files: ModelFiles) -> list[_Planned]:
    """Plan the text encoder's tensors up to the last layer that is looked at, by GGUF's names."""
    network = Network({}, NetworkTensors(files.text_encoder, complete_names=False))
    names = sorted(n for n in network.tensors.names if _is_run(n, files.text_layers[-1]))
    return [_planned(network, name, name) for name in names]


def _is_run(name: str, layers: int) -> bool:
    if not name.startswith(TEXT_PREFIXES) or name.startswith(("output.", "output_norm.")):
        return False
    block = re.match(r"blk\.(\d+)\.", name)
    return block is None or int(block[1]) < layers


def _write_keys(writer: _core.GgufWriter, files: ModelFiles) -> None:
    text = files.text_encoder
    writer.add_metadata("general.architecture", ARCHITECTURE, "str")
    writer.add_metadata("general.type", "model", "str")
    writer.add_metadata("general.name", files.name, "str")
    writer.add_metadata("general.quantization_version", 2, "u32")
    config = files.transformer.config
    for name, (key, kind) in TRANSFORMER_KEYS.items():
        if config.get(name) is not None:
            writer.add_metadata(f"{ARCHITECTURE}.{key}", config[name], kind)
    # diffusers notes where a network was loaded from: a folder of somebody's machine.
    vae = {k: v for k, v in files.vae.config.items() if k != "_name_or_path"}
    writer.add_metadata(VAE_CONFIG_KEY, json.dumps(vae, sort_keys=True), "str")
    writer.add_metadata(TEXT_ARCHITECTURE_KEY, text.architecture, "str")
    writer.add_metadata(TEXT_LAYERS_KEY, list(files.text_layers), "arr[u32]")
    for field, (key, _) in COUNTS.items():
        writer.add_metadata(f"{ARCHITECTURE}.{key}", getattr(files, field), "u32")
    for key in text.file.keys():  # noqa: SIM118 - no dictionary
        if key.startswith((f"{text.architecture}.", "tokenizer.")):
            text.file.copy_metadata(writer, key)
