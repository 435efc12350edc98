"""Random models with recurrent state: logits against transformers, and the same bytes however they run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gguf_copy
import oxibonsai
from oxibonsai import FormatError, SamplingParams, UnsupportedError, _core
from oxibonsai.checkpoint import Checkpoint
from oxibonsai.checkpoint.gguf import GgufModel
from oxibonsai.convert.language_model import convert
from oxibonsai.engine import Engine, NgramSpeculator, Options
from oxibonsai.models import Model, check_parity, load_model
from oxibonsai.models.passes import GENERATE
from oxibonsai.quantize import quantize

pytest.importorskip("transformers", reason="needs transformers and torch (extra: test)")
import recurrent_models as rm
import rotated_models

pytestmark = pytest.mark.hf

TIERS = _core.cpu.tiers()
TYPES = [
    pytest.param(c, t, id=f"{c.name}-{t}", marks=[pytest.mark.release] if t != "f32" else [])
    for c in rm.CASES
    for t in ("f32", *c.quantized)
]
# One of each kind of state; the others go the same way.
KINDS = ("qwen35", "mamba", "mamba2", "lfm2")
IN_ENGINES = [
    pytest.param(c, id=c.name, marks=[] if c.name in KINDS else [pytest.mark.slow])
    for c in rm.CASES
]
N = len(rm.IDS)


@dataclass
class Made:
    """A case's logits by transformers, and its files by quant type."""

    truth: rm.Floats
    files: dict[str, Path]


class Models:
    """Cases by name, each made when it is first asked for."""

    def __init__(self, new_folder: Callable[[], Path]) -> None:
        self._new_folder = new_folder
        self._made: Models = {}

    def __getitem__(self, name: str) -> Made:
        if name not in self._made:
            case = next(c for c in rm.CASES if c.name == name)
            folder = self._new_folder()
            truth = rm.reference_logits(case.save(folder / "model"))
            files = {"f32": folder / "f32.gguf"}
            convert(folder / "model", files["f32"], dtype="f32")
            source = GgufModel.open(files["f32"])
            for quant_type in case.quantized:
                files[quant_type] = folder / f"{quant_type}.gguf"
                quantize(source, files[quant_type], quant_type.upper(), pure=True)
            self._made[name] = Made(truth, files)
        return self._made[name]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Models:
    return Models(lambda: tmp_path_factory.mktemp("case"))


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
        rows = self.model.program(GENERATE).run(batch, self.pools, self.slots)["logits"]
        return np.split(rows, np.cumsum([b - a for _, a, b in spans])[:-1])

    def logits(self, chunk: int = N) -> rm.Floats:
        """Of the whole text, cut into chunks."""
        cut = [(0, a, min(a + chunk, N)) for a in range(0, N, chunk)]
        return np.concatenate([self.run(span)[0] for span in cut])


@pytest.mark.parametrize("case", rm.CASES, ids=lambda c: c.name)
def test_float_weights_give_the_logits_of_transformers(case: rm.Case, made: Models) -> None:
    truth = made[case.name].truth
    assert truth.std(axis=0).mean() > 0.2  # logits that hardly change with the text prove nothing
    logits = Runs.of(made[case.name].files["f32"]).logits()
    assert np.abs(logits - truth).max() <= 1e-4 * np.abs(truth).max()


@pytest.mark.parametrize(("case", "quant_type"), TYPES)
def test_bytes_depend_on_the_text_alone(case: rm.Case, quant_type: str, made: Models) -> None:
    path = made[case.name].files[quant_type]
    truth = Runs.of(path).logits().tobytes()
    for tier in TIERS:
        runs = Runs.of(path, tier, 2)
        for size in (1, 7, 64) if tier == TIERS[-1] else (7,):
            assert runs.logits(size).tobytes() == truth, f"{tier}, chunks of {size}"
        first = runs.run((1, 0, 5), (0, 0, 64), (2, 0, 1), (3, 0, 70))
        then = runs.run((3, 70, N), (2, 1, 3), (0, 64, N), (1, 5, 6))
        assert np.concatenate([first[1], then[2]]).tobytes() == truth, f"{tier}, in a batch"
        assert np.concatenate([first[3], then[0]]).tobytes() == truth, f"{tier}, in a batch"


@pytest.mark.parametrize("case", rm.CASES, ids=lambda c: c.name)
def test_a_sequence_goes_on_from_a_copy_of_its_slot(case: rm.Case, made: Models) -> None:
    runs = Runs.of(made[case.name].files["f32"], TIERS[-1])
    truth = runs.logits()
    runs.run((0, 0, 64))
    runs.slots.copy(0, 1)
    runs.run((0, 64, 80))
    runs.slots.copy(1, 0)
    assert runs.run((0, 64, N))[0].tobytes() == truth[64:].tobytes()


