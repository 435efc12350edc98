"""Puts a model on the device that a user names, or on the first one that proves itself."""

from __future__ import annotations

import warnings
from collections.abc import Callable

from oxibonsai.devices import AUTO, CPU, Device, candidates, chosen_device, open_device
from oxibonsai.errors import CapacityError, DeviceError, ParityError, UnsupportedError
from oxibonsai.models import Model

# What makes a GPU unfit for a model, which the CPU may still run.
_UNFIT = (CapacityError, DeviceError, ParityError, UnsupportedError)


def place_model(
    device: str | None,
    threads: int | None,
    load: Callable[[Device], Model],
    check: Callable[[Model], None],
) -> Model:
    """A model on a device, its kernels compared with the definition.

    With ``auto``, the first GPU on which the model loads and gives the definition's bytes; where there
    is none, the CPU and a warning that says why.

    Args:
        device: As of :func:`oxibonsai.load`.
        threads: Worker threads of the host; None: the default.
        load: Loads the model on a device.
        check: Compares a loaded model's kernels with the definition.

    Raises:
        RequestError: No such name.
        UnsupportedError: This machine lacks the device that is named, or it lacks an op.
        CapacityError: The model does not fit the memory of the device that is named.
        DeviceError: The device that is named failed.
        ParityError: The kernels of the device that is named, or of the CPU, give other bytes.
    """
    name = chosen_device(device)
    if name == AUTO:
        gpus, reason = candidates()
        for gpu in gpus:
            try:
                return _placed(gpu, threads, load, check)
            except _UNFIT as e:
                reason += f"{'; ' if reason else ''}{gpu}: {e}"
        warnings.warn(f"the model runs on the CPU: {reason}", stacklevel=2)
        name = CPU
    return _placed(name, threads, load, check)


def _placed(
    name: str,
    threads: int | None,
    load: Callable[[Device], Model],
    check: Callable[[Model], None],
) -> Model:
    model = load(open_device(name, threads))
    check(model)
    return model
