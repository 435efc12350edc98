"""Which type each tensor of a model gets."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from oxibonsai.errors import RequestError
from oxibonsai.quantize.mixes import Mix, Place
from oxibonsai.quantize.weight_types import WeightType, target_type, type_named

# Matrices by name that are tables of a few numbers, no weights; they stay as they are.
_KEPT = ("ffn_gate_inp", "position_embd", "ssm_conv1d", "token_types")

# Roles that share the rules of another.
_SAME_ROLE = {"attn_qkv": "attn_v", "attn_kv_b": "attn_v", "per_layer_token_embd": "token_embd"}

# What a type gives way to where its groups don't divide the rows; then, to F16.
_WIDER = {
    "Q4_K": "Q5_0",
    "Q5_K": "Q5_1",
    "Q6_K": "Q8_0",
    "Q8_K": "Q8_0",
    "NVFP4": "MXFP4",
}


@dataclass(frozen=True)
class Tensor:
    """A tensor as it is stored; ``shape`` has the slowest dimension first."""

    name: str
    shape: tuple[int, ...]
    type_name: str

    @property
    def count(self) -> int:
        """Return the number of weights."""
        return int(np.prod(self.shape))

    @property
    def role(self) -> str:
        """Return its name without layer and ``.weight``; those that share rules have one."""
        stem = self.name.removesuffix(".weight").rpartition(".")[2]
        return _SAME_ROLE.get(stem, stem)


@dataclass(frozen=True)
class Choice:
    """The choice for a tensor.

    Attributes:
        type: What it is written as.
        wanted: The type that would have been chosen if its groups divided the rows, else None.
    """

    tensor: Tensor
    type: WeightType
    wanted: str | None = None

    @property
    def kept(self) -> bool:
        """Whether its bytes are copied."""
        return self.type.name == self.tensor.type_name

    @property
    def nbytes(self) -> int:
        """Return the tensor's size in the file in bytes."""
        return self.type.size(self.tensor.count)


@dataclass(frozen=True)
class ModelShape:
    """The facts about a model that mixes depend on.

    Attributes:
        grouped: At least four query heads share keys and values.
        large: It has the 80 layers of those with 70 billion weights, and shared keys and values.
    """

    grouped: bool = False
    large: bool = False

    @classmethod
    def of(cls, get: Callable[[str], Any]) -> ModelShape:
        """Read the keys of a GGUF file; what it doesn't say is as in a plain transformer."""
        architecture = get("general.architecture")

        def count(key: str) -> int:
            value = get(f"{architecture}.{key}")
            first = value[0] if isinstance(value, np.ndarray | list) and len(value) else value
            return int(first) if isinstance(first, int | np.integer) else 0

        heads, layers = count("attention.head_count"), count("block_count")
        shared = count("attention.head_count_kv") or heads
        large = layers == 80 and architecture in ("llama", "qwen2") and heads > shared
        return cls(grouped=0 < 4 * shared <= heads, large=large)


class TypeRules:
    """Which type each matrix gets: those of a mix, and the exceptions to it.

    Args:
        mix: The mix.
        pure: Its base type for all matrices.
        token_embedding: Type of the embeddings.
        output: Type of the matrix that gives logits, also where that is the embeddings.
        patterns: Regular expressions, searched in a tensor's name, and the type of those that
            match; the last that matches counts, before anything else.

    Raises:
        RequestError: There is no such type, or a pattern is no regular expression.
    """

    def __init__(
        self,
        mix: Mix,
        *,
        pure: bool = False,
        token_embedding: str | None = None,
        output: str | None = None,
        patterns: Sequence[tuple[str, str]] = (),
    ) -> None:
        self.mix = mix
        self.pure = pure
        self.token_embedding = target_type(token_embedding).name if token_embedding else None
        self.output = target_type(output).name if output else None
        self.patterns = [(_compiled(p), target_type(t).name) for p, t in patterns]

    def named(self, tensor: Tensor, tied: bool) -> str | None:
        """Return the type that the exceptions give a tensor, if they do."""
        for pattern, type_name in reversed(self.patterns):
            if pattern.search(tensor.name):
                return type_name
        if tensor.role == "token_embd" and self.token_embedding:
            return self.token_embedding
        return self.output if _gives_logits(tensor, tied) else None

    def check_patterns(self, tensors: Sequence[Tensor]) -> None:
        """Raise RequestError for a pattern that matches no matrix."""
        for pattern, _ in self.patterns:
            if not any(pattern.search(t.name) for t in tensors):
                raise RequestError(
                    f"the pattern {pattern.pattern!r} matches no matrix of the model; --dry-run lists "
                    "their names"
                )


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as e:
        raise RequestError(f"{pattern!r} is no regular expression: {e}") from e


