"""A saved sequence goes on as if nothing had happened; a bad file is refused."""

from __future__ import annotations

import json
import struct
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import oxibonsai
import tiny_model
from oxibonsai import FormatError, SamplingParams
from oxibonsai.engine import ContextShift, Engine, Options, restore, save
from oxibonsai.structured import Structure

IDS = [int(i) for i in np.random.default_rng(3).integers(0, 256, 70)]
DRAWN = SamplingParams(temperature=0.9, top_k=30, seed=11, max_tokens=90, ignore_eos=True)
CASES = {
    "drawn": (DRAWN, Options()),
    "mirostat": (replace(DRAWN, mirostat=2, mirostat_tau=3.0), Options()),
    "penalties": (
        replace(DRAWN, presence_penalty=0.4, dry_multiplier=0.9, logit_bias={3: 1.5}),
        Options(),
    ),
    "logprobs": (replace(DRAWN, logprobs=True, top_logprobs=2), Options()),
    "stop": (replace(DRAWN, stop=("~never there~",)), Options()),
    "structure": (DRAWN, Options(structure=Structure.regex("[a-f]{80,}"))),
    "shift": (replace(DRAWN, max_tokens=600), Options(shift=ContextShift(sinks=8))),
}


def finish(engine: Engine, sequence: oxibonsai.engine.Sequence) -> None:
    while not sequence.finished:
        engine.step()


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("steps", [0, 1, 40, 500])
def test_the_rest_of_a_text_is_the_same_in_another_engine(
    tiny_path: Path, tmp_path: Path, case: str, steps: int
) -> None:
    params, options = CASES[case]
    engine = oxibonsai.load(tiny_path)
    sequence = engine.submit(IDS, params, options)
    for _ in range(steps):
        engine.step()
    save(engine, sequence, tmp_path / "s", {"about": "a test"})
    finish(engine, sequence)
    other = oxibonsai.load(tiny_path)
    restored = restore(other, tmp_path / "s")
    finish(other, restored.sequence)
    assert restored.notes == {"about": "a test"}
    for name in ("generated", "text", "finish_reason", "logprobs", "shifts"):
        assert getattr(restored.sequence, name) == getattr(sequence, name), name
    assert other.cache.used_bytes == 0


@pytest.fixture(scope="module")
def saved(tiny_path: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Engine, bytes, Path]:
    folder = tmp_path_factory.mktemp("snapshot")
    engine = oxibonsai.load(tiny_path)
    sequence = engine.submit(IDS, DRAWN)
    for _ in range(3):
        engine.step()
    save(engine, sequence, folder / "s")
    engine.cancel(sequence)
    return engine, (folder / "s").read_bytes(), folder


def refuses(engine: Engine, path: Path, data: bytes, message: str = ".") -> None:
    path.write_bytes(data)
    with pytest.raises(FormatError, match=message):
        restore(engine, path)
    assert engine.num_running == 0
    assert engine.cache.used_bytes == 0


def test_every_cut_is_refused(saved: tuple[Engine, bytes, Path]) -> None:
    engine, data, folder = saved
    lengths = [*range(0, 3000), *range(3000, len(data), 4099), len(data) - 1]
    for length in lengths:
        refuses(engine, folder / "cut", data[:length])


@given(st.data())
@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_changed_byte_is_refused(
    saved: tuple[Engine, bytes, Path], data: st.DataObject
) -> None:
    engine, whole, folder = saved
    at = data.draw(st.integers(0, len(whole) - 1))
    changed = bytearray(whole)
    changed[at] ^= data.draw(st.integers(1, 255))
    refuses(engine, folder / "changed", bytes(changed))


def forge(data: bytes, **changes: object) -> bytes:
    """A file whose hash is right and whose header is not."""
    import hashlib

    magic, version, length = struct.unpack_from("<8sIQ", data)
    header = json.loads(data[20 : 20 + length])
    for key, value in changes.items():
        if value is ...:
            del header[key]
        else:
            header[key] = value
    text = json.dumps(header).encode()
    body = struct.pack("<8sIQ", magic, version, len(text)) + text + data[20 + length : -32]
    return body + hashlib.blake2b(body, digest_size=32).digest()


