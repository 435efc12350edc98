"""Which device runs a model, on a machine without a GPU."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import pytest
from click.testing import CliRunner

import bert_folder
import oxibonsai
from oxibonsai import RequestError, UnsupportedError
from oxibonsai.cli.info import info
from oxibonsai.cli.verify import verify
from oxibonsai.convert.language_model import convert
from oxibonsai.devices import chosen_device, list_devices, open_device
from oxibonsai.devices.nvrtc import nvrtc_libraries
from oxibonsai.server.model_settings import ModelSettings


@pytest.fixture(autouse=True)
def _no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OXIBONSAI_LIBCUDA", "/nowhere/libcuda.so")


@pytest.mark.parametrize(
    ("given", "variable", "chosen"),
    [
        (None, None, "cpu"),
        (None, "", "cpu"),
        (None, "cuda:1", "cuda:1"),
        ("cpu", "cuda", "cpu"),
        ("cuda", None, "cuda:0"),
        ("metal", None, "metal"),
        ("opencl", None, "opencl:0"),
        ("opencl:1", None, "opencl:1"),
        ("auto", None, "auto"),
    ],
)
def test_an_argument_goes_before_the_variable(
    monkeypatch: pytest.MonkeyPatch, given: str | None, variable: str | None, chosen: str
) -> None:
    if variable is not None:
        monkeypatch.setenv("OXIBONSAI_DEVICE", variable)
    assert chosen_device(given) == chosen


@pytest.mark.parametrize("name", ["gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:01", "CUDA", ""])
def test_other_names_are_refused(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    with pytest.raises(RequestError, match=r"device is .*; it is one of auto, cpu, cuda, cuda:1"):
        chosen_device(name)
    monkeypatch.setenv("OXIBONSAI_DEVICE", "gpu")
    with pytest.raises(RequestError, match="OXIBONSAI_DEVICE is 'gpu'"):
        chosen_device(None)


def test_kinds_without_a_device_say_why() -> None:
    cpu, *gpus = list_devices()
    assert (cpu.name, cpu.usable, cpu.free_bytes) == ("cpu", True, None)
    assert gpus[0].name == "cuda"
    assert not gpus[0].usable
    assert gpus[0].reason.startswith("/nowhere/libcuda.so cannot be opened: ")


def test_a_named_device_that_cannot_be_used_is_an_error(tiny_path: Path) -> None:
    for name in ("cuda", "cuda:1"):
        with pytest.raises(UnsupportedError, match=r"/nowhere/libcuda.so cannot be opened"):
            oxibonsai.load(tiny_path, device=name)


def test_auto_runs_on_the_cpu_and_says_why(tiny_path: Path) -> None:
    with pytest.warns(UserWarning, match=r"the model runs on the CPU: cuda: /nowhere/libcuda"):
        engine = oxibonsai.load(tiny_path, device="auto")
    assert engine.model.device.name == "cpu"
    assert engine.logits([1, 2]).tobytes() == oxibonsai.load(tiny_path).logits([1, 2]).tobytes()


def test_auto_by_default_does_not_warn_of_gpus_that_the_machine_lacks(
    tiny_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OXIBONSAI_DEVICE", "auto")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        engine = oxibonsai.load(tiny_path)
    assert engine.model.device.name == "cpu"
    assert told == []


def test_weights_packed_for_cpus_are_not_kept_for_gpus(tiny_path: Path) -> None:
    with pytest.raises(RequestError, match="packed_cache keeps the weights of CPUs"):
        oxibonsai.load(tiny_path, device="cuda", packed_cache=True)


def test_a_device_keeps_its_state_in_its_own_pages() -> None:
    device = open_device("cpu", 1)
    layers = [oxibonsai._core.PagedLayer(2, 32, 32)]
    pages = device.make_pages(layers, "f16", 3)
    pages.write(1, bytes([7]) * pages.page_bytes)
    pages.copy(1, 2)
    assert pages.read(2) == bytes([7]) * pages.page_bytes
    slots = device.make_slots([5, 3], 2)
    assert slots.read(1) == bytes(slots.slot_bytes)


def test_a_library_that_is_named_is_the_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OXIBONSAI_LIBNVRTC", "/some/libnvrtc.so.12")
    assert nvrtc_libraries() == ["/some/libnvrtc.so.12"]


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without NVIDIA's packages, in whose environment nothing names a toolkit."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("found_by", ["CUDA_HOME", "CUDA_PATH", "nvcc"])
@pytest.mark.usefixtures("no_compiler")
def test_the_compiler_of_a_toolkit_is_found_without_the_package(
    found_by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toolkit = tmp_path / "toolkit"
    libraries = [
        toolkit / "lib64" / name for name in ("libnvrtc-builtins.so.13.0", "libnvrtc.so.13.0")
    ]
    nvcc = toolkit / "bin" / "nvcc"
    for path in (*libraries, nvcc):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o755)
    if found_by == "nvcc":
        monkeypatch.setenv("PATH", str(nvcc.parent))
    else:
        monkeypatch.setenv(found_by, str(toolkit))
    assert nvrtc_libraries() == [str(path) for path in libraries]


def test_commands_show_devices_and_check_one(tiny_path: Path) -> None:
    shown = CliRunner().invoke(info, ["--devices", "--json"])
    assert [d["name"] for d in json.loads(shown.output)["devices"]][:2] == ["cpu", "cuda"]
    assert "cannot be used: /nowhere/libcuda.so" in CliRunner().invoke(info, ["--devices"]).output
    checked = CliRunner().invoke(verify, ["--device", "cpu", "-m", str(tiny_path), "--json"])
    report = json.loads(checked.output)
    assert report["device"] == "cpu"
    assert set(report["ops"].values()) == {"same bytes"}
    assert report["decode"] == f"same bytes ({tiny_path.name})"
    auto = CliRunner().invoke(verify, ["--device", "auto"])
    assert isinstance(auto.exception, RequestError)


def test_of_an_encoder_its_hidden_states_are_compared(tmp_path: Path) -> None:
    bert_folder.write(tmp_path / "model")
    convert(tmp_path / "model", tmp_path / "m.gguf")
    checked = CliRunner().invoke(verify, ["--device", "cpu", "-m", str(tmp_path / "m.gguf")])
    assert "hidden states of a text                    same bytes (m.gguf)" in checked.output
    assert "greedy decode" not in checked.output


def test_the_server_takes_a_device() -> None:
    assert ModelSettings(device="cuda:1").device == "cuda:1"
    with pytest.raises(ValueError, match="device"):
        ModelSettings(device="gpu")
