"""The whole package over a card, as far as that goes without one: texts have the CPU's bytes, and
what fails does so in words."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oxibonsai
from forked import run_oxibonsai
from native_build import needs_compiler
from oxibonsai import CapacityError, DeviceError, SamplingParams, UnsupportedError, _core, kernels
from oxibonsai.devices import list_devices, open_device
from oxibonsai.engine import EnginePool, NgramSpeculator, Options, restore, save
from oxibonsai.models.parity_suite import compare_all_ops

pytestmark = [pytest.mark.slow, needs_compiler]

IDS = [int(i) for i in np.random.default_rng(5).integers(0, 256, 70)]
GREEDY = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True)
DRAWN = replace(GREEDY, temperature=0.9, top_k=30, seed=11)


def load(path: Path, device: str = "cuda", **options: Any) -> oxibonsai.Engine:
    return oxibonsai.load(path, device=device, threads=2, **({"parity": "off"} | options))


def texts(engine: oxibonsai.Engine, prompts: list[list[int]], params: SamplingParams) -> list[Any]:
    sequences = [engine.submit(p, params) for p in prompts]
    while not all(s.finished for s in sequences):
        engine.step()
    return [s.generated for s in sequences]


# ---- Cards.


def test_a_card_is_listed_with_its_memory(card: Any) -> None:
    cpu, cuda, metal, *_ = list_devices()
    assert (cpu.name, cpu.usable) == ("cpu", True)
    assert (cuda.name, cuda.usable, cuda.reason) == ("cuda:0", True, "")
    assert cuda.description == "Emulated card 0, sm_90"
    assert cuda.total_bytes == 2 << 30
    assert metal.usable or metal.reason


def test_why_a_card_cannot_be_used_is_said(card: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    card.set_generation(70)
    assert "compute capability 7.0; the kernels need 7.5 or later" in list_devices()[1].reason
    card.set_cards(0)
    assert list_devices()[1].reason == "the driver finds no card"
    card.set_cards(1)
    card.set_generation(90)
    card.refuse_ptx()
    monkeypatch.setenv("OXIBONSAI_LIBNVRTC", "/nowhere/libnvrtc.so")
    assert "pip install 'oxibonsai[cuda]'" in list_devices()[1].reason
    monkeypatch.setenv("OXIBONSAI_LIBCUDA", "/nowhere/libcuda.so")
    assert "/nowhere/libcuda.so cannot be opened" in list_devices()[1].reason
    with pytest.raises(UnsupportedError, match="cannot be opened"):
        open_device("cuda:0")


@pytest.mark.parametrize("compiler", ["driver, where PTX is embedded", "NVRTC"])
def test_kernels_are_compiled_once_for_a_card_and_its_driver(
    card: Any, tmp_path: Path, compiler: str
) -> None:
    if compiler == "NVRTC":
        card.refuse_ptx()
    for _ in range(2):
        open_device("cuda:0", 1)
    assert card.compilations() == 1
    (image,) = (tmp_path / "cache" / "kernels").iterdir()
    assert image.name.startswith("sm_90-driver_13000-")
    whole = image.read_bytes()
    image.write_bytes(b"a file that the disk has damaged")
    open_device("cuda:0", 1)
    assert card.compilations() == 2
    assert image.read_bytes() == whole


def test_a_card_that_the_machine_lacks_is_an_error(card: Any) -> None:
    with pytest.raises(UnsupportedError, match="has no cuda:3; its driver finds 1 cards"):
        open_device("cuda:3")


# ---- The same bytes.


@pytest.mark.parametrize("kv_type", ["f32", "f16", "q8_0", "q4_0"])
def test_logits_have_the_cpus_bytes(card: Any, tiny_path: Path, kv_type: str) -> None:
    options = {"kv_type": kv_type, "ctx_size": 128}
    wanted = load(tiny_path, "cpu", **options).logits(IDS)
    engine = load(tiny_path, **options)
    assert engine.logits(IDS).tobytes() == wanted.tobytes()
    assert engine.logits(IDS, chunk_size=7).tobytes() == wanted.tobytes()
    assert card.launches() > 0


@pytest.mark.parametrize("name", ["seedling-ternary", "seedling-1bit"])
def test_seedling_has_the_cpus_bytes(card: Any, name: str) -> None:
    ids = IDS[:9]
    wanted = load(name, "cpu").logits(ids)  # type: ignore[arg-type]
    engine = load(name, ctx_size=64, parallel=1)  # type: ignore[arg-type]
    assert engine.logits(ids).tobytes() == wanted.tobytes()


def test_smollm2_has_the_cpus_bytes(card: Any, smollm2_path: Path) -> None:
    ids = [504, 3575, 282]
    wanted = load(smollm2_path, "cpu", ctx_size=64).logits(ids)
    engine = load(smollm2_path, ctx_size=64, parallel=1)
    assert engine.logits(ids).tobytes() == wanted.tobytes()


@pytest.mark.parametrize("generation", [90, 75])
def test_every_op_and_type_has_the_scalar_tiers_bytes(card: Any, generation: int) -> None:
    card.set_generation(generation)
    found = dict(compare_all_ops(open_device("cuda:0", 2), _core.CpuDevice(2, "scalar")))
    assert {name: result for name, result in found.items() if result} == {}


@pytest.mark.parametrize("params", [GREEDY, DRAWN], ids=["greedy", "drawn"])
def test_batches_and_the_prefix_cache_give_the_cpus_texts(
    card: Any, tiny_path: Path, params: SamplingParams
) -> None:
    prompts = [IDS, IDS[:66], IDS[:3], IDS]
    options = {"ctx_size": 128, "parallel": 4}
    wanted = texts(load(tiny_path, "cpu", **options), prompts, params)
    engine = load(tiny_path, **options)
    assert texts(engine, prompts, params) == wanted
    assert texts(engine, prompts, params) == wanted  # of pages that are kept now


def test_only_the_largest_logits_leave_the_card(card: Any, tiny_path: Path) -> None:
    options = {"ctx_size": 128, "parallel": 4}
    wanting_all = replace(DRAWN, repetition_penalty=1.1)
    host, engine = load(tiny_path, "cpu", **options), load(tiny_path, **options)
    row_bytes = 4 * engine.model.config.vocab_size
    for params, most in ((GREEDY, 8), (DRAWN, 8 * 31), (wanting_all, row_bytes)):
        wanted = texts(host, [IDS[:3], IDS[:9]], params)
        before = card.fetched()
        assert texts(engine, [IDS[:3], IDS[:9]], params) == wanted
        assert card.fetched() - before == most * 2 * params.max_tokens
    # All in one step: each chooses from what the others want, too.
    mixed = [GREEDY, DRAWN, replace(DRAWN, temperature=2.0, top_k=3)]
    sequences = [[e.submit(IDS[:5], p) for p in mixed] for e in (host, engine)]
    for e, own in zip((host, engine), sequences, strict=True):
        while not all(s.finished for s in own):
            e.step()
    assert [s.generated for s in sequences[1]] == [s.generated for s in sequences[0]]


def test_speculation_gives_the_cpus_text(card: Any, tiny_path: Path) -> None:
    prompt = IDS[:10] * 3
    wanted = texts(load(tiny_path, "cpu"), [prompt], GREEDY)
    engine = load(tiny_path, ctx_size=128, parallel=1)
    sequence = engine.submit(prompt, GREEDY, Options(speculate=NgramSpeculator))
    while not sequence.finished:
        engine.step()
    assert [sequence.generated] == wanted


@pytest.mark.parametrize("way", [("cpu", "cuda"), ("cuda", "cpu")], ids=["to", "from"])
def test_a_snapshot_moves_between_devices(
    card: Any, tiny_path: Path, tmp_path: Path, way: tuple[str, str]
) -> None:
    (wanted,) = texts(load(tiny_path, "cpu"), [IDS], DRAWN)
    first = load(tiny_path, way[0], ctx_size=128, parallel=1)
    sequence = first.submit(IDS, DRAWN)
    for _ in range(3):
        first.step()
    assert save(first, sequence, tmp_path / "s") == 64
    other = load(tiny_path, way[1], ctx_size=128, parallel=1)
    restored = restore(other, tmp_path / "s")
    assert restored.computed == 64
    while not restored.sequence.finished:
        other.step()
    assert restored.sequence.generated == wanted


@pytest.mark.parametrize("gpu_layers", [0, 1, 2, 99])
def test_layers_left_to_the_cpu(card: Any, tiny_path: Path, gpu_layers: int) -> None:
    prompts = [IDS[:5], IDS[:66]]
    wanted = texts(load(tiny_path, "cpu", ctx_size=128), prompts, DRAWN)
    engine = load(tiny_path, gpu_layers=gpu_layers, ctx_size=128, parallel=2)
    names = {0: "cpu", 99: "cuda:0"}
    assert engine.model.device.name == names.get(gpu_layers, "cpu+cuda:0")
    for _ in range(2):
        assert texts(engine, prompts, DRAWN) == wanted


def test_two_cards_share_the_layers(card: Any, tiny_path: Path, tmp_path: Path) -> None:
    card.set_cards(2)
    wanted = texts(load(tiny_path, "cpu"), [IDS], DRAWN)
    engine = load(tiny_path, "cuda:0,cuda:1", ctx_size=128, parallel=1, parity="quick")
    assert engine.model.device.name == "cuda:0+cuda:1"
    assert texts(engine, [IDS], DRAWN) == wanted
    split = load(tiny_path, "cuda:0,cuda:1", gpu_layers=2, ctx_size=128, parallel=1)
    assert split.model.device.name.startswith("cpu+cuda:0")
    assert texts(split, [IDS], DRAWN) == wanted
    with pytest.raises(UnsupportedError, match="one engine at a time"):
        EnginePool.from_pretrained(tiny_path, device="cuda", gpu_layers=2, replicas=2)
    card.set_memory(card.used() + (3 << 20))
    with pytest.raises(CapacityError, match="choose a smaller ctx_size"):
        load(tiny_path, gpu_layers=2, ctx_size=512, parallel=400)


def test_kernels_on_a_card_have_the_cpus_bytes(card: Any) -> None:
    r = np.random.default_rng(1)
    matrix = kernels.quantize(r.standard_normal((70, 256), dtype=np.float32), threads=1)
    x = r.standard_normal((9, 256), dtype=np.float32)
    q, k, v = (r.standard_normal((h, 66, 64), dtype=np.float32) for h in (4, 2, 2))
    for run in (
        lambda device: kernels.gemv(matrix, x[0], device=device),
        lambda device: kernels.gemm_tq2(matrix, x, device=device),
        lambda device: kernels.flash_attention(q[:, -3:], k, v, device=device),
    ):
        device = open_device("cuda:0", 1)
        assert run(device).tobytes() == run(open_device("cpu", 1)).tobytes()


# ---- What fails.


def test_every_allocation_may_fail(card: Any, tiny_path: Path) -> None:
    def run() -> list[Any]:
        return texts(load(tiny_path, ctx_size=64, parallel=1), [IDS[:5]], GREEDY)

    wanted = run()
    gc.collect()
    assert card.used() == 0
    card.reset()
    run()
    count = card.allocations()
    assert count > 10
    for n in range(1, count + 1):
        card.reset()
        card.fail_allocation(n)
        with pytest.raises(CapacityError, match=r"were asked for|cuMem"):
            run()
        gc.collect()
        assert card.used() == 0, f"allocation {n} of {count}"
    card.reset()
    assert run() == wanted


def test_a_model_that_does_not_fit_is_refused_with_numbers(card: Any, tiny_path: Path) -> None:
    card.set_memory(4 << 20)
    with pytest.raises(CapacityError, match=r"4 sequences of 512 positions .* take .* GB"):
        load(tiny_path, ctx_size=512)
    gc.collect()
    fitting = load(tiny_path)
    assert 0 < fitting.ctx_size < 512
    card.set_memory(1 << 10)
    with pytest.raises(CapacityError, match="bytes"):
        load(tiny_path)


def test_pages_of_several_types_are_refused(card: Any, tiny_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="kv_pressure is not available on cuda:0"):
        load(tiny_path, kv_pressure="balanced")


def test_a_lost_card_ends_the_step_in_the_drivers_words(card: Any, tiny_path: Path) -> None:
    engine = load(tiny_path, ctx_size=64, parallel=2)
    card.fail_launch(5)
    with pytest.raises(DeviceError, match=r"CUDA_ERROR_LAUNCH_FAILED .the card has fallen off"):
        texts(engine, [IDS[:5]], GREEDY)
    with pytest.raises(DeviceError, match="CUDA_ERROR_LAUNCH_FAILED"):
        engine.logits(IDS[:2])


def test_a_pool_has_one_engine_on_a_card_and_says_that_the_card_was_lost(
    card: Any, tiny_path: Path
) -> None:
    options = {"device": "cuda", "parallel": 2, "threads": 2, "ctx_size": 64, "parity": "off"}
    with pytest.raises(UnsupportedError, match="cuda:0 runs one engine at a time"):
        EnginePool.from_pretrained(tiny_path, replicas=3, **options)
    gc.collect()
    pool = EnginePool.from_pretrained(tiny_path, **options)
    card.fail_launch(1)
    with pool.permit() as engine:
        sequence = engine.submit(IDS[:5], GREEDY)
        deadline = time.monotonic() + 60
        while pool.failure is None and time.monotonic() < deadline:
            time.sleep(0.01)
    assert sequence.cancelled
    assert isinstance(pool.failure, DeviceError)
    with pytest.raises(CapacityError, match="an engine has stopped"), pool.permit():
        pass
    pool.close()


def test_auto_takes_a_card_that_proves_itself_and_says_why_not(card: Any, tiny_path: Path) -> None:
    engine = load(tiny_path, "auto", ctx_size=64, parallel=1)
    assert engine.model.device.name == "cuda:0"
    card.set_generation(70)
    with pytest.warns(UserWarning, match=r"runs on the CPU: cuda:0: .*compute capability 7\.0"):
        assert load(tiny_path, "auto").model.device.name == "cpu"
    card.set_generation(90)
    card.fail_launch(1)
    with pytest.warns(UserWarning, match="fallen off the bus"):
        assert load(tiny_path, "auto").model.device.name == "cpu"


# ---- Commands.


def test_the_benchmark_for_cards_runs(card: Any) -> None:
    script = Path(__file__).resolve().parents[2] / "bench" / "gpu.py"
    sizes = ["--rows", "64", "--cols", "256", "--tokens", "1", "8", "--copy-bytes", "4096"]
    done = subprocess.run(
        [sys.executable, str(script), "cuda", *sizes], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["device"] == "Emulated card 0, sm_90"
    assert {"type", "us_1", "share_of_copy", "us_8", "tera_macs_8"} <= set(report["layers"][0])


def test_commands_take_a_device(card: Any, tiny_path: Path) -> None:
    def command(*arguments: object) -> subprocess.CompletedProcess[str]:
        return run_oxibonsai(*arguments, OXIBONSAI_THREADS="2")

    devices = json.loads(command("info", "--devices", "--json").stdout)["devices"]
    assert [d["name"] for d in devices][:3] == ["cpu", "cuda:0", "metal"]
    run = ["run", "-m", tiny_path, "ab", "--max-tokens", "3", "--temp", "0", "-c", "64"]
    on_cpu, on_card = (command(*run, "--device", d, "--parity", "off") for d in ("cpu", "cuda"))
    assert on_card.returncode == 0, on_card.stderr
    assert on_card.stdout == on_cpu.stdout
    shared = command(*run, "--device", "cuda", "-ngl", "2", "--parity", "off")
    assert shared.stdout == on_cpu.stdout
    wrong = command(*run, "--device", "gpu")
    assert (wrong.returncode, "it is one of auto, cpu, cuda" in wrong.stderr) == (2, True)
