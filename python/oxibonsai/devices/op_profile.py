"""Profile a device: seconds of each kind of op."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from oxibonsai import _core
from oxibonsai.devices.protocols import Device
from oxibonsai.errors import UnsupportedError


@dataclass(frozen=True)
class OpShare:
    """The share that ops of one kind have in some work.

    Attributes:
        op: Their name.
        weights: Types of their matrices, joined by ``+``; or "".
        runs: How often they ran.
        seconds: Of all threads together.
        share: Of the seconds of all ops, from 0 to 1.
        multiply_adds: In their matrices, per second that all threads would take.
    """

    op: str
    weights: str
    runs: int
    seconds: float
    share: float
    multiply_adds: float

    def as_json(self) -> dict[str, Any]:
        """Return the rounded values for JSON output."""
        row = {
            "op": self.op,
            "weights": self.weights,
            "runs": self.runs,
            "thread_seconds": round(self.seconds, 6),
            "share": round(self.share, 4),
        }
        if self.multiply_adds:
            row["gmac_s"] = round(self.multiply_adds / 1e9, 1)
        return row


def profile(device: Device, work: Callable[[], object]) -> list[OpShare]:
    """Do work and tell what the time went to, the longest first.

    Args:
        device: A CPU; its ops alone are timed, not what the host does between two steps.
        work: Runs executables of the device.

    Raises:
        UnsupportedError: The device is no CPU.
    """
    if not isinstance(device, _core.CpuDevice):
        raise UnsupportedError(
            f"ops are timed on a CPU only, not on {device.name}: use its vendor's profiler"
        )
    device.start_profile()
    try:
        work()
    finally:
        times = device.end_profile()
    return _shares(times, device.threads)


def _shares(times: Sequence[_core.OpTime], threads: int) -> list[OpShare]:
    total = sum(t.seconds for t in times)
    shares = [
        OpShare(
            t.op,
            t.weights,
            t.runs,
            t.seconds,
            t.seconds / total if total else 0.0,
            t.multiply_adds * threads / t.seconds if t.seconds else 0.0,
        )
        for t in times
    ]
    return sorted(shares, key=lambda s: s.seconds, reverse=True)


def profile_lines(shares: Sequence[OpShare], peak: float | None = None) -> list[str]:
    """Return a table of them.

    Args:
        shares: As :func:`profile` gives them.
        peak: Multiply-adds of bytes per second that the processor can do.
    """
    lines = []
    for s in shares:
        line = f"{s.op:16} {s.weights:12} {s.runs:6} {s.seconds * 1e3:10.1f} ms {s.share:6.1%}"
        if s.multiply_adds:
            line += f"  {s.multiply_adds / 1e9:.0f} G/s"
            if peak and s.weights not in ("F32", "F16", "BF16"):
                line += f", {s.multiply_adds / peak:.0%} of the int8 limit"
        lines.append(line)
    return lines
