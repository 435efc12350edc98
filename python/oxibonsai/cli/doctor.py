"""``oxibonsai doctor``: what a bug report needs to say about this machine, and what to do about it."""

from __future__ import annotations

import json
import os
import platform
import shutil
from collections.abc import Callable
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import rich_click as click

import oxibonsai
from oxibonsai import __version__, _core
from oxibonsai.cli.bench import read_bandwidth
from oxibonsai.cli.foreign_options import Command
from oxibonsai.cli.options import json_option
from oxibonsai.devices import CPU, DeviceInfo, default_threads, list_devices
from oxibonsai.errors import SourceError
from oxibonsai.files.cache_folder import cache_folder
from oxibonsai.files.machine import physical_memory
from oxibonsai.server.settings import default_state_dir

# The smallest published model with its keys and values; the largest takes ten times as much.
_LEAST_BYTES = 2 << 30
_SLOW_TIERS = ("scalar",)
_NVIDIA = Path("/dev/nvidiactl")  # is there where a card's driver is loaded


@click.command(cls=Command)
@json_option
def doctor(as_json: bool) -> None:
    """Show processor, memory, devices, package and folders, and what to do about what is wrong.

    The bandwidth is what all threads together read from memory, measured now: it bounds how fast text
    is generated.
    """
    devices = list_devices()
    report = {
        "oxibonsai": __version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "wheel": wheel_tag(),
        "processor": processor_name(),
        "tier": _core.cpu.name(),
        "tiers": _core.cpu.tiers(),
        "threads": default_threads(),
        "memory_bytes": physical_memory(),
        "bandwidth_bytes_per_s": round(read_bandwidth(_core.ThreadPool(default_threads()))),
        "devices": [asdict(d) for d in devices if d.name != CPU],
        "folders": {"cache": _folder(cache_folder), "state": _folder(_state_folder)},
    }
    report["advice"] = advice(report, devices)
    click.echo(json.dumps(report) if as_json else "\n".join(_lines(report)))


def _state_folder() -> Path:
    chosen = os.environ.get("OXIBONSAI_STATE_DIR")
    return Path(chosen) if chosen else default_state_dir()


def wheel_tag() -> str | None:
    """Return the tag of the wheel that was installed; None: the package runs from its source."""
    try:
        installed = distribution("oxibonsai")
    except PackageNotFoundError:
        return None
    package = Path(oxibonsai.__file__).parent
    if Path(str(installed.locate_file("oxibonsai"))).resolve() != package.resolve():
        return None  # another copy is installed
    text = installed.read_text("WHEEL")
    tags = [line[5:] for line in (text or "").splitlines() if line.startswith("Tag: ")]
    return ", ".join(tags) or None


def processor_name(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """Return the processor's name as the system gives it, else its kind."""
    try:
        lines = cpuinfo.read_text(encoding="utf-8").splitlines()
    except OSError:  # not on Linux
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return next(iter(names), "") or platform.processor() or platform.machine()


def _folder(find: Callable[[], Path]) -> dict[str, Any]:
    """Return a folder's path, the free bytes of its disk, and whether this user may write there."""
    try:
        path = find()
    except (RuntimeError, SourceError) as e:
        return {"path": None, "free_bytes": None, "writable": False, "reason": str(e)}
    there = next(p for p in (path, *path.parents) if p.exists())
    free = shutil.disk_usage(there).free
    writable = there.is_dir() and os.access(there, os.W_OK | os.X_OK)
    reason = "" if writable else f"{there} can't be written to"
    return {"path": str(path), "free_bytes": free, "writable": writable, "reason": reason}


def advice(report: dict[str, Any], devices: list[DeviceInfo]) -> list[str]:
    """Return what the user can do about what a report shows, a sentence each."""
    found = []
    if report["tier"] in _SLOW_TIERS:
        found.append(
            "The processor has no vector instructions that oxibonsai has kernels for, so it is slow here: "
            "use one with AVX2 or NEON, or unset OXIBONSAI_ISA if it is set."
        )
    if report["tier"] != report["tiers"][-1] and os.environ.get("OXIBONSAI_ISA"):
        found.append(f"OXIBONSAI_ISA keeps the tier at {report['tier']}: unset it for speed.")
    if report["memory_bytes"] < _LEAST_BYTES:
        found.append(
            "There is little memory: choose a model that oxibonsai models lists as fitting."
        )
    for variable, folder in (("OXIBONSAI_CACHE", "cache"), ("OXIBONSAI_STATE_DIR", "state")):
        facts = report["folders"][folder]
        if not facts["writable"]:
            found.append(
                f"The {folder} folder can't be used ({facts['reason']}): set {variable} to one that can."
            )
        elif facts["free_bytes"] < _LEAST_BYTES:
            found.append(
                f"The disk of the {folder} folder is nearly full: make room, or set {variable} to a folder "
                "on another disk."
            )
    found += [
        f"The device {d.name} can't be used ({d.reason}): docs/gpu.md says what it needs."
        for d in devices
        if not d.usable and d.name.startswith("cuda") and _NVIDIA.exists()
    ]
    return found


def _lines(report: dict[str, Any]) -> list[str]:
    """Return a report as text."""
    rows = {
        "oxibonsai": f"{report['oxibonsai']}, Python {report['python']}",
        "system": report["system"],
        "wheel": report["wheel"] or "none: runs from its source",
        "processor": report["processor"],
        "tier": f"{report['tier']} of {', '.join(report['tiers'])}",
        "threads": str(report["threads"]),
        "memory": f"{report['memory_bytes'] / 1e9:.1f} GB, "
        f"read at {report['bandwidth_bytes_per_s'] / 1e9:.1f} GB/s",
    }
    for device in report["devices"]:
        rows[device["name"]] = (
            device["description"] if device["usable"] else f"not used: {device['reason']}"
        )
    for name, folder in report["folders"].items():
        free = "" if folder["path"] is None else f", {folder['free_bytes'] / 1e9:.1f} GB free"
        rows[name] = f"{folder['path'] or 'none'}{free}"
        if folder["reason"]:
            rows[name] += f" ({folder['reason']})"
    lines = [f"{name:<10} {value}" for name, value in rows.items()]
    return lines + [f"-> {sentence}" for sentence in report["advice"] or ["Nothing is wrong here."]]
