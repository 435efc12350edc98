"""Pruned models beside torch: zeros, what chooses them, and models without some of their layers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import float_model
import gguf_copy
import oxibonsai
import tiny_model
from oxibonsai import _core
from oxibonsai.checkpoint import Checkpoint
from oxibonsai.checkpoint.gguf import GgufModel
from oxibonsai.errors import FormatError, RequestError, UnsupportedError
from oxibonsai.imatrix import Entry, Imatrix, collect
from oxibonsai.loading import open_model
from oxibonsai.models import read_config
from oxibonsai.prune import (
    DroppedLayers,
    Sparsity,
    drop_layers,
    measure_influences,
    plan_pruned,
    prune_weights,
)
from oxibonsai.quantize import find_mix, quantize, write

pytest.importorskip("transformers", reason="needs torch and transformers (extra: test)")
import dense_models as dm
import drafting_models
import expert_models
import torch

pytestmark = pytest.mark.hf

HALF = Sparsity()
Floats = npt.NDArray[np.float32]
_QK_NORM = {"head_dim": 16, "tie_word_embeddings": False}
_OWN = (dm.Case("qwen3", "Qwen3", _QK_NORM), dm.Case("gemma3", "Gemma3Text", {"head_dim": 16}))
CASES = {c.name: c for c in (*dm.CASES, *expert_models.CASES, *_OWN)}


def saved(name: str, folder: Path, **options: Any) -> Any:
    """Write a case as a folder; return transformers' model."""
    case = CASES[name]
    return dm.save(dm.Case(case.name, case.kind, {**case.options, **options}), folder)


def values_of(file: GgufModel, name: str) -> Floats:
    tensor = file.tensor(name)
    decoded = _core.decode(tensor.quant_type, file.tensor_bytes(name))
    return np.array(decoded).reshape(tensor.shape)


