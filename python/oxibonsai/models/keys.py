"""Reads the metadata of one architecture, and refuses what it did not read."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import replace
from decimal import Decimal, localcontext
from typing import Any

import numpy as np
import numpy.typing as npt

from oxibonsai.architectures.rotary import DYNAMIC_FACTOR
from oxibonsai.architectures.schema.sources import key_name
from oxibonsai.checkpoint import Checkpoint
from oxibonsai.errors import FormatError, UnsupportedError
from oxibonsai.graph import RopeConfig, section_axes

# Keys that say nothing which changes a result, in every architecture; and those that say nothing
# where they are zero.
_IDLE = frozenset({"rope.scaling.finetuned", "tensor_data_layout", "vocab_size"})
_IDLE_WHEN_ZERO = frozenset(
    {
        "attention.sliding_window",
        "attn_logit_softcapping",
        "expert_count",
        "expert_used_count",
        "final_logit_softcapping",
        "nextn_predict_layers",
    }
)
# Values of pooling_type. 0 leaves it open; 4 is that of a classifier's head.
_POOLINGS = {1: "mean", 2: "cls", 3: "last"}
_RANK = 4


class Keys:
    """The keys of a checkpoint's own architecture, ``ARCHITECTURE.KEY``.

    Args:
        checkpoint: The model's file.
        ctx_size: Positions of a text that the model is loaded for; None: its own.

    Attributes:
        architecture: As the file names it.
    """

    def __init__(self, checkpoint: Checkpoint, ctx_size: int | None = None) -> None:
        self.checkpoint = checkpoint
        self._ctx_size = ctx_size
        self.architecture = checkpoint.architecture
        self._file = checkpoint.file
        self._read = set(_IDLE)

    @property
    def tensor_names(self) -> set[str]:
        """Names of the file's tensors."""
        return self.checkpoint.tensor_names

    def tensor_shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor; FormatError where the file lacks it."""
        return self.checkpoint.shape(name)

    def tensor_values(self, name: str) -> npt.NDArray[np.float32]:
        """Return a small tensor as float32; FormatError where the file lacks it."""
        return self.checkpoint.vector(name)

    def fail(self, problem: str) -> FormatError:
        """Return an error that names the file."""
        return FormatError(f"{self.checkpoint.path}: {problem}")

    def unsupported(self, problem: str) -> UnsupportedError:
        """Return the error for a valid file that asks for what is not there."""
        return UnsupportedError(f"{self.checkpoint.path}: {problem}")

    def get(self, key: str, default: Any = None) -> Any:
        """Return a key's value as it stands."""
        self._read.add(key)
        return self._file.get(key_name(self.architecture, key), default)

    def has(self, key: str) -> bool:
        """Return whether the file has a key."""
        found: object = self.get(key)
        return found is not None

    def integer(self, key: str, default: int | None = None) -> int:
        """Return a count from 1 to 2**31; the same value for all layers where the file lists them."""
        value = self.get(key, default)
        name = f"{self.architecture}.{key}"
        if value is None:
            raise self.fail(f"the key {name} is missing")
        if isinstance(value, np.ndarray):
            if value.size == 0 or not (value == value[0]).all():
                raise self.unsupported(
                    f"{name} differs from layer to layer, which is not supported"
                )
            value = value[0].item()
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 2**31:
            raise self.fail(f"{name} is {value!r}, not a positive count")
        return value

    def count(self, key: str, default: int = 0) -> int:
        """Return a count that may be zero."""
        return 0 if self.is_zero(key, default) else self.integer(key, default)

    def is_zero(self, key: str, default: int | None = None) -> bool:
        """Return whether a key is the number 0, and no list."""
        value = self.get(key, default)
        return isinstance(value, int | float) and value == 0

    def layers(self) -> int:
        """Return ``block_count``; each layer has tensors, so that a file can't claim any number."""
        count, tensors = self.integer("block_count"), len(self.checkpoint.tensor_names)
        if count > tensors:
            raise self.fail(f"{self.architecture}.block_count is {count}, of {tensors} tensors")
        return count

    def counts(self, key: str, layers: int) -> list[int]:
        """Return a count, 0 among them, for each layer: listed, or the same for all."""
        value = self.get(key)
        if isinstance(value, np.ndarray):
            value = value.tolist()
        listed = value if isinstance(value, list) else [value] * layers
        whole = all(type(n) is int and 0 <= n < 2**31 for n in listed)
        if not whole or len(listed) != layers:
            raise self.fail(f"{self.architecture}.{key} is {value!r}, no counts of {layers} layers")
        return listed

    def real(self, key: str, default: float | None = None) -> float:
        """Return a finite number."""
        value = self.get(key, default)
        name = f"{self.architecture}.{key}"
        if value is None:
            raise self.fail(f"the key {name} is missing")
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not math.isfinite(value):
            raise self.fail(f"{name} is {value!r}, not a finite number")
        return float(value)

    def positive(self, key: str, default: float | None = None) -> float:
        """Return a finite number above zero."""
        value = self.real(key, default)
        if value <= 0.0:
            raise self.fail(f"{self.architecture}.{key} is {value}, not above zero")
        return value

    def flag(self, key: str, default: bool) -> bool:
        """Return a truth value."""
        value = self.get(key, default)
        if not isinstance(value, bool):
            raise self.fail(f"{self.architecture}.{key} is {value!r}, not true or false")
        return value

    def local_layers(self, period: int) -> tuple[bool, ...]:
        """Return whether each layer attends within the sliding window only.

        ``attention.sliding_window_pattern`` lists the layers, or says how many make a period, whose
        last one is global; without it ``period`` does. Layers that predict further tokens are not
        among them, whether or not the list has them.
        """
        whole = self.layers()
        layers = whole - self.drafting_layers(whole)
        key = "attention.sliding_window_pattern"
        found = self.get(key)
        if not isinstance(found, list | np.ndarray):
            step = self.integer(key, period)
            return tuple((i + 1) % step != 0 for i in range(layers))
        truths = all(isinstance(local, bool | np.bool_) for local in found)
        if len(found) not in (layers, whole) or not truths:
            raise self.fail(
                f"{self.architecture}.{key} does not say of {layers} layers what they are"
            )
        return tuple(bool(local) for local in found[:layers])

    def causal(self, wanted: bool) -> bool:
        """Return ``attention.causal``, which must be what the architecture is."""
        found: object = self.get("attention.causal", wanted)
        if found is not wanted:
            raise self.unsupported(
                f"{self.architecture}.attention.causal is {not wanted}, which the architecture does "
                "not have in this version"
            )
        return wanted

    def text(self, key: str, default: str, known: Collection[str]) -> str:
        """Return a word, one of those known."""
        value = self.get(key, default)
        if not isinstance(value, str) or value not in known:
            raise self.unsupported(
                f"{self.architecture}.{key} is {value!r}; known are {', '.join(known)}"
            )
        return value

    def pooling(self, default: str, key: str = "pooling_type") -> str:
        """Return ``pooling_type``: how embeddings are made of hidden states."""
        value = self.get(key, 0)
        whole = isinstance(value, int)
        if whole and (value == 0 or (value == _RANK and self.has_classifier)):
            return default
        if not whole or value not in _POOLINGS:
            raise self.unsupported(
                f"{self.architecture}.{key} is {value!r}; known are 1 (mean), 2 (cls), 3 (last) and, "
                "with the tensors of a classifier, 4 (rank)"
            )
        return _POOLINGS[value]

    @property
    def has_classifier(self) -> bool:
        """Whether the file has the tensors of a classifier's head."""
        return any(self.checkpoint.has(f"{name}.weight") for name in ("cls", "cls.output"))

    @property
    def tells_texts_apart(self) -> bool:
        """Whether the tokenizer gives the texts of a pair types of their own."""
        model = self._file.text("tokenizer.ggml.model", "bert")
        return model in ("bert", "no_vocab")

    def window(self) -> int:
        """Return ``attention.sliding_window``; 0: none."""
        key = "attention.sliding_window"
        return self.count(key)

    def drafting_layers(self, layers: int) -> int:
        """Return ``nextn_predict_layers``: how many of the last layers predict further tokens, 0 or 1."""
        count = self.get("nextn_predict_layers", 0)
        if type(count) is not int or count not in (0, 1) or count >= layers:
            raise self.unsupported(
                f"{self.architecture}.nextn_predict_layers is {count!r}; known are 0 and 1, fewer than "
                f"the {layers} layers"
            )
        return count

    def multimodal_rope(self, head_dim: int, *, interleaved_sections: bool) -> RopeConfig:
        """Return the rotary embedding of a model that reads images (M-RoPE).

        ``rope.dimension_sections`` counts the pairs that turn by time, height and width, and must count
        all of them; without it all turn by the position in the sequence.

        Args:
            head_dim: Of a head.
            interleaved_sections: See :func:`oxibonsai.graph.section_axes`.
        """
        rope = self.rope(head_dim)
        sections = self.get("rope.dimension_sections")
        if sections is None:
            return rope
        pairs = rope.rotary_dim // 2
        values = sections.tolist() if isinstance(sections, np.ndarray) else sections
        whole = isinstance(values, list) and all(type(v) is int and v >= 0 for v in values)
        if not whole or not 0 < len(values) <= 4 or sum(values) < pairs or any(values[3:]):
            raise self.fail(
                f"{self.architecture}.rope.dimension_sections is {values!r}, no counts of "
                f"{pairs} pairs on three axes"
            )
        counts = tuple([*values, 0, 0][:3])
        return replace(rope, axes=section_axes(counts, pairs, interleaved=interleaved_sections))

    def theta(self, key: str, default: float = 10000.0) -> float:
        """Return the base of a rotary embedding's frequencies."""
        value = self.real(key, default)
        if value <= 1.0:
            raise self.fail(f"{self.architecture}.{key} is {value}, not above 1")
        return value

    def rope(self, head_dim: int, *, interleaved: bool = False) -> RopeConfig:
        """Return the rotary embedding that the ``rope.`` keys describe."""
        rotary = self.integer("rope.dimension_count", head_dim)
        if rotary % 2 != 0 or rotary > head_dim:
            raise self.fail(
                f"{self.architecture}.rope.dimension_count is {rotary}, odd or above {head_dim}"
            )
        known = ("none", "linear", "yarn", "longrope")
        scaling = self.text("rope.scaling.type", "linear", known)  # which a factor alone means
        if scaling == "longrope":  # all of it is in the tables of factors
            if not self.checkpoint.has("rope_factors_long.weight"):
                raise self.fail("rope scaling of type longrope needs rope_factors_long.weight")
            scaling = "none"
        factor = self.real("rope.scaling.factor", self.real("rope.scale_linear", 1.0))
        if factor <= 0.0:
            raise self.fail(f"{self.architecture}.rope.scaling.factor is {factor}, not above zero")
        if scaling == "linear" and factor == 1.0:
            scaling = "none"
        context = self.integer("context_length")
        if self.has(DYNAMIC_FACTOR):
            return self._dynamic_rope(rotary, scaling, context, interleaved=interleaved)
        original = self.integer("rope.scaling.original_context_length", context)
        return RopeConfig(
            rotary_dim=rotary,
            theta=self.theta("rope.freq_base"),
            scaling=scaling,
            factor=factor,
            original_context=original if scaling == "yarn" else 0,
            beta_fast=self.positive("rope.scaling.yarn_beta_fast", 32.0),
            beta_slow=self.positive("rope.scaling.yarn_beta_slow", 1.0),
            attention_factor=self._attention_factor(scaling, factor),
            frequency_factors=self._frequency_factors(rotary),
            interleaved=interleaved,
        )

    def _dynamic_rope(
        self, rotary: int, scaling: str, context: int, *, interleaved: bool
    ) -> RopeConfig:
        """Return the embedding whose base is chosen by the size of the context, like LongRoPE's factors."""
        factor = self.positive(DYNAMIC_FACTOR)
        if scaling != "none" or factor < 1.0 or rotary < 4:
            raise self.fail(
                f"{self.architecture}.{DYNAMIC_FACTOR} is {factor}: it is 1 or more, for heads of which 4 "
                "dims or more are rotated, and there is no other scaling beside it"
            )
        return RopeConfig(
            rotary_dim=rotary,
            theta=self.theta("rope.freq_base"),
            scaling="dynamic",
            factor=factor,
            original_context=context,
            context=min(self._ctx_size or context, int(context * factor)),
            frequency_factors=self._frequency_factors(rotary),
            interleaved=interleaved,
        )

    def _attention_factor(self, scaling: str, factor: float) -> float:
        """Return the factor of cos and sin: YaRN's own, 1 + 0.1 ln(factor), or 1.

        ``yarn_attn_factor`` is the whole magnitude, and ``yarn_log_multiplier`` how many of its
        logarithms to undo.
        """
        stated = self.positive("rope.scaling.attn_factor", 1.0)
        undone = self.real("rope.scaling.yarn_log_multiplier", 0.0)
        if undone < 0.0:
            raise self.fail(
                f"{self.architecture}.rope.scaling.yarn_log_multiplier is {undone}, below zero"
            )
        if self.has("rope.scaling.yarn_attn_factor"):
            stated, undone = self.positive("rope.scaling.yarn_attn_factor"), 1.0
        if scaling != "yarn":
            return stated
        with localcontext() as context:
            context.prec = 40
            own = 1 + Decimal("0.1") * Decimal(undone) * Decimal(factor).ln()
            return float(Decimal(stated) / own)

    def _frequency_factors(self, rotary: int) -> tuple[float, ...]:
        """Return the divisors of the frequencies; of LongRoPE's two sets the one for the context's size.

        As in llama.cpp and vLLM, what counts is how long texts may become, not how long one is: keys in
        the cache need not change when a text grows past the original context.
        """
        name, long = "rope_freqs.weight", self.checkpoint.has("rope_factors_long.weight")
        if long != self.checkpoint.has("rope_factors_short.weight"):
            raise self.fail("it has one of rope_factors_long.weight and rope_factors_short.weight")
        if long:
            whole = self.integer("context_length")
            original = self.integer("rope.scaling.original_context_length", whole)
            extended = (self._ctx_size or whole) > original
            name = f"rope_factors_{'long' if extended else 'short'}.weight"
        if not self.checkpoint.has(name):
            return ()
        values = self.checkpoint.vector(name)
        if values.size != rotary // 2 or not (values > 0).all():
            raise self.fail(
                f"{name} needs {rotary // 2} positive values, one for each rotated pair"
            )
        return tuple(float(v) for v in values)

    def refuse_unread(self) -> None:
        """Raise UnsupportedError for a key that nobody asked for: it may change the model's arithmetic."""
        prefix = f"{self.architecture}."
        for name in self._file.keys():  # noqa: SIM118 - not a dict
            key = name.removeprefix(prefix)
            if not name.startswith(prefix) or key in self._read:
                continue
            if key in _IDLE_WHEN_ZERO and self.is_zero(key):
                continue
            raise UnsupportedError(
                f"{self.checkpoint.path} has the key {name}, which this version does not know for "
                f"architecture {self.architecture} and which may change the arithmetic of the model"
            )
