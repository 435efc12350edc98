"""Models in fewer bits: mixes of types, encoded by the core, written whole or not at all."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from oxibonsai import _core
from oxibonsai.checkpoint.gguf import SPLIT_KEYS
from oxibonsai.checkpoint.reader import Reader
from oxibonsai.errors import RequestError
from oxibonsai.files.progress import Progress, counted
from oxibonsai.files.whole_file import follow_links, written_whole
from oxibonsai.quantize.blocks import Encoded, Loss, encode_matrix
from oxibonsai.quantize.importance import ImportanceMatrix
from oxibonsai.quantize.mixes import find_mix, mix_names
from oxibonsai.quantize.plan import Plan, make_plan
from oxibonsai.quantize.type_choice import TypeRules

__all__ = ["Loss", "Plan", "TypeRules", "find_mix", "make_plan", "mix_names", "quantize", "write"]

_FILE_TYPE, _VERSION = "general.file_type", "general.quantization_version"
_BLOCKS_VERSION = 2  # of the layouts of blocks, as ggml counts them


def quantize(
    file: Reader,
    out: str | os.PathLike[str],
    type_name: str,
    *,
    imatrix: ImportanceMatrix | None = None,
    imatrix_name: str = "",
    threads: int = 1,
    progress: Progress | None = None,
    **exceptions: Any,
) -> dict[str, Loss]:
    """Write a model with its matrices in another type.

    Args:
        file: The source. Its metadata stays as it is, but for the keys that say how it is quantized.
        out: The file, which appears under its name when it is complete; replaced where it exists.
        type_name: A mix or a type, in any case: see :func:`mix_names`.
        imatrix: Importance of columns; needed by the smallest types.
        imatrix_name: Its file's name, which is kept in the new one.
        threads: Rows are shared out among so many; the bytes don't depend on it.
        progress: Told after each slab of rows.
        **exceptions: As :class:`TypeRules`.

    Returns:
        What the encoded tensors lost, by type.

    Raises:
        RequestError: There is no such type, a pattern matches nothing, or a type needs an importance
            matrix.
        FormatError: A value is not finite or too large for the type, or the importance matrix is of
            another model.
    """
    plan = make_plan(file, TypeRules(find_mix(type_name), **exceptions), imatrix)
    return write(plan, out, imatrix_name=imatrix_name, threads=threads, progress=progress)


def write(
    plan: Plan,
    out: str | os.PathLike[str],
    *,
    imatrix_name: str = "",
    encoded: Mapping[str, Encoded] | None = None,
    threads: int = 1,
    progress: Progress | None = None,
) -> dict[str, Loss]:
    """Do what was planned; arguments and errors as :func:`quantize`.

    Args:
        encoded: Tensors by name that are encoded already, in the types of the plan.
    """
    if threads < 1:
        raise RequestError(f"threads is {threads}; it must be at least 1")
    out = Path(out)
    if follow_links(out) in {p.resolve() for p in plan.file.paths}:
        raise RequestError(f"{out} is the source: name another file")
    losses: defaultdict[str, Loss] = defaultdict(Loss)
    report = counted(plan.nbytes, progress)
    with written_whole(out) as sink, ThreadPoolExecutor(threads) as pool:
        writer = _core.GgufWriter(sink, plan.file.alignment)
        _write_metadata(plan, writer, imatrix_name)
        for choice in plan.choices:
            writer.add_tensor(
                choice.tensor.name, choice.tensor.shape, choice.type.gguf_id, choice.nbytes
            )
        writer.write_header()
        for choice in plan.choices:
            if choice.kept:
                writer.write_tensor(plan.file.tensor_bytes(choice.tensor.name))
                report(choice.nbytes)
            else:
                ready = (encoded or {}).get(choice.tensor.name)
                if ready is None:
                    ready = encode_matrix(plan.matrix(choice), choice.type, pool, report)
                else:
                    report(choice.nbytes)
                blocks, loss = ready
                losses[choice.type.name] += loss
                writer.write_tensor(blocks)
            plan.file.release(choice.tensor.name)
        plan.file.check_unchanged()
        writer.close()
    return dict(losses)


def _write_metadata(plan: Plan, writer: _core.GgufWriter, imatrix_name: str) -> None:
    file = plan.file
    new = _new_keys(plan, imatrix_name)
    for key in file.keys():  # noqa: SIM118 - not a dict
        if key in new:
            writer.add_metadata(key, *new.pop(key))
        elif key not in SPLIT_KEYS and key != _FILE_TYPE:
            file.copy_metadata(writer, key)
    for key, entry in new.items():
        writer.add_metadata(key, *entry)


def _new_keys(plan: Plan, imatrix_name: str) -> dict[str, tuple[Any, str]]:
    """Return how the file is quantized, under llama.cpp's keys."""
    keys: dict[str, tuple[Any, str]] = {_VERSION: (_BLOCKS_VERSION, "u32")}
    if plan.file_type is not None:
        keys[_FILE_TYPE] = (plan.file_type, "u32")
    imatrix = plan.imatrix
    if imatrix is not None:
        keys["quantize.imatrix.file"] = (imatrix_name, "str")
        if imatrix.datasets:
            keys["quantize.imatrix.dataset"] = (imatrix.datasets[0], "str")
        keys["quantize.imatrix.entries_count"] = (len(imatrix.entries), "u32")
        if imatrix.chunk_count:
            keys["quantize.imatrix.chunks_count"] = (imatrix.chunk_count, "u32")
    return keys
