"""Types in which ``convert`` stores matrices: without loss, or as ``oxibonsai quantize`` would."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from oxibonsai.checkpoint.metadata import Metadata
from oxibonsai.checkpoint.packs.exact_blocks import EXACT_TYPES
from oxibonsai.checkpoint.parameters import Parameter
from oxibonsai.errors import RequestError
from oxibonsai.quantize.importance import check_importance
from oxibonsai.quantize.mixes import Mix, file_type_of, find_mix, mix_names
from oxibonsai.quantize.plan import fallback_warnings
from oxibonsai.quantize.type_choice import ModelShape, Tensor, TypeRules, choose
from oxibonsai.quantize.weight_types import WeightType, find_type, type_named

_AUTO, _FLOATS = "auto", ("f32", "f16", "bf16")
# By the core's names: these types hold what they are given exactly, or refuse it.
_EXACT = {type_named(name).name: name for name in EXACT_TYPES}


def check_dtype(dtype: str) -> None:
    """Raise RequestError where no :class:`Target` knows the name; costs nothing, so it comes first."""
    _parsed(dtype)


class Target:
    """Chooses the types of a model's matrices.

    Args:
        dtype: ``auto``, ``f32``, ``f16``, ``bf16``, or any type or mix, in any case.
        keys: Metadata of the file, which mixes look at.

    Attributes:
        warnings: What the user should know of the choice.

    Raises:
        RequestError: There is no such dtype.
    """

    def __init__(self, dtype: str, keys: Metadata) -> None:
        self._plain, self._mix = _parsed(dtype)
        self._shape = ModelShape.of(lambda key: keys[key][0] if key in keys else None)
        self.warnings: list[str] = []

    def types(self, matrices: Mapping[str, Parameter]) -> dict[str, str]:
        """Return the type of each matrix, by its name in the file.

        Raises:
            RequestError: A type needs an importance matrix, which ``convert`` does not take.
        """
        if self._mix is None:
            return {name: self._plain or held.exact_type for name, held in matrices.items()}
        tensors = [Tensor(name, held.shape, "F32") for name, held in matrices.items()]
        choices = choose(tensors, self._shape, TypeRules(self._mix), measured=False)
        check_importance(choices, None)
        self.warnings = fallback_warnings(choices)
        return {c.tensor.name: c.type.name for c in choices}

    def file_type(self, tensors: Sequence[tuple[tuple[int, ...], int, WeightType]]) -> int | None:
        """Return ``general.file_type`` of tensors with such shapes, weights and types; None: it has none.

        A mix has its own; else it is that of the type which most weights have.
        """
        if self._mix is not None:
            return self._mix.file_type
        counts: Counter[str] = Counter()
        for shape, count, kind in tensors:
            if len(shape) > 1:
                counts[kind.name] += count
        return file_type_of(counts.most_common(1)[0][0]) if counts else 0


def _parsed(dtype: str) -> tuple[str | None, Mix | None]:
    """Return the type of all matrices, or the mix; neither for ``auto``."""
    kind, lower = find_type(dtype), dtype.lower()
    if kind is not None and kind.name in _EXACT:
        return _EXACT[kind.name], None
    if lower in _FLOATS:
        return lower, None
    if lower == _AUTO:
        return None, None
    try:
        return None, find_mix(dtype)
    except RequestError as e:
        exact = (_AUTO, *_FLOATS, *EXACT_TYPES)
        mixes = (n.lower() for n in mix_names() if n not in _EXACT)
        names = ", ".join(dict.fromkeys((*exact, *mixes)))
        raise RequestError(f"there is no type {dtype!r} to store as; it is one of {names}") from e
