"""What a model is, in Hugging Face's words: dimensions and constants read from a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal, localcontext

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class RopeConfig:
    """One rotary embedding.

    Attributes:
        rotary_dim: Rotated dimensions of a head; the others pass through. 0: nothing is rotated.
        theta: Base of the frequencies.
        scaling: ``"none"``, ``"linear"`` or ``"yarn"``.
        factor: How many times longer the context became by scaling.
        original_context: Positions of the unscaled model (YaRN).
        beta_fast, beta_slow: Turns over the original context at which YaRN starts and ends to
            interpolate.
        attention_factor: Magnitude of cos and sin; for YaRN it multiplies 1 + 0.1 ln(factor).
        frequency_factors: Divisors of the frequencies, one a pair (Llama 3's ``rope_freqs``).
        interleaved: Pairs are (2i, 2i + 1) instead of (i, i + rotary_dim / 2).
    """

    rotary_dim: int
    theta: float
    scaling: str = "none"
    factor: float = 1.0
    original_context: int = 0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float = 1.0
    frequency_factors: tuple[float, ...] = ()
    interleaved: bool = False

    def frequencies(self) -> list[float]:
        """Angle per position of each pair, as exact decimals rounded once to a double.

        ``theta ** (-2i / rotary_dim)``, scaled as the configuration says. YaRN (arXiv 2309.00071) as
        llama.cpp runs it: between the pairs that turn ``beta_fast`` and ``beta_slow`` times over the
        original context, a ramp mixes the plain and the interpolated frequency, at every position.
        Decimal arithmetic, because libm's pow differs between machines and results must not.
        """
        pairs = self.rotary_dim // 2
        with localcontext() as context:
            context.prec = 40
            theta = Decimal(self.theta)
            plain = [theta ** (Decimal(-2 * i) / self.rotary_dim) for i in range(pairs)]
            if self.frequency_factors:
                plain = [f / Decimal(d) for f, d in zip(plain, self.frequency_factors, strict=True)]
            if self.scaling == "none":
                return [float(f) for f in plain]
            factor = Decimal(self.factor)
            if self.scaling == "linear":
                return [float(f / factor) for f in plain]
            low, high = self._ramp()
            mixed = []
            for i, f in enumerate(plain):
                rise = (Decimal(i) - low) / max(high - low, Decimal("0.001"))
                interpolated = min(max(rise, Decimal(0)), Decimal(1))
                mixed.append(float(f / factor * interpolated + f * (1 - interpolated)))
            return mixed

    def _ramp(self) -> tuple[Decimal, Decimal]:
        """First and last pair of YaRN's ramp."""
        pi = Decimal("3.141592653589793238462643383279502884197")

        def pair(turns: float) -> Decimal:
            wavelength = Decimal(self.original_context) / (Decimal(turns) * 2 * pi)
            return Decimal(self.rotary_dim) * wavelength.ln() / (2 * Decimal(self.theta).ln())

        low = pair(self.beta_fast).to_integral_value(rounding="ROUND_FLOOR")
        high = pair(self.beta_slow).to_integral_value(rounding="ROUND_CEILING")
        return max(low, Decimal(0)), min(high, Decimal(self.rotary_dim - 1))

    def magnitude(self) -> float:
        """Factor of cos and sin."""
        if self.scaling != "yarn":
            return self.attention_factor
        with localcontext() as context:
            context.prec = 40
            yarn = 1 + Decimal("0.1") * Decimal(self.factor).ln()
            return float(Decimal(self.attention_factor) * yarn)


@dataclass(frozen=True)
class HadamardFold:
    """Weights stored in the basis of a block Walsh-Hadamard transform H (Bonsai 2).

    With s the signs of a row's width: a folded matrix is multiplied with H(s * x) in place of x, and
    a row z of a folded table stands for s * H(z).

    Attributes:
        block: Values of a row that are transformed together, a power of two.
        matrices: Names of the folded matrices' tensors.
        tables: Those of the folded tables.
        signs: -1 and 1 for each width; none at all: every sign is 1.
        tied_output: The folded token embedding is the output matrix, too.
    """

    block: int
    matrices: frozenset[str]
    tables: frozenset[str]
    signs: Mapping[int, npt.NDArray[np.float32]]
    tied_output: bool = False

    def has_matrix(self, name: str) -> bool:
        """Whether a linear layer on this tensor wants its input transformed."""
        return name in self.matrices or (self.tied_output and name in self.tables)

    def has_table(self, name: str) -> bool:
        """Whether this tensor's rows want to be transformed back."""
        return name in self.tables

    def signs_of(self, width: int) -> npt.NDArray[np.float32] | None:
        """The signs of rows of a width; None where all are 1."""
        return self.signs[width] if self.signs else None


@dataclass(frozen=True)
class ModelConfig:
    """Dimensions and constants of one model; fields carry Hugging Face's names.

    Attributes:
        rope: Rotary embedding of the (global) attention layers.
        rope_local: That of sliding-window layers, where it differs.
        sliding_window: Keys that a query of a local layer sees, itself counted; 0: all.
        sliding_window_pattern: Every n-th layer is global, the others local; 0: all are global.
        attention_scale: Factor of the scores.
        attn_logit_softcapping, final_logit_softcapping: 0 where absent.
        rms_norm_eps, layer_norm_eps: Of the kind of norm that the model has; 0 for the other.
        causal: A token sees those before it; False for encoders, which see the whole text, end with
            a norm of their own and have no output matrix.
        pooling: How the model's embeddings are made of its hidden states: ``"last"``, ``"mean"`` or
            ``"cls"``.
        hadamard: How weights are folded; None: they are not.
    """

    architecture: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    max_position_embeddings: int
    rms_norm_eps: float
    rope: RopeConfig
    attention_scale: float
    rope_local: RopeConfig | None = None
    sliding_window: int = 0
    sliding_window_pattern: int = 0
    attn_logit_softcapping: float = 0.0
    final_logit_softcapping: float = 0.0
    layer_norm_eps: float = 0.0
    causal: bool = True
    pooling: str = "last"
    name: str = ""
    hadamard: HadamardFold | None = field(default=None, repr=False, compare=False)

    @property
    def paged_layers(self) -> list[tuple[int, int, int]]:
        """Key-value heads and the dims of a key and of a value, of each layer of the cache."""
        if not self.causal:
            return []
        layer = (self.num_key_value_heads, self.head_dim, self.head_dim)
        return [layer] * self.num_hidden_layers

    def is_local(self, layer: int) -> bool:
        """Whether the layer attends within the sliding window only."""
        if self.sliding_window == 0:
            return False
        if self.sliding_window_pattern == 0:
            return True
        return (layer + 1) % self.sliding_window_pattern != 0
