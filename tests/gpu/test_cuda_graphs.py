"""Steps whose launches are one CUDA graph, on a driver that records and replays them: the texts
are the CPU's, as those of single launches are."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oxibonsai
import tiny_model
from native_build import build, needs_compiler
from oxibonsai import DeviceError, RequestError, SamplingParams, _core
from oxibonsai.devices import list_devices, open_device
from oxibonsai.engine import NgramSpeculator, Options
from oxibonsai.graph import Builder

pytestmark = [pytest.mark.slow, needs_compiler]

IDS = [int(i) for i in np.random.default_rng(5).integers(0, 256, 70)]
GREEDY = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)
MOST_LAUNCHES = 50  # of a step
LAUNCHES_OF_A_LAYER = 5  # of a Qwen3, for a token
DRAWN = replace(GREEDY, temperature=0.9, top_k=30, seed=11)


def load(path: Path, device: str = "cuda", **options: Any) -> oxibonsai.Engine:
    options = {"ctx_size": 128, "parallel": 4, "parity": "off"} | options
    return oxibonsai.load(path, device=device, threads=2, **options)


def texts(
    engine: oxibonsai.Engine,
    prompts: list[list[int]],
    params: SamplingParams,
    options: Options | None = None,
) -> list[Any]:
    sequences = [engine.submit(p, params, *([options] if options else [])) for p in prompts]
    while not all(s.finished for s in sequences):
        engine.step()
    return [s.generated for s in sequences]


def test_steps_of_decoding_are_one_graph(card: Any, tiny_path: Path) -> None:
    wanted = texts(load(tiny_path, "cpu"), [IDS[:5]], GREEDY)
    engine = load(tiny_path)
    assert texts(engine, [IDS[:5]], GREEDY) == wanted
    # The first step takes the prompt, and the next sees the launches of decoding for the first time.
    assert card.graph_launches() == GREEDY.max_tokens - 2
    before = card.launches()
    assert texts(engine, [IDS[:5]], GREEDY) == wanted
    # A graph each for the prompt's step, which came before, and for those of decoding.
    assert card.graph_launches() == 2 * GREEDY.max_tokens - 2
    # The two of the search for the largest logits, and those of the prompt that were captured.
    assert card.launches() - before <= 2 * GREEDY.max_tokens + MOST_LAUNCHES
    del engine
    gc.collect()
    assert card.graphs() == 0


@pytest.mark.parametrize("params", [GREEDY, DRAWN], ids=["greedy", "drawn"])
def test_batches_contexts_and_the_prefix_cache_give_the_cpus_texts(
    card: Any, tiny_path: Path, params: SamplingParams
) -> None:
    # Lengths that end a page, and sequences that end at different steps.
    prompts = [IDS[:60], IDS, IDS[:3], IDS]
    lengths = [replace(params, max_tokens=n) for n in (12, 4, 8, 6)]
    engines = [load(tiny_path, device) for device in ("cpu", "cuda")]
    for _ in range(3):
        both = []
        for engine in engines:
            sequences = [engine.submit(p, n) for p, n in zip(prompts, lengths, strict=True)]
            while not all(s.finished for s in sequences):
                engine.step()
            both.append([s.generated for s in sequences])
        assert both[1] == both[0]
    assert card.graph_launches() > 20


def test_a_context_that_grows_by_a_part_gets_another_graph(card: Any, tmp_path: Path) -> None:
    long = tmp_path / "long.gguf"
    tiny_model.write(long, changes={"qwen3.context_length": (1024, "u32")})
    prompt = (IDS * 8)[:507]
    engines = [load(long, device, ctx_size=540, parallel=1) for device in ("cpu", "cuda")]
    found = [texts(e, [prompt], replace(GREEDY, max_tokens=12)) for e in engines]
    assert found[1] == found[0]
    # Of positions to 511, and from there on: the first step of each is not replayed.
    assert card.graph_launches() == 11 - 2


def test_speculation_gives_the_cpus_text(card: Any, tiny_path: Path) -> None:
    prompt = IDS[:10] * 3
    long = replace(GREEDY, max_tokens=30)
    wanted = texts(load(tiny_path, "cpu"), [prompt], long)
    engine = load(tiny_path)
    for _ in range(2):
        assert texts(engine, [prompt], long, Options(speculate=NgramSpeculator)) == wanted
    assert card.graph_launches() > 0


def test_graphs_are_bounded(card: Any) -> None:
    g = Builder()
    x = g.input("x", 32)
    for _ in range(4):
        x = g.add(x, x)
    g.output("y", x)
    compiled = open_device("cuda:0", 1).compile(g.graph)
    for rows in range(1, 70):
        batch = _core.Batch()
        batch.add_span(rows)
        values = np.full((rows, 32), rows, np.float32)
        batch.set_input("x", values)
        for _ in range(2):
            assert (compiled.run(batch)["y"] == 16 * values).all()
    assert (card.graph_launches(), card.graphs()) == (69, 64)


def test_graphs_can_be_turned_off(
    card: Any, tiny_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = texts(load(tiny_path, "cpu"), [IDS[:5]], GREEDY)
    monkeypatch.setenv("OXIBONSAI_CUDA_GRAPHS", "0")
    assert texts(load(tiny_path), [IDS[:5]], GREEDY) == wanted
    assert card.graph_launches() == 0
    without = "Emulated card 0, sm_90, without CUDA graphs (OXIBONSAI_CUDA_GRAPHS=0)"
    assert list_devices()[1].description == without
    monkeypatch.setenv("OXIBONSAI_CUDA_GRAPHS", "yes")
    with pytest.raises(RequestError, match="OXIBONSAI_CUDA_GRAPHS is yes; it is 0 or 1"):
        open_device("cuda:0", 1)


def test_without_memory_for_graphs_there_are_single_launches(card: Any, tiny_path: Path) -> None:
    wanted = texts(load(tiny_path, "cpu"), [IDS[:5]], GREEDY)
    engine = load(tiny_path)
    card.fail_graph(1)
    assert texts(engine, [IDS[:5]], GREEDY) == wanted
    assert (card.graph_launches(), card.graphs()) == (0, 0)


def test_a_driver_that_refuses_a_graph_gets_single_launches(card: Any, tiny_path: Path) -> None:
    wanted = texts(load(tiny_path, "cpu"), [IDS[:5]], GREEDY)
    engine = load(tiny_path)
    card.set_graph_failure(1)
    card.fail_graph(1)
    assert texts(engine, [IDS[:5]], GREEDY) == wanted
    assert (card.graph_launches(), card.graphs()) == (0, 0)
    reason = "without CUDA graphs (cuGraphInstantiateWithFlags: CUDA_ERROR_INVALID_VALUE"
    assert reason in engine.model.device.tier


def test_a_step_leaves_the_callers_context_as_it_was(card: Any, tiny_path: Path) -> None:
    engine = load(tiny_path)
    texts(engine, [IDS[:5]], GREEDY)
    assert card.graph_launches() > 0
    assert not card.has_context()


def test_a_token_takes_few_calls_of_the_driver(
    card: Any, tiny_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OXIBONSAI_CUDA_GRAPHS", "0")
    engine = load(tiny_path)
    layers = len(engine.model.graph.paged_layers)
    card.idle(True)
    engine.submit(IDS[:5], replace(GREEDY, max_tokens=40))
    engine.step()
    names = ("launches", "uploads", "downloads", "synchronizations")
    calls = {name: getattr(card, name) for name in names}
    before = {name: call() for name, call in calls.items()}
    for _ in range(10):
        engine.step()
    found = {name: call() - before[name] for name, call in calls.items()}
    # Beside the layers: the last norm, the output and the two of the search for the largest logits.
    assert found["launches"] <= 10 * (LAUNCHES_OF_A_LAYER * layers + 5)
    assert found["uploads"] <= 10 * 3
    assert found["downloads"] <= 10 * 2
    assert found["synchronizations"] <= 10 * 3


def test_a_card_that_is_lost_within_a_graph_ends_the_step(card: Any, tiny_path: Path) -> None:
    engine = load(tiny_path)
    texts(engine, [IDS[:5]], GREEDY)
    replayed = card.graph_launches()
    card.fail_launch(60)
    with pytest.raises(DeviceError, match=r"cuGraphLaunch: .*the card has fallen off"):
        texts(engine, [IDS[:5]], GREEDY)
    assert card.graph_launches() > replayed


def test_an_older_driver_makes_single_launches(card: Any, tiny_path: Path) -> None:
    folder = build("native", target="fake_cuda_without_graphs")
    library = folder / "tests" / "native" / "libfake_cuda_without_graphs.so"
    environment = os.environ | {"OXIBONSAI_LIBCUDA": str(library)}

    def command(*arguments: str) -> str:
        line = [sys.executable, "-m", "oxibonsai", *arguments]
        done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        return done.stdout

    (info,) = (
        d
        for d in json.loads(command("info", "--devices", "--json"))["devices"]
        if d["name"] == "cuda:0"
    )
    assert info["usable"]
    assert info["description"].endswith("without CUDA graphs (the driver is older than CUDA 11.4)")
    run = ["run", "-m", str(tiny_path), "ab", "--max-tokens", "5", "--temp", "0", "-c", "64"]
    on_cpu, on_card = (command(*run, "--device", d, "--parity", "off") for d in ("cpu", "cuda"))
    assert on_card == on_cpu
