"""Which devices this machine has, and the one that a user names."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from oxibonsai import _core
from oxibonsai.device_names import DEVICE_PATTERN
from oxibonsai.devices.nvrtc import nvrtc_libraries
from oxibonsai.devices.protocols import Device
from oxibonsai.devices.threads import default_threads, keep_in_forks
from oxibonsai.errors import RequestError
from oxibonsai.files.cache_folder import cache_folder

AUTO, CPU = "auto", "cpu"
# No card has run the kernels for GPUs yet (docs/gpu.md), so one is used where it is asked for.
_DEFAULT = CPU


@dataclass(frozen=True)
class DeviceInfo:
    """A device of this machine, or a kind of device and why it has none.

    Attributes:
        name: As ``--device`` takes it.
        description: What it is; empty where nothing is known.
        usable: Whether it can be opened. Its results are compared with the CPU's later, op by op,
            when a model is loaded.
        reason: Why it can't be used; empty where it can.
        total_bytes, free_bytes: Its memory; None where it has none of its own.
        on_cpu: Whether it is the processor behind another driver, which ``auto`` leaves out.
    """

    name: str
    description: str
    usable: bool
    reason: str
    total_bytes: int | None
    free_bytes: int | None
    on_cpu: bool = False


def list_devices() -> list[DeviceInfo]:
    """Return the processor, then the GPUs of each kind, or the reason why there are none."""
    cpu = f"{_core.cpu.name()}, {default_threads()} threads"
    return [DeviceInfo(CPU, cpu, True, "", None, None), *_gpus()]


def chosen_device(name: str | None) -> str:
    """Return the name of a device that a user gave, else ``OXIBONSAI_DEVICE``, else ``cpu``.

    Returns:
        Several cards as ``"cuda:0,cuda:1"``, in the order given.

    Raises:
        RequestError: It is none of ``auto``, ``cpu``, ``cuda``, ``cuda:N``, several cards,
            ``metal``, ``opencl`` and ``opencl:N``.
    """
    where, text = "device", name
    if text is None:
        where, text = "OXIBONSAI_DEVICE", os.environ.get("OXIBONSAI_DEVICE") or _DEFAULT
    if not isinstance(text, str) or not re.fullmatch(DEVICE_PATTERN, text):
        raise RequestError(
            f"{where} is {text!r}; it is one of auto, cpu, cuda, cuda:1 (a card's number), "
            "cuda:0,cuda:1 (cards that share the layers), metal, opencl and opencl:1"
        )
    names = [f"{n}:0" if n in ("cuda", "opencl") else n for n in text.split(",")]
    if len(set(names)) < len(names):
        raise RequestError(f"{where} is {text!r}, which names a card twice")
    return ",".join(names)


def one_device(name: str | None) -> str:
    """Do what :func:`chosen_device` does, but raise RequestError for several cards."""
    chosen = chosen_device(name)
    if "," in chosen:
        raise RequestError(
            f"device is {chosen!r}: only whole models run on several cards; name one"
        )
    return chosen


def candidates(*, named: bool = True) -> tuple[list[str], str]:
    """List the GPUs for ``auto`` in their order, and where there are none why.

    Args:
        named: Whether somebody asked for a GPU; else a machine that has none has nothing to tell.
    """
    gpus = [g for g in _gpus() if not g.on_cpu]
    usable = [g.name for g in gpus if g.usable]
    told = [g for g in gpus if named or g.description]
    return usable, "" if usable else "; ".join(f"{g.name}: {g.reason}" for g in told)


def open_device(name: str, threads: int | None = None) -> Device:
    """Open a device by a name that :func:`chosen_device` gave.

    Args:
        name: Not ``auto``.
        threads: Worker threads of the host; None: ``OXIBONSAI_THREADS`` or all usable cores.

    Raises:
        UnsupportedError: This machine has no such device, or it can't be used; the message says why.
        DeviceError: The device's driver failed.
    """
    count = threads or default_threads()
    if name == CPU:
        return keep_in_forks(_core.CpuDevice(count))
    return keep_in_forks(_core.open_gpu(name, count, _image_folder(), nvrtc_libraries()))


def _gpus() -> list[DeviceInfo]:
    return [DeviceInfo(**facts) for facts in _core.gpu_devices(_image_folder(), nvrtc_libraries())]


def _image_folder() -> str:
    """Return the folder in which a card's kernels are kept between starts."""
    return str(cache_folder() / "kernels")
