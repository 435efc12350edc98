"""Random models with recurrent state: logits against transformers, and the same bytes however they run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oxibonsai import _core
from oxibonsai.checkpoint import Checkpoint
from oxibonsai.checkpoint.model_file import ModelFile
from oxibonsai.convert import convert
from oxibonsai.models import Model, check_parity, load_model
from oxibonsai.quantize import quantize

pytest.importorskip("transformers", reason="needs transformers and torch (extra: test)")
import recurrent_models as rm

pytestmark = pytest.mark.hf

TIERS = _core.cpu.tiers()
TYPES = [(c, t) for c in rm.CASES for t in ("f32", *c.quantized)]
N = len(rm.IDS)


@dataclass
class Made:
    """A case's model of transformers and its files by quant type."""

    truth: rm.Floats
    files: dict[str, Path]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Made]:
    found = {}
    for i, case in enumerate(rm.CASES):
        folder = tmp_path_factory.mktemp(f"case{i}")
        model = case.save(folder / "model")
        files = {"f32": folder / "f32.gguf"}
        convert(folder / "model", files["f32"], dtype="f32")
        for quant_type in case.quantized:
            files[quant_type] = folder / f"{quant_type}.gguf"
            source = ModelFile.open(files["f32"])
            quantize(source, files[quant_type], quant_type.upper(), pure=True)
        found[case.name] = Made(rm.reference_logits(model), files)
    return found


@dataclass
class Runs:
    """A model and the state of a few sequences."""

    model: Model
    pools: list[_core.KvPages]
    slots: _core.Slots

    @classmethod
    def of(cls, path: Path, tier: str = "scalar", threads: int = 1) -> Runs:
        model = load_model(Checkpoint(path), _core.CpuDevice(threads, tier))
        pools = [model.new_pages("f32", 16)] if model.graph.paged_layers else []
        return cls(model, pools, _core.Slots(model.graph.slot_entries, 4))

    def run(self, *spans: tuple[int, int, int], ids: list[int] = rm.IDS) -> list[rm.Floats]:
        """Logits of positions first .. last - 1 of the sequence in each slot."""
        batch = _core.Batch()
        for slot, first, last in spans:
            pages = list(range(4 * slot, 4 * slot + 4))
            batch.add(ids[first:last], first=first, pages=pages, slot=slot, outputs=last - first)
        rows = self.model.executable.run(batch, self.pools, self.slots)["logits"]
        return np.split(rows, np.cumsum([b - a for _, a, b in spans])[:-1])

    def logits(self, chunk: int = N) -> rm.Floats:
        """Of the whole text, cut into chunks."""
        cut = [(0, a, min(a + chunk, N)) for a in range(0, N, chunk)]
        return np.concatenate([self.run(span)[0] for span in cut])


@pytest.mark.parametrize("case", rm.CASES, ids=lambda c: c.name)
def test_float_weights_give_the_logits_of_transformers(
    case: rm.Case, made: dict[str, Made]
) -> None:
    truth = made[case.name].truth
    assert truth.std(axis=0).mean() > 0.3  # logits that hardly change with the text prove nothing
    logits = Runs.of(made[case.name].files["f32"]).logits()
    assert np.abs(logits - truth).max() <= 1e-4 * np.abs(truth).max()


@pytest.mark.parametrize(("case", "quant_type"), TYPES, ids=lambda v: getattr(v, "name", v))
def test_bytes_depend_on_the_text_alone(
    case: rm.Case, quant_type: str, made: dict[str, Made]
) -> None:
    path = made[case.name].files[quant_type]
    truth = Runs.of(path).logits().tobytes()
    for tier in TIERS:
        runs = Runs.of(path, tier, 2)
        for size in (1, 7, 64):
            assert runs.logits(size).tobytes() == truth, f"{tier}, chunks of {size}"
        first = runs.run((1, 0, 5), (0, 0, 64), (2, 0, 1), (3, 0, 70))
        then = runs.run((3, 70, N), (2, 1, 3), (0, 64, N), (1, 5, 6))
        assert np.concatenate([first[1], then[2]]).tobytes() == truth, f"{tier}, in a batch"
        assert np.concatenate([first[3], then[0]]).tobytes() == truth, f"{tier}, in a batch"


@pytest.mark.parametrize("case", rm.CASES, ids=lambda c: c.name)
def test_a_sequence_goes_on_from_a_copy_of_its_slot(case: rm.Case, made: dict[str, Made]) -> None:
    runs = Runs.of(made[case.name].files["f32"], TIERS[-1])
    truth = runs.logits()
    runs.run((0, 0, 64))
    runs.slots.copy(0, 1)
    runs.run((0, 64, 80))
    runs.slots.copy(1, 0)
    assert runs.run((0, 64, N))[0].tobytes() == truth[64:].tobytes()


@pytest.mark.parametrize("case", rm.CASES, ids=lambda c: c.name)
def test_the_parity_guard_finds_no_difference(case: rm.Case, made: dict[str, Made]) -> None:
    quant_type = next(iter(case.quantized), "f32")
    check_parity(Runs.of(made[case.name].files[quant_type], TIERS[-1]).model, "quick", "f32")


def test_state_that_is_not_carried_changes_the_logits(made: dict[str, Made]) -> None:
    """What the comparison of chunks rests on."""
    runs = Runs.of(made["qwen35"].files["f32"])
    truth: Any = runs.logits()
    runs.run((0, 0, 64))
    runs.slots.write(0, bytes(runs.slots.slot_bytes))
    lost = runs.run((0, 64, N))[0]
    assert np.abs(lost - truth[64:]).max() > 0.01 * np.abs(truth).max()