@pytest.mark.parametrize("case", rm.CASES, ids=lambda c: c.name)
def test_the_parity_guard_finds_no_difference(case: rm.Case, made: Models) -> None:
    quant_type = next(iter(case.quantized), "f32")
    check_parity(Runs.of(made[case.name].files[quant_type], TIERS[-1]).model, "quick", "f32")


def test_state_that_is_not_carried_changes_the_logits(made: Models) -> None:
    """What the comparison of chunks rests on."""
    runs = Runs.of(made["qwen35"].files["f32"])
    truth: Any = runs.logits()
    runs.run((0, 0, 64))
    runs.slots.write(0, bytes(runs.slots.slot_bytes))
    lost = runs.run((0, 64, N))[0]
    assert np.abs(lost - truth[64:]).max() > 0.01 * np.abs(truth).max()


@pytest.mark.parametrize("case", IN_ENGINES)
def test_an_engine_gives_the_same_text_however_it_runs_it(case: rm.Case, made: Models) -> None:
    path = made[case.name].files["f32"]
    params = SamplingParams(temperature=1.0, seed=3, max_tokens=70, ignore_eos=True)

    def told(
        engine: Engine, *prompts: list[int], options: Options | None = None
    ) -> list[list[int]]:
        sequences = [engine.submit(p, params, options or Options()) for p in prompts]
        while not all(s.finished for s in sequences):
            engine.step()
        assert [s.error for s in sequences] == [None] * len(prompts)
        return [s.generated for s in sequences]

    plain = oxibonsai.load(path, threads=2, parity="off", parallel=1, prefix_cache=False)
    (alone,) = told(plain, rm.IDS)
    assert plain.logits(rm.IDS, 13).tobytes() == Runs.of(path).logits().tobytes()
    engine = oxibonsai.load(path, threads=2, parity="off", parallel=3)
    assert told(engine, rm.IDS[3:], rm.IDS, rm.IDS[:70])[1] == alone
    again = engine.submit(rm.IDS, params)
    while not again.finished:
        engine.step()
    assert again.generated == alone
    assert again.num_cached >= 64  # the first page, and the state at its end
    assert told(engine, rm.IDS, options=Options(speculate=NgramSpeculator)) == [alone]


_RECURRENT = {"attention.recurrent_layers": ([True, True, True, False], "arr[bool]")}


@pytest.mark.parametrize(
    ("architecture", "key", "value", "sentence"),
    [
        ("qwen35", "ssm.group_count", (0, "u32"), "group_count is 0"),
        ("qwen35", "ssm.group_count", (3, "u32"), "do not divide"),
        ("qwen35", "ssm.group_count", (2**31, "u32"), "group_count is 2147483648"),
        ("qwen35", "ssm.group_count", (-1, "i32"), "group_count is -1"),
        ("qwen35", "ssm.time_step_rank", (5, "u32"), "do not divide"),
        ("qwen35", "ssm.time_step_rank", (8, "u32"), "has shape"),
        ("qwen35", "ssm.state_size", (0, "u32"), "state_size is 0"),
        ("qwen35", "ssm.state_size", (2**30, "u32"), "has shape"),
        ("qwen35", "ssm.inner_size", (2**31 - 8, "u32"), "has shape"),
        ("qwen35", "ssm.conv_kernel", (1, "u32"), "has shape"),
        ("qwen35", "attention.recurrent_layers", ([True], "arr[bool]"), "does not list 4 layers"),
        ("qwen35", "attention.recurrent_layers", ([1, 1, 1, 0], "arr[i32]"), "does not list"),
        ("qwen35", "attention.recurrent_layers", ([True] * 4, "arr[bool]"), "lacks the tensor"),
        ("qwen35", "rope.dimension_sections", ([1, 1, 0, 0], "arr[i32]"), "no counts of 4 pairs"),
        ("qwen35", "rope.dimension_sections", ([-1, 9, 9, 9], "arr[i32]"), "no counts of 4 pairs"),
        ("qwen35", "nextn_predict_layers", (4, "u32"), "nextn_predict_layers is 4"),
        ("qwen35", "nextn_predict_layers", (2, "u32"), "nextn_predict_layers is 2"),
        ("qwen35", "ssm.dt_b_c_rms", (True, "bool"), "does not know"),
        ("mamba", "ssm.state_size", (-1, "i32"), "state_size is -1"),
        ("mamba", "ssm.time_step_rank", (2**20, "u32"), "has shape"),
        ("mamba", "ssm.dt_b_c_rms", (1, "u32"), "dt_b_c_rms is 1"),
        ("mamba", "attention.head_count", (8, "u32"), "head_count is 8"),
        ("mamba", "ssm.conv_kernel", (0, "u32"), "conv_kernel is 0"),
        ("mamba2", "ssm.group_count", (3, "u32"), "do not divide"),
        ("mamba2", "ssm.group_count", (0, "u32"), "group_count is 0"),
        ("mamba2", "ssm.time_step_rank", (2**31 - 1, "u32"), "do not divide"),
        ("mamba2", "ssm.inner_size", (8, "u32"), "has shape"),
        ("mamba2", "feed_forward_length", (64, "u32"), "feed_forward_length is 64"),
        ("lfm2", "block_count", (2**31 - 1, "u32"), "block_count is 2147483647, of"),
        ("lfm2", "attention.head_count_kv", ([0, 0, 0, 0], "arr[i32]"), "need the same one"),
        ("lfm2", "attention.head_count_kv", ([0, 2, 0, 4], "arr[i32]"), "need the same one"),
        ("lfm2", "attention.head_count_kv", ([0, 2], "arr[i32]"), "no counts of 4 layers"),
        ("lfm2", "attention.head_count_kv", ([0, -2, 0, 2], "arr[i32]"), "no counts of 4 layers"),
        ("lfm2", "attention.head_count_kv", ([2, 0, 0, 2], "arr[i32]"), "lacks the tensor"),
        ("lfm2", "shortconv.l_cache", (2**31 - 1, "u32"), "has shape"),
        ("granitehybrid", "expert_count", (1, "u32"), "expert_used_count"),
        ("granitehybrid", "ssm.group_count", (5, "u32"), "do not divide"),
        ("granitehybrid", "residual_scale", (0.0, "f32"), "not above zero"),
        ("granitehybrid", "rope.scaling.finetuned", (2, "u32"), "not true or false"),
        ("falcon-h1", "ssm.state_size", (31, "u32"), "has shape"),
        ("falcon-h1", "ssm.inner_size", (0, "u32"), "inner_size is 0"),
    ],
)
def test_a_file_that_contradicts_itself_is_refused(
    architecture: str,
    key: str,
    value: tuple[Any, str],
    sentence: str,
    made: Models,
    tmp_path: Path,
) -> None:
    keys = dict(_RECURRENT) if architecture == "qwen35" else {}
    changed = {f"{architecture}.{k}": v for k, v in {**keys, key: value}.items()}
    gguf_copy.copy(made[architecture].files["f32"], tmp_path / "bad.gguf", keys=changed)
    with pytest.raises((FormatError, UnsupportedError), match=sentence):
        load_model(Checkpoint(tmp_path / "bad.gguf"), _core.CpuDevice(1, "scalar"))


