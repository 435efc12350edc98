"""Facts about this machine."""

from __future__ import annotations

from pathlib import Path


def physical_memory() -> int:
    """Return the bytes of memory that this machine has."""
    import psutil

    return int(psutil.virtual_memory().total)


def available_memory(root: Path = Path("/")) -> int | None:
    """Return the bytes that this process can still take before the kernel ends processes.

    The least of what the machine has and of what the limits of its control groups leave; what the kernel
    gives back when it must (cached files) counts as available.

    Args:
        root: Where ``proc`` and ``sys`` are.

    Returns:
        None where the system does not say it: it is not Linux.
    """
    rooms = [_of_machine(root), *_of_groups(root)]
    return min((room for room in rooms if room is not None), default=None)


def _of_machine(root: Path) -> int | None:
    for line in _text(root / "proc/meminfo").splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return int(value.split()[0]) << 10
    return None


def _of_groups(root: Path) -> list[int | None]:
    """Return the room of the process's group, and of those above, in both versions of control groups."""
    rooms: list[int | None] = []
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            top = root / "sys/fs/cgroup"
            names = ("memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            top = root / "sys/fs/cgroup/memory"
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        else:
            continue
        own = Path(path.lstrip("/"))
        # In a container the path may be the host's, of which only the root is seen here.
        rooms += [_of_group(top / group, *names) for group in {own, *own.parents}]
    return rooms


def _of_group(folder: Path, limit: str, used: str, cached: str) -> int | None:
    most, held = _text(folder / limit).strip(), _text(folder / used).strip()
    if not most.isdecimal() or not held.isdecimal():  # "max", or no such group here
        return None
    kept = 0
    for line in _text(folder / "memory.stat").splitlines():
        name, _, value = line.partition(" ")
        if name == cached:
            kept = int(value)
    return max(0, int(most) - int(held) + kept)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""
