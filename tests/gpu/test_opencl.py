"""OpenCL where a driver is: logits and texts are those of the scalar tier.

Without a GPU, that of PyPI's ``intel-opencl-rt`` in a folder ``V`` is one, beside Debian's
``ocl-icd-libopencl1``::

    OCL_ICD_VENDORS=V/lib/libintelocl.so LD_LIBRARY_PATH=V/lib pytest -m release tests/gpu/test_opencl.py

It takes minutes to compile the kernels, which ``OXIBONSAI_CACHE`` keeps.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oxibonsai
from oxibonsai import SamplingParams, UnsupportedError, _core
from oxibonsai.devices import Device, candidates, list_devices, open_device
from oxibonsai.models.parity import DEFINITION
from oxibonsai.models.parity_suite import compare_all_ops

pytestmark = [
    pytest.mark.release,
    pytest.mark.long("a driver compiles kernels"),
    pytest.mark.timeout(7200),
]

IDS = [int(i) for i in np.random.default_rng(5).integers(0, 256, 70)]
PROMPT = "The capital of France is"
GREEDY = SamplingParams(temperature=0, max_tokens=24)


@pytest.fixture(scope="module")
def device() -> Device:
    """The first OpenCL device of the machine."""
    try:
        return open_device("opencl:0", 2)
    except UnsupportedError as e:
        pytest.skip(str(e))


def load(path: Path, name: str, **options: Any) -> oxibonsai.Engine:
    return oxibonsai.load(path, device=name, threads=2, parity="off", **options)


@pytest.mark.parametrize("kv_type", ["f32", "f16", "q8_0", "q4_0"])
def test_logits_have_the_cpus_bytes(device: Device, tiny_path: Path, kv_type: str) -> None:
    wanted = load(tiny_path, "cpu", kv_type=kv_type, ctx_size=128).logits(IDS)
    engine = load(tiny_path, "opencl", kv_type=kv_type, ctx_size=128)
    assert engine.logits(IDS).tobytes() == wanted.tobytes()
    assert engine.logits(IDS, chunk_size=7).tobytes() == wanted.tobytes()
    assert engine.logits(IDS, chunk_size=1).tobytes() == wanted.tobytes()


def test_smollm2_writes_the_cpus_text(device: Device, smollm2_path: Path) -> None:
    texts = [
        "".join(load(smollm2_path, name, ctx_size=128, parallel=1).generate(PROMPT, GREEDY))
        for name in ("cpu", "opencl")
    ]
    assert texts[0]
    assert texts[1] == texts[0]


def test_every_op_gives_the_definitions_bytes(device: Device) -> None:
    found = dict(compare_all_ops(device, _core.CpuDevice(2, DEFINITION)))
    assert {name: result for name, result in found.items() if result} == {}


def test_a_processor_is_no_gpu_for_auto(device: Device) -> None:
    processors = {d.name for d in list_devices() if d.on_cpu}
    assert not processors & set(candidates()[0])


def test_a_device_that_the_machine_lacks_is_an_error(device: Device) -> None:
    with pytest.raises(UnsupportedError, match="has no opencl:99; its drivers have"):
        open_device("opencl:99")


def test_a_damaged_kernel_is_compiled_anew(
    device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OXIBONSAI_CACHE", str(tmp_path))
    open_device("opencl:0", 1)  # which launches one
    (image,) = (tmp_path / "kernels").iterdir()
    whole = image.read_bytes()
    image.write_bytes(b"a file that the disk has damaged")
    open_device("opencl:0", 1)
    assert image.read_bytes() == whole
