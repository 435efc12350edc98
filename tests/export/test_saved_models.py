"""save_pretrained of many architectures: a family read backwards, and then forwards again."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gguf_copy
from oxibonsai import AutoModelForCausalLM, UnsupportedError
from oxibonsai.architectures.families import all_families
from oxibonsai.checkpoint import Checkpoint
from oxibonsai.convert.language_model import convert
from oxibonsai.models import read_config

pytest.importorskip("transformers", reason="needs transformers and torch (extra: test)")
import conversions
import dense_models as dm
import expert_models as em
import own_models
import recurrent_models as rm
import remote_folders
import safetensors.numpy
import torch
import transformers

pytestmark = pytest.mark.hf

# What transformers' configuration says and a GGUF file does not, or parameters that are no tensors.
REFUSED = {"olmo3-magnitude": "rope scaling"}
# Variants of others, and what differs from another architecture in a few fields alone.
ALIKE = (
    "phi3-partial", "olmo-tied", "granite-biases", "starcoder2-window", "gptneox-sequential",
    "stablelm-biases", "command-r-plus", "glm4-biases", "exaone4-windows", "ernie4_5-biases",
    "arcee", "jais2", "seed-oss", "hunyuan-dense", "gptj", "starcoder", "chatglm", "smollm3",
    "nanbeige-without-norms", "phi3small-strides", "phi3small-alike", "dilated", "gptneo",
    "mixture-of-depths-all",
    "mpt-clipped", "bloom-six-heads", "granitemoe", "glm4moe-plain", "deepseek2-groups", "mistral4",
    "olmoe", "phimoe", "qwen2moe", "hunyuan-moe", "minimax-m2", "llama4-dense-between", "lfm2moe",
    "mamba falcon", "mamba2 groups, tied", "jamba without experts", "falcon-h1 normed", "nemotron_h",
    "phi3-short", "phimoe-long", "falcon-one-norm", "gemma4-shared", "apertus",
    "nemotron_h_moe latent", "granitehybrid with experts", "qwen35 tied, other heads", "qwen35moe",
)  # fmt: skip
CASES: list[dm.Case | rm.Case] = [*dm.CASES, *em.CASES, *rm.CASES]
SAVING = [
    pytest.param(c, id=c.name, marks=[pytest.mark.slow] if c.name in ALIKE else [])
    for c in CASES
    if c.name not in REFUSED
]
_AUTOMATIC = transformers.AutoModelForCausalLM
# The automatic class does not know all.
_OTHER_CLASSES = {
    "Mistral4": transformers.Mistral4ForCausalLM,
    "Nanbeige": transformers.LlamaForCausalLM,
    **{kind: model for kind, (_, model) in own_models.CLASSES.items()},
}
DECODERS = [f for f in all_families() if f.kind and f.task == "ForCausalLM"]
OF_OTHER_TESTS = {"llama", "qwen2", "qwen3", "gemma3_text", "rwkv7"}


def converted(case: dm.Case | rm.Case, folder: Path) -> tuple[Path, Any]:
    """The file of a case, and transformers' model."""
    model = (
        case.save(folder / "model")
        if isinstance(case, rm.Case)
        else dm.save(case, folder / "model")
    )
    convert(folder / "model", folder / "model.gguf", dtype="f32")
    return folder / "model.gguf", model


def case_of(name: str) -> dm.Case | rm.Case:
    return next(c for c in CASES if c.name == name)


