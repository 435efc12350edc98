"""Parameters that share tensors with others: one of each expert, or several tensors in one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from oxibonsai.checkpoint import Checkpoint
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.pieces import Piece
from oxibonsai.convert.recipe import Recipe
from oxibonsai.errors import UnsupportedError
from oxibonsai.export.safetensors_writer import Floats

# The shape of a parameter that is put together of whole tensors; None: that of the tensor that it is, or
# of one matrix of a stack.
ShapeOf = Callable[[ModelFolder], tuple[int, ...]] | None
# By names with ``{layer}``, of those that layers have, and ``{expert}``, of which there is one for each
# matrix of a stack.
JoinedShapes = Mapping[str, ShapeOf]


@dataclass(frozen=True)
class Joined:
    """One such parameter.

    Attributes:
        name: Hugging Face's.
        shape: Of its values.
        pieces: The tensors that it is made of, by what ``convert`` takes of it for each.
    """

    name: str
    shape: tuple[int, ...]
    pieces: Sequence[Piece]

    def values(self, held: Sequence[Floats]) -> Floats:
        """Its values, from those of its pieces in their order."""
        if self.pieces[0].part is None:
            return held[0]
        whole: Floats = np.empty(self.shape, np.float32)
        for piece, values in zip(self.pieces, held, strict=True):
            assert piece.part is not None  # which joined_parameters checks
            place = piece.part(whole)
            if np.may_share_memory(place, whole):
                place[...] = values
            else:  # rows by their numbers, which is no view of the whole
                places = np.arange(whole.size).reshape(self.shape)
                whole.ravel()[piece.part(places).ravel()] = values.ravel()  # type: ignore[arg-type]
        return whole


def joined_parameters(
    checkpoint: Checkpoint, recipe: Recipe, folder: ModelFolder, shapes: JoinedShapes
) -> list[Joined]:
    """All of a model, in the order of its layers.

    Args:
        checkpoint: Of the model.
        recipe: Of ``convert``, which is read backwards.
        folder: With the configuration to write.
        shapes: Of the architecture.

    Raises:
        UnsupportedError: The tensors do not make parameters of these shapes.
    """
    layers = range(folder.count("num_hidden_layers"))
    names = [
        (name.replace("{layer}", str(layer)), shape_of)
        for layer in layers
        for name, shape_of in shapes.items()
        if "{layer}" in name or layer == 0
    ]
    return [
        joined
        for name, shape_of in names
        for joined in _of_name(checkpoint, recipe, folder, name, shape_of)
    ]


def _of_name(
    checkpoint: Checkpoint, recipe: Recipe, folder: ModelFolder, name: str, shape_of: ShapeOf
) -> Iterator[Joined]:
    """None where there are no such tensors; then those that are there stay without a name."""
    first = recipe.pieces(folder, name.format(expert=0))
    if not first or not all(checkpoint.has(piece.tensor) for piece in first):
        return
    shape = checkpoint.shape(first[0].tensor)
    if "{expert}" in name:
        if first[0].place is None:  # there is no stack
            return
        for expert in range(shape[0]):
            own = name.format(expert=expert)
            yield Joined(own, shape[1:], recipe.pieces(folder, own))
        return
    if shape_of is not None:
        shape = shape_of(folder)
    elif first[0].place is not None:
        shape = shape[1:]
    whole = Joined(name, shape, first)
    if first[0].place is None:
        _check(checkpoint, whole)
    yield whole


def _check(checkpoint: Checkpoint, joined: Joined) -> None:
    """UnsupportedError unless the pieces fill the parameter."""
    held = {piece.tensor: checkpoint.shape(piece.tensor) for piece in joined.pieces}
    try:
        whole = np.broadcast_to(np.float32(0), joined.shape)
        found = {
            p.tensor: (whole if p.part is None else p.part(whole)).shape for p in joined.pieces
        }
    except (ValueError, IndexError) as e:
        raise UnsupportedError(
            f"{checkpoint.path}: {joined.name} of shape {joined.shape} has not the parts of "
            f"{', '.join(held)}: {e}"
        ) from e
    size = sum(int(np.prod(shape)) for shape in held.values())
    copies = len(held) if joined.pieces[0].part is None else 1  # of the whole parameter
    if found != held or size != copies * int(np.prod(joined.shape)):
        raise UnsupportedError(
            f"{checkpoint.path}: {', '.join(held)} of shapes {list(held.values())} do not make "
            f"{joined.name} of shape {joined.shape}"
        )