@pytest.mark.parametrize("grouped", [True, False])
def test_a_folded_file_gives_the_logits_of_its_plain_twin(
    grouped: bool, made: Models, tmp_path: Path
) -> None:
    """The output matrix of a rule may have been folded with its heads in another order."""
    case = rm.CASES[0]
    plain = made[case.name].files["f32"]
    block, random = 64, np.random.default_rng(2)
    checkpoint = Checkpoint(plain)
    names = [
        t.name for t in checkpoint.file.tensors if len(t.shape) == 2 and "conv1d" not in t.name
    ]
    shapes = {n: checkpoint.shape(n) for n in names}
    signs = {
        w: random.choice(np.array([-1, 1]), w) for w in sorted({s[1] for s in shapes.values()})
    }
    heads, keys = (case.options[f"linear_num_{kind}_heads"] for kind in ("value", "key"))
    rotated = {}
    for name, (rows, cols) in shapes.items():
        values = checkpoint.vector(name).reshape(rows, cols)
        if grouped and "ssm_out" in name:
            tiled = np.arange(cols).reshape(heads // keys, keys, cols // heads)
            values = values[:, tiled.swapaxes(0, 1).reshape(-1)]
        rotated[name] = (0, rotated_models.rotation(values, signs[cols], block).astype(np.float32))
    contract = {
        "version": (1, "u32"),
        "block_size": (block, "u32"),
        "transform": ("normalized-sylvester-walsh-hadamard", "str"),
        "axis": ("input-last-dimension", "str"),
        "sign_mode": ("explicit", "str"),
        "sign_widths": (list(signs), "arr[i32]"),
        "sign_values": ([int(v) for s in signs.values() for v in s], "arr[i32]"),
        "weight_names": ([n for n in names if n != "token_embd.weight"], "arr[str]"),
        "inverse_weight_names": (["token_embd.weight"], "arr[str]"),
        "gdn_v_grouped": (grouped, "bool"),
    }
    entries: dict[str, tuple[Any, str]] = {f"prism.hadamard.{k}": v for k, v in contract.items()}
    entries |= {f"qwen35.{k}": v for k, v in _RECURRENT.items()}
    gguf_copy.copy(plain, tmp_path / "folded.gguf", keys=entries, tensors=rotated)
    truth = Runs.of(plain).logits()
    logits = Runs.of(tmp_path / "folded.gguf").logits()
    assert np.abs(logits - truth).max() <= 1e-4 * np.abs(truth).max()