@pytest.mark.parametrize("case", SAVING)
def test_what_is_saved_is_the_model(case: dm.Case | rm.Case, tmp_path: Path) -> None:
    path, truth = converted(case, tmp_path)
    AutoModelForCausalLM.from_pretrained(path).save_pretrained(tmp_path / "saved")
    kind = _OTHER_CLASSES.get(case.kind, _AUTOMATIC)
    theirs = kind.from_pretrained(
        tmp_path / "saved", dtype=torch.float32, attn_implementation="eager"
    )
    if case.kind == "Nanbeige":
        dm.loop(theirs, json.loads((tmp_path / "saved" / "config.json").read_text()))
    wanted = dm.logits(truth, dm.IDS)
    # Of decays the file has exp, rounded; transformers computes it anew from the logarithm.
    distance = 1e-5 if isinstance(case, rm.Case) else 1e-6
    assert (
        np.abs(dm.logits(theirs.eval(), dm.IDS) - wanted).max() <= distance * np.abs(wanted).max()
    )
    convert(tmp_path / "saved", tmp_path / "again.gguf", dtype="f32")
    assert conversions.summary(tmp_path / "again.gguf") == conversions.summary(path)


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_configuration_cannot_say_is_refused(name: str, tmp_path: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(converted(case_of(name), tmp_path)[0])
    with pytest.raises(UnsupportedError, match=REFUSED[name]):
        model.save_pretrained(tmp_path / "saved")
    assert not (tmp_path / "saved").exists()


@pytest.mark.parametrize(
    ("name", "key", "value", "lost"),
    [
        ("gemma", "gemma.attention.scale", 0.2, "attention_scale"),
        ("granite", "granite.rope.freq_base", 2e4, ""),
        ("olmo", "olmo.attention.layer_norm_epsilon", 2e-5, "layer_norm_eps"),
        ("stablelm", "stablelm.attention.layer_norm_epsilon", 2e-5, ""),
        ("cohere2", "cohere2.rope.dimension_count", 8, ""),
    ],
)
def test_a_file_with_other_constants_is_saved_with_them_or_not_at_all(
    name: str, key: str, value: float, lost: str, tmp_path: Path
) -> None:
    path, _ = converted(case_of(name), tmp_path)
    kind = "u32" if isinstance(value, int) else "f32"
    gguf_copy.copy(path, tmp_path / "other.gguf", keys={key: (value, kind)})
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "other.gguf")
    if lost:
        with pytest.raises(UnsupportedError, match=lost):
            model.save_pretrained(tmp_path / "saved")
        return
    model.save_pretrained(tmp_path / "saved")
    convert(tmp_path / "saved", tmp_path / "again.gguf", dtype="f32")
    configs = [read_config(Checkpoint(tmp_path / f"{n}.gguf")) for n in ("other", "again")]
    assert dataclasses.replace(configs[1], name=configs[0].name) == configs[0]


def remote(name: str, folder: Path) -> Path:
    """The file of a model whose code is not transformers'."""
    case = next(f for f in remote_folders.FOLDERS if f.name == name)
    remote_folders.save(case, folder / "model")
    convert(folder / "model", folder / "model.gguf", dtype="f32")
    return folder / "model.gguf"


def test_minicpm_is_saved_as_granite_which_has_its_factors(tmp_path: Path) -> None:
    ours = AutoModelForCausalLM.from_pretrained(remote("minicpm", tmp_path))
    ours.save_pretrained(tmp_path / "saved")
    theirs = transformers.GraniteForCausalLM.from_pretrained(
        tmp_path / "saved", dtype=torch.float32, attn_implementation="eager"
    )
    wanted = ours.logits(dm.IDS)
    found = dm.logits(theirs.eval(), dm.IDS)
    assert np.abs(found - wanted).max() <= 1e-5 * np.abs(wanted).max()
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "saved")
    assert again.logits(dm.IDS).tobytes() == wanted.tobytes()


def test_rwkv_gets_the_parameters_back_that_its_folder_had(tmp_path: Path) -> None:
    path = remote("rwkv7", tmp_path)
    AutoModelForCausalLM.from_pretrained(path).save_pretrained(tmp_path / "saved")
    wanted, found = (
        safetensors.numpy.load_file(tmp_path / name / "model.safetensors")
        for name in ("model", "saved")
    )
    assert found.keys() == wanted.keys()
    for name, values in wanted.items():
        assert found[name].shape == values.shape, name
        assert found[name].tobytes() == values.tobytes(), name
    convert(tmp_path / "saved", tmp_path / "again.gguf", dtype="f32")
    assert conversions.summary(tmp_path / "again.gguf") == conversions.summary(path)


def test_matrices_that_bitnet_would_round_are_refused(tmp_path: Path) -> None:
    path, _ = converted(case_of("bitnet"), tmp_path)
    name, matrix = "blk.1.attn_q.weight", np.eye(dm.HIDDEN, dtype=np.float32)
    matrix[1, 1] = 0.5
    gguf_copy.copy(path, tmp_path / "other.gguf", tensors={name: (0, matrix)})
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "other.gguf")
    with pytest.raises(UnsupportedError, match=r"blk.1.attn_q.weight has more than three values"):
        model.save_pretrained(tmp_path / "saved")
    assert not (tmp_path / "saved").exists()


