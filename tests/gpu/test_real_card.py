"""Every op on a real GPU against the scalar tier, byte for byte.

Needs the package's core, numpy and pytest: ``pytest --noconftest -m gpu tests/gpu/test_real_card.py``.
"""

from __future__ import annotations

import pytest

from oxibonsai import _core
from oxibonsai.devices import Device, open_device
from oxibonsai.errors import UnsupportedError
from oxibonsai.models.parity import DEFINITION
from oxibonsai.models.parity_suite import compare_all_ops

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module", params=["cuda:0", "metal", "opencl:0"])
def gpu(request: pytest.FixtureRequest) -> Device:
    try:
        return open_device(request.param)
    except UnsupportedError as e:
        pytest.skip(str(e))


def test_every_op_gives_the_definitions_bytes(gpu: Device) -> None:
    definition = _core.CpuDevice(gpu.threads, DEFINITION)
    found = dict(compare_all_ops(gpu, definition))
    assert {name: result for name, result in found.items() if result} == {}


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
