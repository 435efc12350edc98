"""Devices: what they offer, which there are, and which one runs a model."""

from oxibonsai.devices.choice import (
    AUTO,
    CPU,
    DeviceInfo,
    candidates,
    chosen_device,
    list_devices,
    one_device,
    open_device,
)
from oxibonsai.devices.pipeline import LayerSplit, Pipeline
from oxibonsai.devices.protocols import Device, Executable, KvPages, Packed, Slots
from oxibonsai.devices.threads import default_threads, keep_in_forks

__all__ = [
    "AUTO",
    "CPU",
    "Device",
    "DeviceInfo",
    "Executable",
    "KvPages",
    "LayerSplit",
    "Packed",
    "Pipeline",
    "Slots",
    "candidates",
    "chosen_device",
    "default_threads",
    "keep_in_forks",
    "list_devices",
    "one_device",
    "open_device",
]