@pytest.mark.parametrize(
    "changes",
    [
        {"model": "0" * 32},
        {"kv_type": "q8_0"},
        {"pages": 2},
        {"pages": -1},
        {"page_bytes": 0},
        {"num_computed": 1 << 60},
        {"num_computed": -64},
        {"num_computed": "7"},
        {"num_prompt_tokens": 0},
        {"num_prompt_tokens": "x"},
        {"history": [1, 2, 1 << 40]},
        {"history": []},
        {"history": {"a": 1}},
        {"history": ...},
        {"tokens": [999999]},
        {"tokens": "abc"},
        {"params": {}},
        {"params": []},
        {"params": {"temperature": -1}},
        {"params": {"no_such_field": 1}},
        {"sampler": {"seed": "x", "mirostat_mu": 1.0}},
        {"sampler": None},
        {"structure": "{"},
        {"shift": {"sinks": -1}},
        {"shifts": [{}]},
        {"logprobs": [1]},
        {"finish_reason": ...},
        {"visible": [[]]},
    ],
    ids=str,
)  # fmt: skip
def test_headers_that_contradict_the_file_are_refused(
    saved: tuple[Engine, bytes, Path], changes: dict[str, object]
) -> None:
    engine, data, folder = saved
    refuses(engine, folder / "forged", forge(data, **changes))


def test_another_model_is_named(saved: tuple[Engine, bytes, Path], tmp_path: Path) -> None:
    _, data, _ = saved
    tiny_model.write(tmp_path / "other.gguf", seed=2)
    other = oxibonsai.load(tmp_path / "other.gguf")
    refuses(other, tmp_path / "s", data, "another model")


def test_another_type_of_cache_is_named(
    saved: tuple[Engine, bytes, Path], tiny_path: Path, tmp_path: Path
) -> None:
    _, data, _ = saved
    other = oxibonsai.load(tiny_path, kv_type="q8_0")
    refuses(other, tmp_path / "s", data, "--kv-type f32")


def test_a_failed_save_leaves_the_old_file(
    saved: tuple[Engine, bytes, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, data, _ = saved
    target = tmp_path / "s"
    target.write_bytes(data)
    sequence = engine.submit(IDS, DRAWN)

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        save(engine, sequence, target)
    engine.cancel(sequence)
    assert target.read_bytes() == data
    assert [p.name for p in tmp_path.iterdir()] == ["s"]


def test_pages_come_back_with_the_type_that_the_text_began_with(
    tiny_path: Path, tmp_path: Path
) -> None:
    engine = oxibonsai.load(tiny_path, kv_pressure="aggressive")
    assert engine.policy is not None
    for _ in range(20):
        engine.policy.observe(0.7)
    for steps in (20, 500):
        sequence = engine.submit(IDS, DRAWN)
        for _ in range(steps):
            engine.step()
        assert engine.cache.pools[sequence.table.pool].type == "q8_0"
        save(engine, sequence, tmp_path / "s")
        finish(engine, sequence)
        for other in (
            oxibonsai.load(tiny_path, kv_pressure="balanced"),
            oxibonsai.load(tiny_path, kv_type="q8_0"),
        ):
            restored = restore(other, tmp_path / "s").sequence
            finish(other, restored)
            assert restored.generated == sequence.generated
            assert other.cache.used_bytes == 0
        for _ in range(20):
            engine.policy.observe(0.7)


@pytest.mark.parametrize("ignore_eos", [True, False])
def test_a_text_saved_at_an_end_token_goes_on_or_has_ended(
    tiny_path: Path, tmp_path: Path, ignore_eos: bool
) -> None:
    engine = oxibonsai.load(tiny_path)
    params = replace(DRAWN, logit_bias={257: 100.0}, ignore_eos=ignore_eos, max_tokens=6)
    sequence = engine.submit(IDS, params)
    while sequence.num_generated < 1:
        engine.step()
    save(engine, sequence, tmp_path / "s")
    finish(engine, sequence)
    restored = restore(oxibonsai.load(tiny_path), tmp_path / "s").sequence
    assert restored.finished is not ignore_eos
    assert restored.matched_stop == (None if ignore_eos else 257)


@pytest.mark.parametrize("kind", [str, Path, PurePath], ids=["text", "path", "path-like"])
def test_a_path_may_be_text_or_path_like(tiny_path: Path, tmp_path: Path, kind: Any) -> None:
    engine = oxibonsai.load(tiny_path, parity="off")
    sequence = engine.submit(IDS, DRAWN)
    engine.step()
    place = kind(str(tmp_path / "s"))
    save(engine, sequence, place)
    finish(engine, sequence)
    restored = oxibonsai.restore(engine, place)
    assert isinstance(restored, oxibonsai.Snapshot)
    finish(engine, restored.sequence)
    assert restored.sequence.generated == sequence.generated
