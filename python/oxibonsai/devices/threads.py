"""How many threads a device runs, and what becomes of them in a fork."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import TypeVar
from weakref import WeakSet

from oxibonsai.devices.protocols import Device
from oxibonsai.errors import RequestError
from oxibonsai.files.platform import after_fork, usable_cores

AnyDevice = TypeVar("AnyDevice", bound=Device)

_CGROUPS = Path("/sys/fs/cgroup")
_devices: WeakSet[Device] = WeakSet()


def keep_in_forks(device: AnyDevice) -> AnyDevice:
    """Handle a fork: the child has none of the device's threads and must not wait for them."""
    _devices.add(device)
    return device


def _keep_devices() -> None:
    """Keep a forked child from joining threads that it does not have."""
    for device in _devices:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(device))


after_fork(_keep_devices)


def default_threads() -> int:
    """Return ``OXIBONSAI_THREADS``, else the cores this process may use: affinity, cut by cgroup quotas."""
    forced = os.environ.get("OXIBONSAI_THREADS")
    if forced:
        if not forced.isdecimal() or not 1 <= int(forced) <= 1024:
            raise RequestError(
                f"OXIBONSAI_THREADS is {forced!r}; it must be a number from 1 to 1024"
            )
        return int(forced)
    return min([usable_cores(), *quotas(Path("/proc/self/cgroup"), _CGROUPS)])


def quotas(membership: Path, mounted: Path) -> Iterator[int]:
    """Yield the cores of each CPU quota that holds for a process, at least 1, parts rounded up.

    A group's quota holds for all groups below it, so those above count, too; a service's is often
    its own (systemd's CPUQuota), a container's the root of what it sees.

    Args:
        membership: The process's ``/proc/PID/cgroup``.
        mounted: Where the cgroup file systems are, of version 1 or 2.
    """
    try:
        lines = membership.read_text(encoding="utf-8").splitlines()
    except OSError:  # not on Linux
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        group = PurePosixPath(path.lstrip("/"))
        for above in (group, *group.parents):
            if not controllers:
                yield from _quota(mounted / above / "cpu.max")
            elif "cpu" in controllers.split(","):
                folder = mounted / "cpu" / above
                yield from _quota(folder / "cpu.cfs_quota_us", folder / "cpu.cfs_period_us")


def _quota(*files: Path) -> Iterator[int]:
    """Yield the cores that texts of cgroup files allow: microseconds of a period over the period's."""
    try:
        quota, period = (int(n) for file in files for n in file.read_text(encoding="utf-8").split())
    except (OSError, ValueError):  # no such group, or "max"
        return
    if quota > 0:  # version 1 says -1 for none
        yield max(1, -(-quota // period))