def choose(
    tensors: Sequence[Tensor], shape: ModelShape, rules: TypeRules, *, measured: bool
) -> list[Choice]:
    """Return a type for each tensor, in their order.

    Args:
        tensors: All of a model.
        shape: What its keys say.
        rules: The mix and its exceptions.
        measured: Whether an importance matrix is given.

    Raises:
        RequestError: A pattern matches nothing.
    """
    matrices = [t for t in tensors if is_matrix(t)]
    rules.check_patterns(matrices)
    tied = not any(t.role == "output" for t in matrices)
    places = _places(matrices, shape, measured)
    return [
        _fitting(t, _type_name(t, rules, places[t.name], tied))
        if t.name in places
        else Choice(t, type_named(t.type_name))
        for t in tensors
    ]


def is_matrix(tensor: Tensor) -> bool:
    """Return whether a tensor holds weights that can be stored in fewer bits."""
    name, stem = tensor.name, tensor.name.removesuffix(".weight")
    plain = name.endswith(".weight") and not stem.endswith("_norm")
    return plain and len(tensor.shape) > 1 and stem.rpartition(".")[2] not in _KEPT


def _places(matrices: Sequence[Tensor], shape: ModelShape, measured: bool) -> dict[str, Place]:
    counts = Counter(t.role for t in matrices)
    seen: Counter[str] = Counter()
    places = {}
    for tensor in sorted(matrices, key=_place_in_order):
        role = tensor.role
        places[tensor.name] = Place(seen[role], counts[role], shape.grouped, shape.large, measured)
        seen[role] += 1
    return places


def _place_in_order(tensor: Tensor) -> tuple[int, str]:
    layer = layer_of(tensor.name)
    return (-1 if layer is None else layer, tensor.name)


def layer_of(name: str) -> int | None:
    """Return the number of the layer that a tensor belongs to; None: it belongs to none."""
    match = re.match(r"[a-z_]+\.([0-9]{1,9})\.", name)
    return int(match[1]) if match else None


def _gives_logits(tensor: Tensor, tied: bool) -> bool:
    return tensor.role == "output" or (tied and tensor.role == "token_embd")


def _type_name(tensor: Tensor, rules: TypeRules, place: Place, tied: bool) -> str:
    if (named := rules.named(tensor, tied)) is not None:
        return named
    base = rules.mix.base
    if rules.pure:
        return base
    if not _gives_logits(tensor, tied):
        return rules.mix.type_of(tensor.role, place)
    if tensor.shape[-1] % type_named(base).group != 0:
        return "Q8_0"
    return rules.mix.type_of("output", place)


def fitting_type(wanted: str, width: int) -> WeightType:
    """Return the type, or its first replacement whose groups divide rows of ``width``."""
    wider = _WIDER.get(wanted, "IQ4_NL" if wanted.startswith("IQ") else "Q4_0")
    for name in (wanted, wider, "F16"):
        kind = type_named(name)
        if width % kind.group == 0:
            break
    return kind


def _fitting(tensor: Tensor, wanted: str) -> Choice:
    kind = fitting_type(wanted, tensor.shape[-1])
    return Choice(tensor, kind, None if kind.name == wanted else wanted)
