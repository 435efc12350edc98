"""From a recipe and a folder to the bytes of a GGUF file."""

from __future__ import annotations

import math
from collections import defaultdict
from pathlib import Path

from oxibonsai import _core
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.plan import Planned, plan
from oxibonsai.convert.recipe import Converter, Metadata
from oxibonsai.convert.target import Target
from oxibonsai.errors import RequestError
from oxibonsai.files.progress import Progress, counted
from oxibonsai.files.whole_file import follow_links, written_whole
from oxibonsai.quantize.blocks import Loss
from oxibonsai.quantize.plan import destruction


def refuse_same(source: Path, out: Path) -> None:
    """Raise RequestError if a file or folder would be written over itself."""
    if follow_links(out) == source.resolve():
        raise RequestError(f"{out} is what would be converted: name another OUT")


def write_model(
    source: ModelFolder,
    recipe: Converter,
    out: Path,
    *,
    kind: str = "model",
    dtype: str,
    name: str,
    weights: bool = True,
    threads: int,
    progress: Progress | None,
) -> list[str]:
    """Write one GGUF file; the arguments are those of :func:`oxibonsai.convert.language_model.convert`.

    Args:
        source: The folder; its configuration becomes that of the part which is written.
        recipe: What converts that part.
        out: The file.
        kind: ``general.type``.
        dtype: Of matrices.
        name: The model's; empty: the folder's.
        weights: False leaves the tensors out.
        threads: They share out the rows that are encoded.
        progress: Told after each tensor.

    Returns:
        What the user should know.
    """
    source.config = recipe.config(source)
    if recipe.variant is not None:
        recipe = recipe.variant(source)
    keys: Metadata = {
        "general.architecture": (recipe.architecture, "str"),
        "general.type": (kind, "str"),
        "general.name": (name or source.path.resolve().name, "str"),
        "general.quantization_version": (2, "u32"),
    }
    own = recipe.metadata(source)
    target = Target(dtype, keys | own)
    tensors = plan(source, recipe, target, threads) if weights else []
    number = target.file_type([(t.shape, math.prod(t.shape), t.type) for t in tensors])
    if number is not None:
        keys["general.file_type"] = (number, "u32")
    losses = _write(out, keys | own, tensors, progress)
    ruined = [w for name, loss in losses.items() if (w := destruction(name, loss))]
    return [*ruined, *(recipe.notes if weights else ()), *target.warnings]


def _write(
    out: Path, keys: Metadata, tensors: list[Planned], progress: Progress | None
) -> dict[str, Loss]:
    """Write the file; return the loss of each type."""
    report = counted(sum(t.nbytes for t in tensors), progress)
    losses: defaultdict[str, Loss] = defaultdict(Loss)
    with written_whole(out) as sink:
        writer = _core.GgufWriter(sink)
        for key, (value, value_type) in keys.items():
            writer.add_metadata(key, value, value_type)
        for tensor in tensors:
            writer.add_tensor(tensor.name, tensor.shape, tensor.type.gguf_id, tensor.nbytes)
        writer.write_header()
        for tensor in tensors:
            blocks, loss = tensor.blocks()
            losses[tensor.type.name] += loss
            writer.write_tensor(blocks)
            report(tensor.nbytes)
        writer.close()
    return losses
