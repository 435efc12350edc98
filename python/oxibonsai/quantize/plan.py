"""Plan the quantization of a file: said before it is done."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from oxibonsai import _core
from oxibonsai.checkpoint.reader import Reader
from oxibonsai.errors import RequestError
from oxibonsai.quantize.blocks import Floats, Loss, Matrix, sample_loss
from oxibonsai.quantize.importance import ImportanceMatrix, check_importance, importance_of
from oxibonsai.quantize.type_choice import Choice, ModelShape, Tensor, TypeRules, choose
from oxibonsai.quantize.weight_types import WeightType, encodable_types, type_named

_SAMPLE_WEIGHTS = 1 << 16  # of each tensor, to foretell what is lost

# Types for weights that are binary or ternary already, and what they may lose by rounding scales.
FEW_VALUES = {
    "Q1_0": "binary",
    "Q2_0_g64": "ternary",
    "Q2_0_g128": "ternary",
    "TQ2_0_g128": "ternary",
    "PTQ1_0": "ternary",
    "TQ1_0": "ternary",
    "TQ2_0": "ternary",
}
_LARGEST_LOSS_OF_SCALES = 0.01

_FLOATS = ("F32", "F16", "BF16")

# Types that llama.cpp has no number for, or does not take as weights.
OWN_TYPES = ("Q8_1", "Q8_K", "F8_E4M3", "F8_E5M2", "Q2_0_g128", "TQ2_0_g128", "PTQ1_0")


@dataclass(frozen=True)
class Plan:
    """The choice for each tensor of a file.

    Attributes:
        file: The source.
        choices: In the order of its tensors.
        file_type: ``general.file_type`` of the result; None: it has none.
        imatrix: The importance of columns, where it is given.
        pruned: Types that tensors had before they were pruned, by name; their zeros must be read as
            zeros, whatever their type.
    """

    file: Reader
    choices: list[Choice]
    file_type: int | None
    imatrix: ImportanceMatrix | None
    pruned: Mapping[str, str] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """Return the size of all tensors in the new file in bytes."""
        return sum(c.nbytes for c in self.choices)

    @property
    def bits(self) -> float:
        """Return the bits of a weight, on average over all tensors."""
        return self.nbytes * 8 / max(1, sum(c.tensor.count for c in self.choices))

    def matrix(self, choice: Choice) -> Matrix:
        """Return the values of a tensor that is encoded anew."""
        tensor, stored = choice.tensor, type_named(choice.tensor.type_name)
        cols = tensor.shape[-1]
        rows, row_bytes = tensor.count // cols, stored.size(cols)
        data = self.file.tensor_bytes(tensor.name)

        def read(first: int, last: int) -> Floats:
            blocks = data[first * row_bytes : last * row_bytes]
            return _core.decode(stored.name, blocks).reshape(-1, cols)

        where = f"{self.file.paths[0]}: tensor {tensor.name}"
        keeps_zeros = tensor.name in self.pruned
        return Matrix(where, rows, cols, read, self._importance(choice), keeps_zeros)

    def _importance(self, choice: Choice) -> Floats | None:
        return None if self.imatrix is None else importance_of(choice, self.imatrix)

    def expected_losses(self) -> dict[str, Loss]:
        """Return by type for binary or ternary weights what it loses on samples of the tensors."""
        losses: defaultdict[str, Loss] = defaultdict(Loss)
        for choice in self.choices:
            if choice.type.name in FEW_VALUES and not choice.kept:
                matrix = self.matrix(choice)
                rows = max(1, _SAMPLE_WEIGHTS // matrix.cols)
                losses[choice.type.name] += sample_loss(matrix, choice.type, rows)
        return dict(losses)

    def warnings(self, *, allow_requantize: bool = False) -> list[str]:
        """Return warnings for the user, the worst first.

        Args:
            allow_requantize: Nothing is said of weights that are quantized already.
        """
        losses = self.expected_losses().items()
        found = [w for name, loss in losses if (w := destruction(name, loss))]
        found += [*fallback_warnings(self.choices), *self._notes()]
        if not allow_requantize and (types := self._requantized_types()):
            found.append(
                f"the source holds weights that are quantized already ({', '.join(types)}): the loss "
                "adds to theirs; start from F32, F16 or BF16 where you can"
            )
        return found

    def _requantized_types(self) -> list[str]:
        """Return the types of the source whose weights are rounded a second time, to another type."""
        found = set()
        for choice in self.choices:
            before = self.pruned.get(choice.tensor.name, choice.tensor.type_name)
            if choice.type.name not in {before, *_FLOATS}:
                found.add(before)
        return sorted(found - {*_FLOATS})

    def _notes(self) -> list[str]:
        notes = []
        new = [c for c in self.choices if not c.kept]
        if own := sorted({c.type.name for c in new} & {*OWN_TYPES}):
            notes.append(f"llama.cpp does not read {', '.join(own)}; oxibonsai does")
        if self.imatrix is not None:
            absent = [c.tensor.name for c in new if self._lacks_entry(c)]
            if absent:
                notes.append(
                    f"the importance matrix has no entry for {len(absent)} tensors, whose columns count "
                    f"alike; the first is {absent[0]}"
                )
        return notes

    def _lacks_entry(self, choice: Choice) -> bool:
        used = encodable_types().get(choice.type.name) != "unused"
        # Embeddings are looked up, not multiplied: nobody measures them.
        looked_up = choice.tensor.role == "token_embd"
        return used and not looked_up and self._importance(choice) is None


def make_plan(file: Reader, rules: TypeRules, imatrix: ImportanceMatrix | None) -> Plan:
    """Choose a type for each tensor of a file, and check that it can be had.

    Raises:
        RequestError: A pattern matches nothing, or a type needs an importance matrix.
        FormatError: The importance matrix is of another model.
    """
    tensors = [Tensor(t.name, tuple(t.shape), t.quant_type) for t in file.tensors]
    readable = [t for t, info in zip(tensors, file.tensors, strict=True) if info.decodable]
    chosen = choose(readable, ModelShape.of(file.get), rules, measured=imatrix is not None)
    check_importance(chosen, imatrix)
    by_name = {c.tensor.name: c for c in chosen}
    choices = [
        by_name.get(t.name)
        or Choice(t, WeightType(t.type_name, info.gguf_id, t.count, info.nbytes))
        for t, info in zip(tensors, file.tensors, strict=True)
    ]
    _refuse_two_layouts(choices)
    return Plan(file, choices, rules.mix.file_type, imatrix)


def _refuse_two_layouts(choices: list[Choice]) -> None:
    """Refuse types that share a number: they can't be told apart in one file."""
    named: dict[int, str] = {}
    for choice in choices:
        number, name = choice.type.gguf_id, choice.type.name
        if (other := named.setdefault(number, name)) != name:
            raise RequestError(
                f"{choice.tensor.name} would be {name} beside tensors of {other}; both have the number "
                f"{number} in GGUF, so one file can hold one of them"
            )


