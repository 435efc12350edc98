"""Tensors that are several parameters, such as one of each expert, or a part of one."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from oxibonsai.convert.float_types import Floats
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.mxfp4 import Mxfp4Parameter
from oxibonsai.convert.parameters import Parameter
from oxibonsai.errors import FormatError

# What projections of an expert are called, and GGUF's names.
PROJECTIONS = {"gate_proj": "gate", "up_proj": "up", "down_proj": "down"}
_NUMBERED = {"w1": "gate", "w3": "up", "w2": "down"}
_EXPERT = re.compile(
    r"model\.layers\.([0-9]{1,4})\.(?:mlp|block_sparse_moe)\.experts\.([0-9]{1,5})\.(\w+)\.weight"
)


@dataclass(frozen=True)
class Piece:
    """A parameter's share of a tensor in the file.

    Attributes:
        tensor: GGUF's name.
        place: Where the parameter stands in a stack, such as the number of an expert; None: the tensor
            is this piece alone.
        part: What is taken of the parameter's values, by position; None: all.
    """

    tensor: str
    place: int | None = None
    part: Callable[[Floats], Floats] | None = None


def expert_pieces(folder: ModelFolder, parameter: str) -> Sequence[Piece]:
    """Return the piece that the matrix of one expert is; none for any other parameter."""
    found = _EXPERT.fullmatch(parameter)
    name = found and {**PROJECTIONS, **_NUMBERED}.get(found[3])
    if found is None or name is None:
        return ()
    return (Piece(f"blk.{int(found[1])}.ffn_{name}_exps.weight", int(found[2])),)


@dataclass(frozen=True)
class Part:
    """Some values of a parameter."""

    held: Parameter
    part: Callable[[Floats], Floats]

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of the selected values."""
        whole = np.broadcast_to(np.float32(0), self.held.shape)
        try:
            return self.part(whole).shape
        except (ValueError, IndexError) as e:
            raise FormatError(
                f"a parameter of shape {self.held.shape} has not the parts that the configuration "
                f"says: {e}"
            ) from e

    @property
    def exact_type(self) -> str:
        """The whole parameter's, where a part has it too."""
        kept = ("f16", "bf16", Mxfp4Parameter.exact_type)
        return self.held.exact_type if self.held.exact_type in kept else "f32"

    def blocks(self) -> npt.NDArray[np.uint8] | None:
        """Return the MXFP4 blocks of the selected rows; None for other types."""
        if not isinstance(self.held, Mxfp4Parameter):
            return None
        return np.ascontiguousarray(self.part(self.held.blocks()))  # type: ignore[arg-type]

    def values(self) -> Floats:
        """Return the selected values."""
        return np.ascontiguousarray(self.part(self.held.values()))


@dataclass(frozen=True)
class Stack:
    """Parameters one after the other, such as the matrices of all experts."""

    held: Sequence[Parameter]

    @property
    def shape(self) -> tuple[int, ...]:
        """Their number comes first."""
        return (len(self.held), *self.held[0].shape)

    @property
    def exact_type(self) -> str:
        """Return the float type that all parts share, if they share one."""
        kinds = {h.exact_type for h in self.held}
        return kinds.pop() if len(kinds) == 1 and kinds <= {"f16", "bf16"} else "f32"

    def values(self) -> Floats:
        """All of them."""
        return np.stack([h.values() for h in self.held])


def put_pieces_together(where: str, pieces: Sequence[tuple[Piece, Parameter]]) -> Parameter:
    """Return the parameter that a tensor's pieces make.

    Args:
        where: Names the tensor in errors.
        pieces: All of one tensor.

    Raises:
        FormatError: A part of a stack is missing or there twice, or its parts differ in shape.
    """
    parts = [(p, h if p.part is None else Part(h, p.part)) for p, h in pieces]
    if len(parts) == 1 and parts[0][0].place is None:
        return parts[0][1]
    if any(p.place is None for p, _ in parts):
        raise FormatError(f"{where}: there are two of one meaning")
    ordered = sorted(parts, key=lambda pair: pair[0].place or 0)
    if [p.place for p, _ in ordered] != list(range(len(ordered))):
        raise FormatError(f"{where}: its parts (experts) are not numbered from 0 on, each once")
    if len({h.shape for _, h in ordered}) != 1:
        raise FormatError(f"{where}: its parts (experts) have different shapes")
    return Stack([h for _, h in ordered])
