"""Which type of keys and values new sequences get while the memory of the cache fills up."""

from __future__ import annotations

from dataclasses import dataclass, field

from oxibonsai.errors import RequestError

PRESSURE_KV_TYPES = ("f16", "q8_0", "q4_0")


@dataclass(frozen=True)
class KvPressureProfile:
    """When the policy steps down.

    Attributes:
        thresholds: Smoothed pressure past which new sequences get q8_0, and q4_0: shares from 0 to
            1, ascending.
        alpha: Weight of the newest observation in the smoothed pressure: above 0, at most 1.
        hysteresis: How far below its threshold the smoothed pressure falls before a level is left:
            a share from 0 to 1.

    Raises:
        RequestError: A value is out of range.
    """

    thresholds: tuple[float, float] = (0.80, 0.95)
    alpha: float = 0.20
    hysteresis: float = 0.05

    def __post_init__(self) -> None:
        q8, q4 = self.thresholds
        if not 0.0 <= q8 <= q4 <= 1.0:
            raise RequestError(
                f"thresholds is {self.thresholds}; it is two ascending shares, 0 to 1"
            )
        if not 0.0 < self.alpha <= 1.0:
            raise RequestError(f"alpha is {self.alpha}; it is above 0 and at most 1")
        if not 0.0 <= self.hysteresis <= 1.0:
            raise RequestError(f"hysteresis is {self.hysteresis}; it is a share from 0 to 1")


BALANCED = KvPressureProfile()
AGGRESSIVE = KvPressureProfile(thresholds=(0.50, 0.80), alpha=0.30)


@dataclass
class KvPressurePolicy:
    """Steps new sequences down from f16 to q8_0 and q4_0 under pressure, and back up later.

    A sequence keeps the type that it began with. The smoothed pressure is the exponentially
    weighted mean ``s = alpha * pressure + (1 - alpha) * s``, from 0. A level is entered when ``s``
    passes its threshold, and left when ``s`` is below that by more than the hysteresis.

    Args:
        profile: ``BALANCED``, ``AGGRESSIVE`` or thresholds of one's own.
    """

    profile: KvPressureProfile = BALANCED
    _smoothed: float = field(default=0.0, init=False)
    _level: int = field(default=0, init=False)

    def observe(self, pressure: float) -> None:
        """Take in the used share of the cache's byte budget.

        Args:
            pressure: 0 to 1.

        Raises:
            RequestError: It is out of range.
        """
        if not 0.0 <= pressure <= 1.0:
            raise RequestError(f"pressure is {pressure}; it is a share from 0 to 1")
        p = self.profile
        self._smoothed += p.alpha * (pressure - self._smoothed)
        entered = sum(self._smoothed > t for t in p.thresholds)
        kept = sum(self._smoothed >= t - p.hysteresis for t in p.thresholds)
        self._level = min(max(self._level, entered), kept)

    @property
    def smoothed(self) -> float:
        """The smoothed pressure, 0 to 1."""
        return self._smoothed

    @property
    def kv_type(self) -> str:
        """The type for sequences that begin now."""
        return PRESSURE_KV_TYPES[self._level]