def fallback_warnings(choices: list[Choice]) -> list[str]:
    """Return one sentence for each type that gave way to another."""
    found: defaultdict[tuple[str, str], list[Tensor]] = defaultdict(list)
    for choice in choices:
        if choice.wanted is not None:
            found[choice.wanted, choice.type.name].append(choice.tensor)
    return [
        f"{wanted} has groups of {type_named(wanted).group} weights, which do not divide the rows of "
        f"{len(tensors)} tensors; they become {used}: {_listed(tensors)}"
        for (wanted, used), tensors in found.items()
    ]


def _listed(tensors: list[Tensor]) -> str:
    some = ", ".join(f"{t.name} ({t.shape[-1]})" for t in tensors[:3])
    return some + (" ..." if len(tensors) > 3 else "")


def destruction(type_name: str, loss: Loss) -> str | None:
    """Return a warning where weights are not the few values that a type can hold."""
    if type_name not in FEW_VALUES or loss.relative <= _LARGEST_LOSS_OF_SCALES:
        return None
    noise = 20 * math.log10(1 / loss.relative)
    return (
        f"{type_name} DESTROYS THIS MODEL: its weights are not {FEW_VALUES[type_name]}. Expected error "
        f"of a weight: {loss.relative:.0%} of its size ({noise:.1f} dB), where Q4_K has about 7 %. The "
        "text will be gibberish; this type is for models that were trained for it"
    )
