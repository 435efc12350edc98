"""Devices: what they offer, which there are, and which one runs a model."""

from oxibonsai.devices.device_choice import (
    AUTO,
    CPU,
    DeviceInfo,
    candidates,
    chosen_device,
    list_devices,
    one_device,
    open_device,
)
from oxibonsai.devices.op_profile import OpShare, profile, profile_lines
from oxibonsai.devices.pipeline import (
    DevicePlan,
    LayerSplit,
    Pipeline,
    Stage,
    StagedDevice,
    cut_at_layers,
    share_layers,
)
from oxibonsai.devices.protocols import Device, Executable, KvPages, Packed, Slots
from oxibonsai.devices.threads import default_threads, keep_in_forks

__all__ = [
    "AUTO",
    "CPU",
    "Device",
    "DeviceInfo",
    "DevicePlan",
    "Executable",
    "KvPages",
    "LayerSplit",
    "OpShare",
    "Packed",
    "Pipeline",
    "Slots",
    "Stage",
    "StagedDevice",
    "candidates",
    "chosen_device",
    "cut_at_layers",
    "default_threads",
    "keep_in_forks",
    "list_devices",
    "one_device",
    "open_device",
    "profile",
    "profile_lines",
    "share_layers",
]