@pytest.fixture(scope="module")
def floats(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model in float32."""
    path = tmp_path_factory.mktemp("floats") / "floats.gguf"
    float_model.write(path)
    return path


@pytest.mark.parametrize(
    "type_name", [None, "F16", "Q8_0", "Q6_K", "Q5_0", "Q4_0", "TQ2_0_g128", "MXFP4"]
)
def test_zeros_are_zeros_in_the_file_and_other_tensors_as_they_were(
    type_name: str | None, floats: Path, tmp_path: Path
) -> None:
    source, out = Checkpoint(floats), tmp_path / "m.gguf"
    pruned = prune_weights(source, Sparsity(structure="2:4"), ignored=["attn_[qk]"])
    write(plan_pruned(pruned, source.file, type_name), out)
    before, after = GgufModel.open(floats), GgufModel.open(out)
    assert [t.name for t in after.tensors] == [t.name for t in before.tensors]
    named = None if type_name is None else find_mix(type_name).file_type
    assert after.get("general.file_type") == named
    for tensor in before.tensors:
        old, new = values_of(before, tensor.name), values_of(after, tensor.name)
        if tensor.name not in pruned.pruned:
            assert type_name is not None or np.array_equal(old, new)
            continue
        zeros = new.reshape(-1, 4) == 0
        assert (zeros.sum(axis=1) >= 2).all()
        lowest = np.argsort(np.abs(old.reshape(-1, 4)), axis=1)[:, :2]
        assert np.take_along_axis(zeros, lowest, axis=1).all()
        assert pruned.zeros[tensor.name] == old.size // 2
    assert {n.split(".")[2] for n in pruned.pruned} == {
        "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"
    }  # fmt: skip


def test_types_are_kept(floats: Path, tmp_path: Path) -> None:
    quantize(GgufModel.open(floats), tmp_path / "q.gguf", "Q4_0")
    source = Checkpoint(tmp_path / "q.gguf")
    pruned = prune_weights(source, HALF)
    write(plan_pruned(pruned, source.file), tmp_path / "m.gguf")
    after = GgufModel.open(tmp_path / "m.gguf")
    assert {t.name: t.quant_type for t in after.tensors} == {
        t.name: t.quant_type for t in source.file.tensors
    }
    assert after.get("general.file_type") == source.file.get("general.file_type") == 2
    values = values_of(after, "blk.1.ffn_up.weight")
    assert (values == 0).mean() >= 0.5
    kept = values != 0
    assert np.array_equal(
        values[kept], values_of(GgufModel.open(source.path), "blk.1.ffn_up.weight")[kept]
    )


@pytest.mark.parametrize("type_name", ["Q4_1", "Q4_K", "IQ4_NL", "Q1_0"])
def test_types_without_a_zero_are_refused(type_name: str, floats: Path, tmp_path: Path) -> None:
    source = Checkpoint(floats)
    # What is left has rows of 256 weights, which all types' groups divide.
    pruned = prune_weights(source, HALF, ignored=["ffn_gate|ffn_up|attn_[qkv]"])
    with pytest.raises(RequestError, match=rf"{type_name} has no zero for .*--type Q8_0"):
        write(plan_pruned(pruned, source.file, type_name), tmp_path / "m.gguf")
    assert not list(tmp_path.iterdir())


def test_wrong_patterns_and_structures_are_refused(floats: Path, tmp_path: Path) -> None:
    source = Checkpoint(floats)
    for pattern, said in (("(", "no regular expression"), ("nope", "matches no"), (".", "is left")):
        with pytest.raises(RequestError, match=said):
            prune_weights(source, HALF, ignored=[pattern])
    saved("qwen3", tmp_path / "odd", intermediate_size=90)
    with pytest.raises(RequestError, match="rows of 90 weights, which 2:4 does not divide"):
        prune_weights(open_model(tmp_path / "odd"), Sparsity(structure="2:4"))


def inputs_of(model: Any, ids: list[int]) -> dict[str, Any]:
    """What each linear layer of transformers' model reads: [tokens, cols]."""
    found: dict[str, Any] = {}
    hooks = [
        m.register_forward_hook(lambda m, x, _, n=name: found.update({n: x[0][0].double()}))
        for name, m in model.named_modules()
        if isinstance(m, torch.nn.Linear)
    ]
    with torch.no_grad():
        model(torch.tensor([ids]))
    for hook in hooks:
        hook.remove()
    return found


NAMES = {"q_proj": "attn_q", "o_proj": "attn_output", "up_proj": "ffn_up", "down_proj": "ffn_down"}


def test_wanda_prunes_what_a_forward_pass_in_torch_says(tmp_path: Path) -> None:
    model = saved("qwen3", tmp_path / "m")
    source = open_model(tmp_path / "m")
    engine = oxibonsai.load(tmp_path / "m", kv_type="f32")
    *_, imatrix = collect(engine, [dm.IDS])
    pruned = prune_weights(source, HALF, imatrix=imatrix)
    write(plan_pruned(pruned, source.file), tmp_path / "w.gguf")
    after = GgufModel.open(tmp_path / "w.gguf")
    inputs = inputs_of(model, dm.IDS)
    by_size = 0
    for name, parameter in model.named_parameters():
        part = name.split(".")[-2]
        if part not in NAMES or ".layers." not in name:
            continue
        weight, read = parameter.detach().double(), inputs[name.removesuffix(".weight")]
        scores = weight.abs() * read.pow(2).mean(dim=0).sqrt()
        truth = torch.zeros_like(scores, dtype=torch.bool)
        truth.scatter_(1, scores.argsort(dim=1)[:, : scores.shape[1] // 2], True)
        layer = name.split(".layers.")[1].split(".")[0]
        zeros = values_of(after, f"blk.{layer}.{NAMES[part]}.weight") == 0
        assert np.array_equal(zeros, truth.numpy()), name
        smallest = torch.zeros_like(truth)
        smallest.scatter_(1, weight.abs().argsort(dim=1)[:, : scores.shape[1] // 2], True)
        by_size += int((smallest != truth).sum())
    assert by_size > 100  # the inputs do matter


def test_matrices_of_experts_are_pruned_by_their_own_inputs(tmp_path: Path) -> None:
    name = next(c.name for c in expert_models.CASES if c.kind == "Qwen3Moe")
    saved(name, tmp_path / "m")
    source = open_model(tmp_path / "m")
    unmeasured = prune_weights(source, HALF, imatrix=Imatrix({}))
    with pytest.raises(RequestError, match=r"inputs of .*_exps.weight were not measured.*--imat"):
        unmeasured.tensor_bytes("blk.0.ffn_up_exps.weight")
    experts, rows, cols = source.shape("blk.0.ffn_up_exps.weight")
    random = np.random.default_rng(2)
    squares = random.uniform(0.01, 9, (experts, cols)).astype(np.float32)
    entry = Entry(squares, np.ones(experts, np.float32))
    chosen = Imatrix({"blk.0.ffn_up_exps.weight": entry})
    pruned = prune_weights(source, HALF, imatrix=chosen)
    found = pruned.tensor_bytes("blk.0.ffn_up_exps.weight").view(np.float32)
    values = values_of_experts(source, "blk.0.ffn_up_exps.weight")
    for expert in range(experts):
        scores = np.abs(values[expert]) * np.sqrt(squares[expert])
        lowest = np.argsort(scores, axis=1)[:, : cols // 2]
        zeros = found.reshape(experts, rows, cols)[expert] == 0
        assert np.take_along_axis(zeros, lowest, axis=1).all()
        assert zeros.sum() == rows * (cols // 2)
    other = Imatrix({"blk.0.ffn_up_exps.weight": Entry(squares[:, 1:], entry.counts)})
    with pytest.raises(FormatError, match="of another model"):
        prune_weights(source, HALF, imatrix=other).tensor_bytes("blk.0.ffn_up_exps.weight")


def values_of_experts(source: Checkpoint, name: str) -> Floats:
    tensor = source.file.tensor(name)
    return np.array(_core.decode(tensor.quant_type, source.file.tensor_bytes(name))).reshape(
        tensor.shape
    )


def test_influences_are_those_of_hidden_states_in_torch(tmp_path: Path) -> None:
    model = saved("qwen3", tmp_path / "m", num_hidden_layers=3)
    engine = oxibonsai.load(tmp_path / "m", kv_type="f32")
    windows = [dm.IDS[:40], dm.IDS[30:]]
    *_, found = measure_influences(engine, windows)
    changes: list[list[Any]] = [[] for _ in model.model.layers]

    def note(i: int, given: Any, out: Any) -> None:
        after = out[0] if isinstance(out, tuple) else out
        changes[i].append(torch.nn.functional.cosine_similarity(given[0][0], after[0], dim=-1))

    for i, layer in enumerate(model.model.layers):
        layer.register_forward_hook(lambda _, given, out, i=i: note(i, given, out))
    with torch.no_grad():
        for window in windows:
            model(torch.tensor([window]))
    truth = [1 - float(torch.cat(c).mean()) for c in changes]
    assert found.tokens == 80
    assert found.windows == 2
    assert min(truth) > 0.01
    assert np.ptp(truth) > 0.01
    assert np.abs(np.array(found.values) - truth).max() < 1e-5
    order = np.argsort(truth)
    assert found.lowest(2) == sorted(order[:2].tolist())


def test_a_state_of_zeros_is_like_no_other_as_in_torch(tmp_path: Path) -> None:
    embeddings = np.random.default_rng(2).normal(0, 1, (tiny_model.VOCABULARY, tiny_model.HIDDEN))
    embeddings[7] = 0  # a token that no layer can change: they have no biases
    shape, data = embeddings.shape, embeddings.astype(np.float32).tobytes()
    float_model.write(tmp_path / "m.gguf", tensors={"token_embd.weight": (shape, 0, data)})
    engine = oxibonsai.load(tmp_path / "m.gguf", kv_type="f32")
    (found,) = measure_influences(engine, [[7]])
    zeros = torch.zeros(1, tiny_model.HIDDEN)
    truth = 1 - float(torch.nn.functional.cosine_similarity(zeros, zeros))
    assert found.values == (truth,) * tiny_model.LAYERS == (1.0, 1.0)
    (among_others,) = measure_influences(engine, [[7, 8, 9]])
    assert np.isfinite(among_others.values).all()


def test_states_that_are_no_numbers_are_refused(tmp_path: Path) -> None:
    shape = (tiny_model.FF, tiny_model.HIDDEN)
    huge = {"blk.0.ffn_up.weight": (shape, 0, np.full(shape, 3e38, np.float32).tobytes())}
    float_model.write(tmp_path / "m.gguf", tensors=huge)
    engine = oxibonsai.load(tmp_path / "m.gguf", kv_type="f32", parity="off")
    with pytest.raises(FormatError, match=r"hidden states of .* are no finite numbers"):
        list(measure_influences(engine, [[1, 2, 3]]))


def cut(model: Any, dropped: Sequence[int]) -> Any:
    """Take layers out of transformers' model."""
    layers = [m for i, m in enumerate(model.model.layers) if i not in dropped]
    model.model.layers = torch.nn.ModuleList(layers)
    model.config.num_hidden_layers = len(layers)
    model.config.use_cache = False
    if (kinds := getattr(model.config, "layer_types", None)) is not None:
        model.config.layer_types = [k for i, k in enumerate(kinds) if i not in dropped]
    return model


def dropped_logits(source: Checkpoint, dropped: Sequence[int], out: Path) -> Floats:
    write(plan_pruned(drop_layers(source, dropped), source.file), out)
    found: Floats = oxibonsai.load(out, kv_type="f32").logits(dm.IDS)
    return found


# A plain model; one whose keys list the layers' kinds; one whose first layers have no experts.
DROPS = {"qwen3": [1, 2], "olmo3": [0], "deepseek2-v3": [0]}


@pytest.mark.parametrize("name", DROPS)
def test_what_is_left_computes_what_the_layers_do_in_transformers(
    name: str, tmp_path: Path
) -> None:
    options = {"num_hidden_layers": 4} if name == "qwen3" else {}
    model = saved(name, tmp_path / "m", **options)
    layers = model.config.num_hidden_layers
    whole = dm.logits(model, dm.IDS)
    found = dropped_logits(open_model(tmp_path / "m"), DROPS[name], tmp_path / "o.gguf")
    truth = dm.logits(cut(model, DROPS[name]), dm.IDS)
    assert np.abs(found - truth).max() <= 1e-4 * np.abs(truth).max()
    assert np.abs(found - whole).max() > 1e-2 * np.abs(truth).max()
    config = read_config(Checkpoint(tmp_path / "o.gguf"))
    assert config.num_hidden_layers == layers - len(DROPS[name])


def test_keys_say_what_is_left(floats: Path, tmp_path: Path) -> None:
    gone = {"general.parameter_count": (7, "u64"), "general.size_label": ("7B", "str")}
    lists = {"xielu.alpha_n": ([1.5, 2.5], "arr[f32]"), "tokenizer.of_two": ([1, 2], "arr[i32]")}
    gguf_copy.copy(floats, tmp_path / "m.gguf", keys={**gone, **lists})
    source = Checkpoint(tmp_path / "m.gguf")
    found = DroppedLayers(source.file, "qwen3", 2, [0])
    assert set(source.file.keys()) - set(found.keys()) == set(gone)
    assert found.get("general.size_label") is None
    assert found.get("xielu.alpha_n").tolist() == [2.5]
    assert found.get("tokenizer.of_two").tolist() == [1, 2]
    assert found.get("qwen3.block_count") == 1


def test_layers_that_run_repeatedly_are_not_dropped(tmp_path: Path) -> None:
    case = CASES["nanbeige"]
    dm.save(case, tmp_path / "m")
    with pytest.raises(UnsupportedError, match="runs its 2 layers more than once"):
        drop_layers(open_model(tmp_path / "m"), [5])


def test_layers_of_a_period_are_dropped_where_the_kinds_of_the_others_stay(tmp_path: Path) -> None:
    # Layers 0 and 1 are local and 2 is global, and so on.
    kinds = ["sliding_attention", "sliding_attention", "full_attention"] * 2
    saved("gemma3", tmp_path / "m", num_hidden_layers=6, layer_types=kinds)
    source = open_model(tmp_path / "m")
    with pytest.raises(
        UnsupportedError, match=r"layer 2 of .* would become layer 1.*gemma3 computes"
    ):
        drop_layers(source, [0])
    with pytest.raises(UnsupportedError, match=r"layer 5 of .* would become layer 4"):
        drop_layers(source, [4])
    model = saved("gemma3", tmp_path / "n", num_hidden_layers=6, layer_types=kinds)
    found = dropped_logits(source, [0, 1, 2], tmp_path / "o.gguf")
    truth = dm.logits(cut(model, [0, 1, 2]), dm.IDS)
    assert np.abs(found - truth).max() <= 1e-4 * np.abs(truth).max()


def test_a_layer_that_drafts_stays_behind_the_others(tmp_path: Path) -> None:
    made = drafting_models.make("glm4moe", tmp_path)
    source = Checkpoint(made.path)
    layers = read_config(source).num_hidden_layers
    with pytest.raises(RequestError, match=f"no layer {layers}: its layers are 0 to {layers - 1}"):
        drop_layers(source, [layers])
    write(plan_pruned(drop_layers(source, [layers - 1]), source.file), tmp_path / "o.gguf")
    after = Checkpoint(tmp_path / "o.gguf")
    config = read_config(after)
    assert (config.num_hidden_layers, config.num_nextn_predict_layers) == (layers - 1, 1)
    for part in ("nextn.eh_proj", "attn_q"):
        old, new = (f"blk.{i}.{part}.weight" for i in (layers, layers - 1))
        assert np.array_equal(source.file.tensor_bytes(old), after.file.tensor_bytes(new))


def test_layers_that_are_none_are_refused(floats: Path, tmp_path: Path) -> None:
    source = Checkpoint(floats)
    for dropped, said in (([2], "no layer 2"), ([], "0 of 2 layers"), ([0, 1], "2 of 2 layers")):
        with pytest.raises(RequestError, match=said):
            drop_layers(source, dropped)
