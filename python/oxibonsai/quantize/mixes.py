"""Mixes: which tensors of a model get another type than the rest.

The names, the choices and the numbers of ``general.file_type`` are those of llama.cpp's
``llama-quantize``. A rule names a role, a type, and which layers it is for; the first rule that
fits counts. What no rule names gets the mix's base type.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches

from oxibonsai.errors import RequestError
from oxibonsai.quantize.weight_types import encodable_types, find_type, type_named


@dataclass(frozen=True)
class Place:
    """Where a tensor stands.

    Attributes:
        index, count: Its rank among the tensors of its role, and how many these are.
        grouped: At least four query heads share keys and values.
        large: The model has the 80 layers of those with 70 billion weights, and shared keys and values.
        measured: An importance matrix is given.
    """

    index: int
    count: int
    grouped: bool
    large: bool
    measured: bool


Condition = Callable[[Place], bool]


def _always(place: Place) -> bool:
    return True


def _grouped(place: Place) -> bool:
    return place.grouped


def _measured(place: Place) -> bool:
    return place.measured


def _not(condition: Condition) -> Condition:
    return lambda place: not condition(place)


def _first(part: int) -> Condition:
    """Return the first half, quarter, eighth ... of the layers."""
    return lambda place: place.index < place.count // part


def _layers(count: int) -> Condition:
    """Return whether a layer is one of the first."""
    return lambda place: place.index < count


def _middle(place: Place) -> bool:
    """Return whether a layer is in neither the first nor the last eighth."""
    return place.count // 8 <= place.index < 7 * place.count // 8


def _more(place: Place) -> bool:
    """Return the first and the last eighth of the layers, and each third between."""
    return not _middle(place) or (place.index - place.count // 8) % 3 == 2


def _both(one: Condition, other: Condition) -> Condition:
    return lambda place: one(place) and other(place)


@dataclass(frozen=True)
class Rule:
    """Tensors of a role get a type, where the condition holds."""

    role: str
    type_name: str
    condition: Condition = _always


@dataclass(frozen=True)
class Mix:
    """A mix that ``oxibonsai quantize`` accepts.

    Attributes:
        base: Type of most weights.
        file_type: ``general.file_type``; None: llama.cpp has no number for it.
        rules: The exceptions, the first that fits counts.
    """

    base: str
    file_type: int | None = None
    rules: tuple[Rule, ...] = ()

    def type_of(self, role: str, place: Place) -> str:
        """Return the type of a tensor of a role."""
        fitting = (r.type_name for r in self.rules if r.role == role and r.condition(place))
        chosen = next(fitting, None)
        if role == "output" and chosen is None:
            # What turns the last state into logits hurts most.
            return self.base if type_named(self.base).bits >= 8 else "Q6_K"
        chosen = chosen or self.base
        small = role == "attn_v" and place.large and not self.base.startswith(("IQ1", "IQ2"))
        if small and chosen in ("Q3_K", "Q4_K"):
            return "Q5_K"  # so few of so many weights that it costs nothing
        return chosen


def _mix(base: str, file_type: int, *rules: tuple[str, str] | tuple[str, str, Condition]) -> Mix:
    return Mix(base, file_type, tuple(Rule(*r) for r in rules))


# Types of about two bits and less: what is read at every token keeps more bits.
_TWO_BIT = (
    ("output", "Q5_K"),
    ("token_embd", "Q2_K"),
    ("attn_v", "Q4_K", _grouped),
    ("attn_v", "Q2_K"),
    ("ffn_down", "Q2_K", _first(8)),
)
_TWO_BIT_AND_A_HALF = (
    ("output", "Q5_K"),
    ("token_embd", "IQ3_S"),
    ("attn_v", "Q4_K", _grouped),
    ("attn_v", "IQ3_S"),
    ("ffn_down", "IQ3_S", _first(8)),
    ("attn_output", "IQ3_S"),
)
_FOUR_BIT_LEVELS = (
    ("attn_v", "Q5_K", _grouped),
    ("ffn_down", "Q5_K", _both(_first(8), _not(_measured))),
)
_TERNARY = (("token_embd", "Q4_K"),)

MIXES: dict[str, Mix] = {
    "F32": Mix("F32", 0),
    "F16": Mix("F16", 1),
    "BF16": Mix("BF16", 32),
    "Q8_0": Mix("Q8_0", 7),
    "Q4_0": _mix("Q4_0", 2, ("ffn_down", "Q4_1", _both(_first(8), _measured))),
    "Q4_1": Mix("Q4_1", 3),
    "Q5_0": _mix("Q5_0", 8, ("ffn_down", "Q5_1", _both(_first(8), _measured))),
    "Q5_1": Mix("Q5_1", 9),
    "Q2_K": _mix(
        "Q2_K",
        10,
        ("attn_v", "Q4_K", _grouped),
        ("attn_v", "Q3_K"),
        ("ffn_down", "Q3_K"),
        ("attn_output", "Q3_K"),
    ),
    "Q2_K_S": _mix("Q2_K", 21, ("attn_v", "Q4_K", _grouped), ("ffn_down", "Q4_K", _first(8))),
    "Q3_K_S": Mix("Q3_K", 11),
    "Q3_K_M": _mix(
        "Q3_K",
        12,
        ("attn_v", "Q5_K", _layers(2)),
        ("attn_v", "Q4_K"),
        ("ffn_down", "Q5_K", _first(16)),
        ("ffn_down", "Q4_K"),
        ("attn_output", "Q4_K"),
    ),
    "Q3_K_L": _mix(
        "Q3_K",
        13,
        ("attn_v", "Q5_K"),
        ("ffn_down", "Q5_K"),
        ("attn_output", "Q5_K"),
    ),
    "Q4_K_S": _mix("Q4_K", 14, ("attn_v", "Q5_K", _layers(4)), ("ffn_down", "Q5_K", _first(8))),
    "Q4_K_M": _mix(
        "Q4_K",
        15,
        ("attn_v", "Q6_K", _more),
        ("ffn_down", "Q6_K", _more),
    ),
    "Q5_K_S": Mix("Q5_K", 16),
    "Q5_K_M": _mix(
        "Q5_K",
        17,
        ("attn_v", "Q6_K", _more),
        ("ffn_down", "Q6_K", _more),
    ),
    "Q6_K": Mix("Q6_K", 18),
    "IQ1_S": _mix("IQ1_S", 24, *_TWO_BIT, ("attn_output", "IQ2_XXS")),
    "IQ1_M": _mix("IQ1_M", 31, *_TWO_BIT, ("attn_output", "IQ2_XXS")),
    "IQ2_XXS": _mix("IQ2_XXS", 19, *_TWO_BIT),
    "IQ2_XS": _mix("IQ2_XS", 20, *_TWO_BIT),
    "IQ2_S": _mix("IQ2_XS", 28, *_TWO_BIT_AND_A_HALF),
    "IQ2_M": _mix("IQ2_S", 29, *_TWO_BIT_AND_A_HALF),
    "IQ3_XXS": _mix(
        "IQ3_XXS",
        23,
        ("output", "Q5_K"),
        ("token_embd", "IQ3_S"),
        ("attn_v", "Q4_K", _grouped),
        ("attn_v", "IQ3_S", _not(_measured)),
        ("attn_q", "IQ2_S"),
        ("attn_k", "IQ2_S"),
        ("ffn_down", "Q4_K", _both(_first(8), _not(_measured))),
        ("ffn_down", "Q3_K", _not(_measured)),
        ("attn_output", "IQ3_S"),
    ),
    "IQ3_XS": _mix(
        "IQ3_S",
        22,
        ("attn_v", "Q4_K", _grouped),
        ("attn_q", "IQ3_XXS"),
        ("attn_k", "IQ3_XXS"),
        ("ffn_gate", "IQ3_XXS", _middle),
        ("ffn_up", "IQ3_XXS", _middle),
    ),
    "IQ3_S": _mix("IQ3_S", 26, ("attn_v", "Q4_K", _grouped)),
    "IQ3_M": _mix(
        "IQ3_S",
        27,
        ("attn_v", "Q4_K"),
        ("ffn_down", "Q4_K", _first(8)),
        ("attn_output", "Q4_K"),
    ),
    "IQ4_NL": _mix("IQ4_NL", 25, *_FOUR_BIT_LEVELS),
    "IQ4_XS": _mix("IQ4_XS", 30, *_FOUR_BIT_LEVELS),
    "Q1_0": Mix("Q1_0", 40),
    "Q2_0_g64": _mix("Q2_0_g64", 41, *_TERNARY),
    "TQ1_0": _mix("TQ1_0", 36, *_TERNARY),
    "TQ2_0": _mix("TQ2_0", 37, *_TERNARY),
}

# The names of types that stand for a mix, as llama-quantize has them.
_ALIASES = {"Q3_K": "Q3_K_M", "Q4_K": "Q4_K_M", "Q5_K": "Q5_K_M"}


def file_type_of(type_name: str) -> int | None:
    """Return ``general.file_type`` of a file that is mostly of one type; None: llama.cpp has none."""
    mix = MIXES.get(type_name)
    return None if mix is None else mix.file_type


def mix_of_file(file_type: int | None, type_name: str) -> str:
    """Return the name of the mix that a file was written with, as ``Q4_K_M``.

    Args:
        file_type: Its ``general.file_type``; None: it has none.
        type_name: Type of most of its weights, which is its name where the number names no such mix.
    """
    named = (
        name for name, mix in MIXES.items() if mix.file_type == file_type and mix.base == type_name
    )
    return next(named, type_name) if file_type is not None else type_name


def mix_names() -> list[str]:
    """Return the types of ``oxibonsai quantize``: mixes, then types without a mix of their own."""
    return [*MIXES, *(t for t in encodable_types() if t not in (*MIXES, *_ALIASES))]


def find_mix(name: str) -> Mix:
    """Return the mix of a name, in any case; a type without one has no exceptions but the output.

    Raises:
        RequestError: There is none.
    """
    upper = name.upper()
    found = MIXES.get(_ALIASES.get(upper, upper))
    if found is None and (kind := find_type(name)) is not None:
        found = MIXES.get(kind.name) or Mix(kind.name)
    if found is None:
        likely = get_close_matches(name.upper(), mix_names(), n=1)
        hint = f"did you mean {likely[0]}? " if likely else ""
        raise RequestError(
            f"{name} is no type; {hint}oxibonsai quantize knows {', '.join(mix_names())}"
        )
    return found
