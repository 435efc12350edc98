"""Sequences with different adapters in the steps of one engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import adapters
import oxibonsai
from oxibonsai import CapacityError, RequestError, SamplingParams
from oxibonsai.engine import Options, adapted_models
from oxibonsai.engine.engine import Engine
from oxibonsai.loading import open_adapters
from oxibonsai.lora import Adapter

PROMPT = list(range(5, 75))
PARAMS = SamplingParams(max_tokens=12, temperature=0, ignore_eos=True)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("adapters")
    paths = [folder / "first.gguf", folder / "second.gguf"]
    for seed, path in enumerate(paths, 7):
        adapters.write(path, adapters.tensors_of(adapters.random_pairs(seed=seed)))
    return paths


@pytest.fixture
def engine(tiny_path: Path) -> Engine:
    return oxibonsai.load(tiny_path, threads=2, parity="off")


def opened(engine: Engine, *chosen: tuple[Path, float]) -> tuple[Adapter, ...]:
    return open_adapters(list(chosen), engine.model.weights.checkpoint)


def written(engine: Engine, *keys: str) -> list[list[int]]:
    """What sequences write that share their steps."""
    sequences = [engine.submit(PROMPT, PARAMS, Options(adapter=key)) for key in keys]
    while not all(s.finished for s in sequences):
        engine.step()
    return [s.generated for s in sequences]


def test_each_sequence_writes_what_it_would_alone(
    engine: Engine, tiny_path: Path, files: list[Path]
) -> None:
    sets = [[], [(files[0], 1.0)], [(files[1], 1.0)], [(files[0], 0.5), (files[1], 1.0)]]
    keys = [engine.adapter_key(opened(engine, *chosen)) for chosen in sets]
    assert len(set(keys)) == 4
    alone = []
    for chosen in sets:
        other = oxibonsai.load(tiny_path, threads=1, lora=chosen, parity="off")
        alone += written(other, "")
    assert len({tuple(tokens) for tokens in alone}) == 4
    assert written(engine, *keys) == alone
    # Again, now from the prefix cache, in another order and each twice.
    assert written(engine, *reversed(keys), *keys) == [*reversed(alone), *alone]


def test_keys_and_values_are_shared_by_sequences_of_one_adapter_only(
    engine: Engine, files: list[Path]
) -> None:
    one, two = (engine.adapter_key(opened(engine, (file, 1.0))) for file in files)
    written(engine, one)
    cached = []
    for key in ("", one, two):
        sequence = engine.submit(PROMPT, PARAMS, Options(adapter=key))
        while not sequence.finished:
            engine.step()
        cached.append(sequence.num_cached)
    assert cached == [0, 64, 0]


def test_an_adapter_can_leave_the_loaded_ones_out(tiny_path: Path, files: list[Path]) -> None:
    engine = oxibonsai.load(tiny_path, lora=files[0], parity="off")
    plain = oxibonsai.load(tiny_path, parity="off")
    assert engine.adapter_key(engine.model.adapters) == ""
    assert engine.adapter_key(opened(engine, (files[0], 0.0))) == engine.adapter_key([])
    assert written(engine, engine.adapter_key([])) == written(plain, "")


def test_sets_that_were_dropped_are_compiled_again(engine: Engine, files: list[Path]) -> None:
    first = engine.adapter_key(opened(engine, (files[0], 1.0)))
    before = written(engine, first)
    for i in range(20):
        engine.adapter_key(opened(engine, (files[1], 0.1 + i)))
    assert written(engine, first) == before


def test_the_sets_of_one_step_are_compiled_once(
    engine: Engine, files: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapted_models, "_MOST_COMPILED", 2)
    keys = [engine.adapter_key(opened(engine, (files[0], 0.5 + i))) for i in range(4)]
    compiled = []
    with_adapters = engine.model.with_adapters

    def counted(adapters: Any) -> Any:
        compiled.append(adapters)
        return with_adapters(adapters)

    monkeypatch.setattr(engine.model, "with_adapters", counted)
    written(engine, *keys)
    assert len(compiled) <= 4
    # Once they are not needed any more, as many are given up as are too many.
    engine.adapter_key(opened(engine, (files[1], 1.0)))
    written(engine, "")
    engine.adapter_key(opened(engine, (files[1], 2.0)))
    kept = engine._engine_core.models._compiled
    assert len(kept) == 2


def test_a_set_that_was_forgotten_ends_its_own_sequences_only(
    engine: Engine, files: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapted_models, "_MOST_SETS", 2)
    first = engine.adapter_key(opened(engine, (files[0], 1.0)))
    waiting = engine.submit(PROMPT, PARAMS, Options(adapter=first))
    for i in range(2):
        engine.adapter_key(opened(engine, (files[1], 0.1 + i)))
    other = engine.submit(PROMPT, PARAMS, Options())
    while not (waiting.finished and other.finished):
        engine.step()
    assert isinstance(waiting.error, CapacityError)
    assert other.generated == written(engine, "")[0]
    assert not engine.knows_adapter(first)
    assert engine.adapter_key(opened(engine, (files[0], 1.0))) == first  # it can be used again


def test_a_key_that_names_nothing_is_refused(engine: Engine) -> None:
    with pytest.raises(RequestError, match="adapter_key"):
        engine.submit(PROMPT, PARAMS, Options(adapter="style"))


def test_a_set_that_cannot_be_compiled_again_ends_its_own_sequences_only(
    engine: Engine, files: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = engine.adapter_key(opened(engine, (files[0], 1.0)))
    (plain,) = written(engine, "")
    for i in range(16):  # its pass is given up
        engine.adapter_key(opened(engine, (files[1], 0.1 + i)))

    def refuse(_: object) -> None:
        raise CapacityError("no room for the adapter")

    monkeypatch.setattr(engine.model, "with_adapters", refuse)
    adapted = engine.submit(PROMPT, PARAMS, Options(adapter=first))
    other = engine.submit(PROMPT, PARAMS, Options())
    while not (adapted.finished and other.finished):
        engine.step()
    assert isinstance(adapted.error, CapacityError)
    assert other.generated == plain
    alone = engine.submit(PROMPT, PARAMS, Options(adapter=first))
    assert engine.step() == []
    assert isinstance(alone.error, CapacityError)
    assert engine.num_running == 0
