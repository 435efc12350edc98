"""Puts a model on the device that a user names, or on the first one that proves itself."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable

from oxibonsai.devices import (
    AUTO,
    CPU,
    Device,
    DevicePlan,
    LayerSplit,
    candidates,
    chosen_device,
    open_device,
)
from oxibonsai.errors import (
    CapacityError,
    DeviceError,
    ParityError,
    RequestError,
    UnsupportedError,
)
from oxibonsai.models import Model

# What makes a GPU unfit for a model, which the CPU may still run.
_UNFIT = (CapacityError, DeviceError, ParityError, UnsupportedError)


def device_for_layers(device: str | None, gpu_layers: int | None) -> tuple[str | None, int | None]:
    """Return a device and its layers where a user may have named the layers alone, as for llama.cpp.

    Layers for a GPU without a device mean ``auto``; where the CPU is named, they are left out and a
    warning says so.

    Args:
        device: As of :func:`oxibonsai.load`.
        gpu_layers: As of :func:`oxibonsai.load`.

    Raises:
        RequestError: No such device.
    """
    if not gpu_layers or chosen_device(device) != CPU:
        return device, gpu_layers
    if device is None and not os.environ.get("OXIBONSAI_DEVICE"):
        return AUTO, gpu_layers
    warnings.warn(
        f"{gpu_layers} layers for a GPU have no effect: the model runs on the CPU, as the device says",
        stacklevel=2,
    )
    return device, None


def place_model(
    device: str | DevicePlan | None,
    gpu_layers: int | None,
    threads: int | None,
    load: Callable[[Device | DevicePlan], Model],
    check: Callable[[Model], None],
) -> Model:
    """Return a model on a device, its kernels compared with the definition.

    With ``auto``, the first GPU on which the model loads and gives the definition's bytes; where there
    is none, the CPU and a warning that says why. Where ``auto`` is the default of
    ``OXIBONSAI_DEVICE``, a machine without a GPU warns of nothing.

    Args:
        device: As of :func:`oxibonsai.load`.
        gpu_layers: As of :func:`oxibonsai.load`.
        threads: Worker threads of the host; None: the default.
        load: Loads the model on a device, or on several.
        check: Compares a loaded model's kernels with the definition.

    Raises:
        RequestError: No such name, or layers for a GPU where none is named or a plan says where.
        UnsupportedError: This machine lacks the device that is named, or it lacks an op.
        CapacityError: The model does not fit the memory of the device that is named.
        DeviceError: The device that is named failed.
        ParityError: The kernels of the device that is named, or of the CPU, give other bytes.
    """
    if isinstance(device, DevicePlan):
        if gpu_layers is not None:
            raise RequestError("a plan says which layers run where: leave out gpu_layers")
        model = load(device)
        check(model)
        return model
    name = chosen_device(device)
    if name == AUTO:
        gpus, reason = candidates(named=device is not None)
        for gpu in gpus:
            try:
                return _placed(gpu, gpu_layers, threads, load, check)
            except _UNFIT as e:
                reason += f"{'; ' if reason else ''}{gpu}: {e}"
        if reason:
            warnings.warn(f"the model runs on the CPU: {reason}", stacklevel=2)
        name, gpu_layers = CPU, None
    if name == CPU and gpu_layers:
        raise RequestError(
            f"gpu_layers is {gpu_layers}, but the model runs on the CPU: name a GPU with device (cuda, "
            "metal, opencl or auto), or leave gpu_layers out"
        )
    return _placed(name, gpu_layers, threads, load, check)


def _placed(
    name: str,
    gpu_layers: int | None,
    threads: int | None,
    load: Callable[[Device | DevicePlan], Model],
    check: Callable[[Model], None],
) -> Model:
    devices = [open_device(n, threads) for n in name.split(",")]
    if gpu_layers is None and len(devices) == 1:
        model = load(devices[0])
    else:
        model = load(LayerSplit(open_device(CPU, threads), devices, gpu_layers))
    check(model)
    return model
