"""Rotary embeddings: what turns a head's pairs, and by how much."""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal, localcontext
from typing import Protocol


class Rotation(Protocol):
    """The angles by which a rotary embedding turns pairs."""

    @property
    def interleaved(self) -> bool:
        """Pairs are (2i, 2i + 1) instead of (i, i + pairs)."""
        ...

    @property
    def axes(self) -> tuple[int, ...]:
        """Axis of the positions that each pair reads; (): all read the position in the sequence."""
        ...

    @property
    def temperature(self) -> float:
        """See :class:`RopeConfig`."""
        ...

    @property
    def temperature_step(self) -> int:
        """See :class:`RopeConfig`."""
        ...

    @property
    def temperature_offset(self) -> int:
        """See :class:`RopeConfig`."""
        ...

    def frequencies(self) -> list[float]:
        """Return the angle per position of each pair."""
        ...

    def magnitude(self) -> float:
        """Return the factor of cos and sin."""
        ...


@dataclass(frozen=True)
class AxialRope:
    """A rotary embedding in which each axis of the positions turns dims of its own.

    The frequencies of an axis are ``theta ** (-2i / dims)``, the pairs of its dims lie behind those of
    the axis before: rows and columns of an image's patches (Qwen-VL), or the four axes of FLUX. With
    ``shared`` frequencies, axes of equal dims take turns in one series over all dims (Pixtral).

    Attributes:
        axis_dims: Dims of each axis, even numbers; together those that are rotated.
        theta: Base of the frequencies.
        interleaved: Pairs are (2i, 2i + 1) instead of (i, i + pairs).
        shared: See above.
    """

    axis_dims: tuple[int, ...]
    theta: float
    interleaved: bool = False
    shared: bool = False
    temperature: float = 0.0
    temperature_step: int = 0
    temperature_offset: int = 0

    @property
    def axes(self) -> tuple[int, ...]:
        """Axis of each pair."""
        return tuple(axis for axis, dims in enumerate(self.axis_dims) for _ in range(dims // 2))

    def frequencies(self) -> list[float]:
        """Return the angle per position of each pair, as exact decimals rounded once to a double."""
        with localcontext() as context:
            context.prec = 40
            theta = Decimal(self.theta)
            if self.shared:
                count, dims = len(self.axis_dims), sum(self.axis_dims)
                series = (range(axis, dims // 2, count) for axis in range(count))
                return [float(theta ** (Decimal(-2 * i) / dims)) for own in series for i in own]
            powers = ((Decimal(-2 * i) / d) for d in self.axis_dims for i in range(d // 2))
            return [float(theta**p) for p in powers]

    def magnitude(self) -> float:
        """Return 1: cos and sin stay as they are."""
        return 1.0


def section_axes(sections: tuple[int, ...], pairs: int, *, interleaved: bool) -> tuple[int, ...]:
    """Return the axis of each pair in M-RoPE, whose axes are time, height and width.

    Args:
        sections: Pairs of each axis.
        pairs: Of all axes.
        interleaved: Axes take turns, and time has what is left when theirs are used up (Qwen3-VL);
            else their pairs lie one behind the other (Qwen2-VL).

    Returns:
        As many axes as pairs.
    """
    if not interleaved:
        axes = [axis for axis, count in enumerate(sections) for _ in range(count)]
        return tuple(axes[:pairs])
    turns = len(sections)
    return tuple(i % turns if i < turns * sections[i % turns] else 0 for i in range(pairs))


@dataclass(frozen=True)
class RopeConfig:
    """One rotary embedding.

    Attributes:
        rotary_dim: Rotated dimensions of a head; the others pass through. 0: nothing is rotated.
        theta: Base of the frequencies.
        scaling: ``"none"``, ``"linear"``, ``"yarn"`` or ``"dynamic"``.
        factor: How many times longer the context became by scaling.
        original_context: Positions of the unscaled model (YaRN, dynamic).
        context: Positions that texts may have (dynamic): those past the original context stretch ``theta``.
        beta_fast, beta_slow: Turns over the original context at which YaRN starts and ends to
            interpolate.
        attention_factor: Magnitude of cos and sin; for YaRN it multiplies their growth.
        frequency_factors: Divisors of the frequencies, one a pair (Llama 3's ``rope_freqs``).
        yarn_multiplier: YaRN's cos and sin grow by 1 + this times ln(factor).
        ramp_of_pairs: YaRN's ramp begins and ends at a pair; else where the turns are reached exactly.
        interleaved: Pairs are (2i, 2i + 1) instead of (i, i + rotary_dim / 2).
        axes: Axis of the positions that each pair reads (M-RoPE, see :func:`section_axes`); (): all read
            the position in the sequence.
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
    context: int = 0
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
    axes: tuple[int, ...] = ()

    def without(self) -> RopeConfig:
        """Return an embedding that rotates nothing."""
        return replace(self, rotary_dim=0, axes=())

    def frequencies(self) -> list[float]:
        """Return the angle per position of each pair, as exact decimals rounded once to a double.

        ``theta ** (-2i / rotary_dim)``, scaled as the configuration says. YaRN (arXiv 2309.00071) as
        llama.cpp runs it: between the pairs that turn ``beta_fast`` and ``beta_slow`` times over the
        original context, a ramp mixes the plain and the interpolated frequency, at every position.
        Decimal arithmetic, because libm's pow differs between machines and results must not.
        """
        pairs = self.rotary_dim // 2
        with localcontext() as context:
            context.prec = 40
            theta = self._base()
            plain = [theta ** (Decimal(-2 * i) / self.rotary_dim) for i in range(pairs)]
            if self.frequency_factors:
                plain = [f / Decimal(d) for f, d in zip(plain, self.frequency_factors, strict=True)]
            if self.scaling in ("none", "dynamic"):
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

    def _base(self) -> Decimal:
        """Return the base of the frequencies, which dynamic NTK scaling raises for long texts.

        As transformers has it for a text of ``context`` positions. It is the same for shorter ones, so
        that keys in the cache need not change when a text grows.
        """
        theta = Decimal(self.theta)
        if self.scaling != "dynamic" or self.context <= self.original_context:
            return theta
        factor, dims = Decimal(self.factor), Decimal(self.rotary_dim)
        growth = factor * self.context / self.original_context - (factor - 1)
        return theta * growth ** (dims / (dims - 2))

    def _ramp(self) -> tuple[Decimal, Decimal]:
        """Return first and last pair of YaRN's ramp."""
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
        """Return the factor of cos and sin."""
        if self.scaling != "yarn":
            return self.attention_factor
        with localcontext() as context:
            context.prec = 40
            yarn = 1 + Decimal(str(self.yarn_multiplier)) * Decimal(self.factor).ln()
            return float(Decimal(self.attention_factor) * yarn)
