"""Rotary embeddings: what turns a head's pairs, and by how much."""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal, localcontext


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
        attention_factor: Magnitude of cos and sin; for YaRN it multiplies their growth.
        frequency_factors: Divisors of the frequencies, one a pair (Llama 3's ``rope_freqs``).
        yarn_multiplier: YaRN's cos and sin grow by 1 + this times ln(factor).
        ramp_of_pairs: YaRN's ramp begins and ends at a pair; else where the turns are reached exactly.
        interleaved: Pairs are (2i, 2i + 1) instead of (i, i + rotary_dim / 2).
        temperature, temperature_step: Of queries that grow with the text: cos and sin are multiplied
            by ``1 + temperature * ln(1 + floor((position + offset) / step))``, too; a step of 0: they
            are not.
        temperature_offset: Of that.
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
    temperature: float = 0.0
    temperature_step: int = 0
    temperature_offset: int = 0
    ramp_of_pairs: bool = True
    yarn_multiplier: float = 0.1

    def without(self) -> RopeConfig:
        """One that rotates nothing."""
        return replace(self, rotary_dim=0)

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

        low, high = pair(self.beta_fast), pair(self.beta_slow)
        if self.ramp_of_pairs:
            low = low.to_integral_value(rounding="ROUND_FLOOR")
            high = high.to_integral_value(rounding="ROUND_CEILING")
        return max(low, Decimal(0)), min(high, Decimal(self.rotary_dim - 1))

    def magnitude(self) -> float:
        """Factor of cos and sin."""
        if self.scaling != "yarn":
            return self.attention_factor
        with localcontext() as context:
            context.prec = 40
            yarn = 1 + Decimal(str(self.yarn_multiplier)) * Decimal(self.factor).ln()
            return float(Decimal(self.attention_factor) * yarn)
