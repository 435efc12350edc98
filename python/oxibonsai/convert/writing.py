"""From a folder and what converts it to the model that its GGUF file would hold, and to the file."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from oxibonsai import _core
from oxibonsai.checkpoint.folder import ModelFolder
from oxibonsai.checkpoint.lazy_model import LazyModel
from oxibonsai.checkpoint.metadata import Metadata
from oxibonsai.convert.converter import Converter
from oxibonsai.convert.plan import Planned, plan
from oxibonsai.convert.target import Target
from oxibonsai.errors import RequestError
from oxibonsai.files.progress import Progress, counted
from oxibonsai.files.whole_file import follow_links, written_whole
from oxibonsai.quantize.blocks import Loss
from oxibonsai.quantize.plan import destruction


@dataclass(frozen=True)
class PlannedModel:
    """A model as the keys and tensors of a GGUF file.

    Attributes:
        path: The folder, for errors.
        keys: In their order.
        tensors: In the order of the file.
        notes: What the user should know.
    """

    path: Path
    keys: Metadata
    tensors: list[Planned]
    notes: list[str]

    def reader(self) -> LazyModel:
        """Return what reads the model as if it were that file."""
        return LazyModel(self.path, self.keys, self.tensors)

    def write(self, out: Path, progress: Progress | None) -> list[str]:
        """Write the file, which appears under its name when it is complete.

        Returns:
            What the user should know, of weights that were destroyed first.

        Raises:
            RequestError: It would be written over what it is made of.
            FormatError: A value does not fit its type, or the folder was changed meanwhile.
        """
        read = {s.path.resolve() for t in self.tensors for s in t.sources}
        if follow_links(out) in {self.path.resolve(), *read}:
            raise RequestError(f"{out} is what would be converted: name another OUT")
        report = counted(sum(t.nbytes for t in self.tensors), progress)
        losses: defaultdict[str, Loss] = defaultdict(Loss)
        with written_whole(out) as sink:
            writer = _core.GgufWriter(sink)
            for key, (value, value_type) in self.keys.items():
                writer.add_metadata(key, value, value_type)
            for tensor in self.tensors:
                writer.add_tensor(tensor.name, tensor.shape, tensor.gguf_id, tensor.nbytes)
            writer.write_header()
            for tensor in self.tensors:
                blocks, loss = tensor.encode()
                losses[tensor.quant_type] += loss
                writer.write_tensor(blocks)
                tensor.done()
                report(tensor.nbytes)
            writer.close()
        ruined = [w for name, loss in losses.items() if (w := destruction(name, loss))]
        return [*ruined, *self.notes]


def plan_model(
    source: ModelFolder,
    converter: Converter,
    *,
    kind: str = "model",
    dtype: str,
    name: str,
    weights: bool = True,
    threads: int,
    choose: type[Target] = Target,
) -> PlannedModel:
    """Return one part of a folder; arguments as of :func:`oxibonsai.convert.language_model.convert`.

    Args:
        source: The folder; its configuration becomes that of the part.
        converter: Of that part.
        kind: ``general.type``.
        dtype: Of matrices.
        name: The model's; empty: the folder's.
        weights: False leaves the tensors out.
        threads: They share out the rows that are encoded.
        choose: Chooses the types of matrices.
    """
    source.config = converter.config(source)
    if converter.variant is not None:
        converter = converter.variant(source)
    keys: Metadata = {
        "general.architecture": (converter.architecture, "str"),
        "general.type": (kind, "str"),
        "general.name": (name or source.path.resolve().name, "str"),
        "general.quantization_version": (2, "u32"),
    }
    own = converter.metadata(source)
    target = choose(dtype, keys | own)
    tensors = plan(source, converter, target, threads) if weights else []
    number = target.file_type([(t.shape, math.prod(t.shape), t.type) for t in tensors])
    if number is not None:
        keys["general.file_type"] = (number, "u32")
    notes = [*(converter.notes if weights else ()), *target.warnings]
    return PlannedModel(source.path, keys | own, tensors, notes)
