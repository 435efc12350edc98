"""Every op on a real GPU against the scalar tier, byte for byte.

Needs the package's core, numpy and pytest: ``pytest --noconftest -m gpu tests/gpu/test_real_card.py``.
"""

from __future__ import annotations

import pytest

from oxibonsai import _core
from oxibonsai.devices import Device, list_devices, open_device
from oxibonsai.models.parity import DEFINITION
from oxibonsai.models.parity_suite import compare_all_ops

pytestmark = pytest.mark.gpu

GPUS = [d for d in list_devices() if d.name != "cpu"]


@pytest.fixture(scope="module", params=GPUS, ids=lambda d: d.name)
def gpu(request: pytest.FixtureRequest) -> Device:
    if not request.param.usable:
        pytest.skip(request.param.reason)
    return open_device(request.param.name)


def test_every_op_gives_the_definitions_bytes(gpu: Device) -> None:
    definition = _core.CpuDevice(gpu.threads, DEFINITION)
    wrong = {name: found for name, found in compare_all_ops(gpu, definition) if found}
    assert not wrong


def test_memory_that_was_freed_is_free_again(gpu: Device) -> None:
    layers = [_core.PagedLayer(8, 128, 128)]
    before = gpu.free_bytes
    for _ in range(3):
        pages = gpu.make_pages(layers, "f16", 256)
        pages.write(255, bytes(range(256)) * (pages.page_bytes // 256))
        pages.copy(255, 0)
        assert pages.read(0) == bytes(range(256)) * (pages.page_bytes // 256)
        del pages
    assert before is not None
    assert gpu.free_bytes is not None
    assert gpu.free_bytes >= before - (64 << 20)