def test_factors_that_a_file_has_in_its_weights_are_one(tmp_path: Path) -> None:
    path, _ = converted(case_of("falcon-h1"), tmp_path)
    AutoModelForCausalLM.from_pretrained(path).save_pretrained(tmp_path / "saved")
    config = json.loads((tmp_path / "saved" / "config.json").read_text())
    factors = {k: v for k, v in config.items() if "multiplier" in k}
    assert len(factors) == 9
    assert all(set(v if isinstance(v, list) else [v]) == {1.0} for v in factors.values())


# What transformers' models of these families cannot have.
OTHERS: dict[str, tuple[str, dict[str, tuple[Any, str]], str]] = {
    "another magnitude of LongRoPE": (
        "phi3-long",
        {"phi3.rope.scaling.attn_factor": (1.5, "f32")},
        "rope",
    ),
    "another window's rotary embedding": (
        "gemma4-shared",
        {"gemma4.rope.dimension_count_swa": (4, "u32")},
        "rope_local",
    ),
    "a scale of the experts' weights": (
        "llama4",
        {"llama4.expert_weights_scale": (2.0, "f32")},
        "experts",
    ),
    "other scores of routers": ("lfm2moe", {"lfm2moe.expert_gating_func": (1, "u32")}, "experts"),
    "a window": ("lfm2", {"lfm2.attention.sliding_window": (8, "u32")}, "sliding_window"),
    "another scale of scores": (
        "qwen35",
        {"qwen35.attention.scale": (0.5, "f32")},
        "attention_scale",
    ),
    "another scale of latent scores": (
        "deepseek2-v3",
        {"deepseek2.attention.scale": (0.5, "f32")},
        "attention_scale",
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_configuration_of_another_model_is_not_written(name: str, tmp_path: Path) -> None:
    case, keys, lost = OTHERS[name]
    path, _ = converted(case_of(case), tmp_path)
    gguf_copy.copy(path, tmp_path / "other.gguf", keys=keys)
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "other.gguf")
    with pytest.raises(UnsupportedError, match=rf"has no place for its {lost}"):
        model.save_pretrained(tmp_path / "saved")
    assert not (tmp_path / "saved").exists()


def test_a_decay_without_a_logarithm_is_refused(tmp_path: Path) -> None:
    path, _ = converted(case_of("mamba"), tmp_path)
    name, decay = "blk.0.ssm_a", np.full((256, 8), -1.0, np.float32)
    decay[3, 1] = 0.0
    gguf_copy.copy(path, tmp_path / "other.gguf", tensors={name: (0, decay)})
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "other.gguf")
    with pytest.raises(UnsupportedError, match=r"blk.0.ssm_a has values that are not below zero"):
        model.save_pretrained(tmp_path / "new" / "saved")
    assert not (tmp_path / "new").exists()


def test_one_expert_of_a_quantized_stack_is_its_own_rows(tmp_path: Path) -> None:
    case = case_of("qwen3moe")
    assert isinstance(case, dm.Case)
    truth = dm.save(case, tmp_path / "model")
    convert(tmp_path / "model", tmp_path / "model.gguf", dtype="q8_0")
    AutoModelForCausalLM.from_pretrained(tmp_path / "model.gguf").save_pretrained(
        tmp_path / "saved"
    )
    found = safetensors.numpy.load_file(tmp_path / "saved" / "model.safetensors")
    stack = truth.state_dict()["model.layers.1.mlp.experts.down_proj"].numpy()
    for expert in range(5):
        own = found[f"model.layers.1.mlp.experts.{expert}.down_proj.weight"]
        assert np.abs(own - stack[expert]).max() <= np.abs(stack).max() / 127
        assert np.abs(own - stack[expert - 1]).max() > 0.1


def test_a_bias_that_a_configuration_asks_of_all_layers_must_be_in_all(tmp_path: Path) -> None:
    path, _ = converted(case_of("ernie4_5"), tmp_path)
    bias = {"blk.0.ffn_up.bias": np.ones(dm.FF, np.float32)}
    gguf_copy.copy(path, tmp_path / "other.gguf", more=bias)
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "other.gguf")
    with pytest.raises(UnsupportedError, match=r"lack of blk.0.attn_q.bias"):
        model.save_pretrained(tmp_path / "saved")


def test_all_that_can_be_saved_is_tested_here_or_beside_convert() -> None:
    found = {c.kind.removesuffix("Text") for c in CASES if c.name not in REFUSED}
    own = [f for f in DECODERS if f.saved_as is None]
    assert found == {f.kind for f in own if f.model_types[0] not in OF_OTHER_TESTS}
