"""The types that weights can be stored as, by name."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from oxibonsai import _core
from oxibonsai.errors import RequestError


@dataclass(frozen=True)
class WeightType:
    """A type of GGUF.

    Attributes:
        name: As ``oxibonsai info`` has it.
        gguf_id: Of a tensor.
        group, nbytes: Weights and bytes of a block.
    """

    name: str
    gguf_id: int
    group: int
    nbytes: int

    @property
    def bits(self) -> float:
        """Return the bits of a weight, its share of the scales included."""
        return self.nbytes * 8 / self.group

    def size(self, weights: int) -> int:
        """Return the bytes of so many weights, a multiple of the group."""
        return weights // self.group * self.nbytes


# Other names of a type: those of PrismML's files, and llama.cpp's Q2_0, which has groups of 64.
_ALIASES = {"pq2_0": "q2_0_g128", "q2_0": "q2_0_g64"}


@cache
def _types() -> dict[str, WeightType]:
    found = {}
    for t in _core.quant_types():
        found[t["name"].lower()] = WeightType(t["name"], t["gguf_id"], t["group"], t["bytes"])
    return found | {alias: found[name] for alias, name in _ALIASES.items()}


def find_type(name: str) -> WeightType | None:
    """Return the type of a name, in any case; None: there is none."""
    return _types().get(name.lower())


def type_named(name: str) -> WeightType:
    """Return the type of a name that is known to be one."""
    return _types()[name.lower()]


@cache
def encodable_types() -> dict[str, str]:
    """Return whether each type is encoded with importance: unused, optional or needed."""
    return _core.encoders()


def target_type(name: str) -> WeightType:
    """Return the type of a name that a user wrote.

    Raises:
        RequestError: There is no such type.
    """
    found = find_type(name)
    if found is None:
        known = ", ".join(encodable_types())
        raise RequestError(f"{name} is no type; weights are written as {known}")
    return found
