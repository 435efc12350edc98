"""OpenCL where a driver is: logits and texts are those of the scalar tier.

Without a GPU, that of PyPI's ``intel-opencl-rt`` and ``intel-cmplr-lib-rt``, installed in a virtual
environment ``V``, is one, beside Debian's ``ocl-icd-libopencl1``::

    OCL_ICD_VENDORS=V/lib/libintelocl.so pytest -m "slow or release" tests/gpu/test_opencl.py

CI runs the tests that are not ``release`` so, and those of ``test_opencl_models.py``, with
``OXIBONSAI_ISA=scalar``. All others take minutes to compile the kernels, which ``OXIBONSAI_CACHE`` keeps.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oxibonsai
from native_build import needs_compiler
from oxibonsai import UnsupportedError, _core
from oxibonsai.devices import Device, candidates, list_devices, open_device
from oxibonsai.models.parity import DEFINITION
from oxibonsai.models.parity_suite import compare_all_ops

pytestmark = [
    pytest.mark.slow,
    pytest.mark.long("a driver compiles kernels"),
    pytest.mark.timeout(7200),
]

RELEASE = pytest.mark.release
IDS = [int(i) for i in np.random.default_rng(5).integers(0, 256, 70)]


def load(path: Path, name: str, **options: Any) -> oxibonsai.Engine:
    return oxibonsai.load(path, device=name, threads=2, parity="off", **options)


@pytest.mark.parametrize(
    "kv_type",
    ["f16", *(pytest.param(t, marks=RELEASE) for t in ("f32", "q8_0", "q4_0", "fp8_e4m3"))],
)
def test_logits_have_the_cpus_bytes(opencl: Device, tiny_path: Path, kv_type: str) -> None:
    wanted = load(tiny_path, "cpu", kv_type=kv_type, ctx_size=128).logits(IDS)
    engine = load(tiny_path, "opencl", kv_type=kv_type, ctx_size=128)
    assert engine.logits(IDS).tobytes() == wanted.tobytes()
    assert engine.logits(IDS, chunk_size=7).tobytes() == wanted.tobytes()
    assert engine.logits(IDS, chunk_size=1).tobytes() == wanted.tobytes()


@RELEASE
def test_every_op_gives_the_definitions_bytes(opencl: Device) -> None:
    found = dict(compare_all_ops(opencl, _core.CpuDevice(2, DEFINITION)))
    assert {name: result for name, result in found.items() if result} == {}


def test_a_processor_is_no_gpu_for_auto(opencl: Device) -> None:
    processors = {d.name for d in list_devices() if d.on_cpu}
    assert not processors & set(candidates()[0])


def test_a_device_that_the_machine_lacks_is_an_error(opencl: Device) -> None:
    with pytest.raises(UnsupportedError, match="has no opencl:99; its drivers have"):
        open_device("opencl:99")


def test_a_damaged_kernel_is_compiled_anew(
    opencl: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OXIBONSAI_CACHE", str(tmp_path))
    open_device("opencl:0", 1)  # which launches one
    (image,) = (tmp_path / "kernels").iterdir()
    whole = image.read_bytes()
    image.write_bytes(b"a file that the disk has damaged")
    open_device("opencl:0", 1)
    assert image.read_bytes() == whole


@pytest.fixture(scope="module")
def hiding(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A loader that hides an extension of the real one's devices."""
    library = tmp_path_factory.mktemp("hiding") / "libhide.so"
    source = Path(__file__).with_name("hide_opencl.cc")
    flags = ("-shared", "-fPIC", "-Wl,--no-as-needed", str(source), "-o", str(library))
    subprocess.run(["g++", *flags, "-l:libOpenCL.so.1", "-ldl"], check=True)
    return library


def elsewhere(code: str, library: Path, extension: str) -> str:
    """Return what a Python process prints or raises that doesn't see an extension."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "OXIBONSAI_LIBOPENCL": str(library), "HIDDEN_EXTENSION": extension},
        capture_output=True,
        text=True,
    )
    return done.stdout + done.stderr


OPEN = "from oxibonsai.devices import open_device\ngpu = open_device('opencl:0', 1)\n"


@needs_compiler
@pytest.mark.parametrize("name", ["cl_khr_subgroup_shuffle ", "cl_intel_required_subgroup_size"])
def test_a_device_without_an_extension_is_refused(opencl: Device, hiding: Path, name: str) -> None:
    assert f"lacks {name.strip()}" in elsewhere(OPEN, hiding, name)


@needs_compiler
def test_shared_virtual_memory_serves_too(opencl: Device, hiding: Path) -> None:
    # Opening launches a kernel, whose results are compared.
    code = OPEN + (
        "from oxibonsai import _core\n"
        "pages = gpu.make_pages([_core.PagedLayer(2, 64, 64)], 'f16', 4)\n"
        "data = bytes(range(256)) * (pages.page_bytes // 256)\n"
        "pages.write(3, data)\npages.copy(3, 1)\nprint(pages.read(1) == data)\n"
    )
    assert elsewhere(code, hiding, "cl_intel_unified_shared_memory") == "True\n"
