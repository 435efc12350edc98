"""Folders that PEFT saved: run as they are, or converted to llama.cpp's files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import oxibonsai
from oxibonsai import FormatError, UnsupportedError, _core
from oxibonsai.checkpoint import Checkpoint
from oxibonsai.convert.language_model import convert
from oxibonsai.convert.lora import convert_lora
from oxibonsai.errors import OxiBonsaiError
from oxibonsai.models import read_config

pytest.importorskip("peft", reason="needs peft, transformers and torch (extra: test)")
import hf_folders as hf

import bert_folder
from forked import run_oxibonsai

pytestmark = [pytest.mark.hf, pytest.mark.filterwarnings("ignore")]

IDS = [int(i) for i in np.random.default_rng(1).integers(3, 256, 40)]
# Against float64: what float32 leaves of a pass; the largest seen is 3e-6 of the largest logit.
BOUND = 1e-5
ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
PLAIN: dict[str, Any] = {"r": 4, "lora_alpha": 10, "target_modules": ALL}
PATTERNS = {
    "rank_pattern": {"model.layers.1.self_attn.q_proj": 7, "^model.layers.0.mlp.up_proj": 2},
    "alpha_pattern": {"down_proj": 3},
}
CASES = {c.name: c for c in hf.CASES}


def draw(adapted: Any) -> None:
    """Gives the adapter's matrices random weights; PEFT's own B is zero."""
    import torch

    torch.manual_seed(1)
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_" in name:
                parameter.copy_(0.1 * torch.randn(parameter.shape))


def save(case: str, folder: Path, **options: Any) -> npt.NDArray[np.float64]:
    """Writes folders ``base`` and ``lora``; the logits of PEFT's own model in float64."""
    import peft
    import torch

    model = hf.save(CASES[case], folder / "base")
    config = peft.LoraConfig(**{**PLAIN, "task_type": "CAUSAL_LM", **options})
    adapted = peft.get_peft_model(model, config)
    draw(adapted)
    adapted.save_pretrained(folder / "lora")
    with torch.no_grad():
        logits: npt.NDArray[np.float64] = adapted.double()(torch.tensor([IDS])).logits[0].numpy()
    return logits


def assert_close(found: npt.NDArray[Any], truth: npt.NDArray[Any]) -> None:
    assert np.abs(found - truth).max() <= BOUND * np.abs(truth).max()


@pytest.mark.parametrize("case", ["llama", "llama-tied-biased", "qwen2", "qwen3", "gemma3"])
def test_an_adapted_model_gives_the_logits_of_peft(case: str, tmp_path: Path) -> None:
    truth = save(case, tmp_path)
    engine = oxibonsai.load(tmp_path / "base", lora=tmp_path / "lora", kv_type="f32")
    assert_close(engine.logits(IDS), truth)
    base = oxibonsai.load(tmp_path / "base", kv_type="f32").logits(IDS)
    assert np.abs(base - truth).max() > 0.3 * np.abs(truth).max()


@pytest.mark.parametrize(
    "options",
    [
        {"use_rslora": True},
        PATTERNS,
        {**PATTERNS, "use_rslora": True},
        {"target_modules": ["q_proj", "lm_head"]},
        {"target_modules": r".*\.(k|o)_proj", "layers_to_transform": None},
        {"target_modules": ["v_proj"], "layers_to_transform": [1], "init_lora_weights": "gaussian"},
    ],
    ids=["rslora", "patterns", "patterns-rslora", "head", "expression", "one-layer"],
)
def test_peft_scales_and_chooses_as_its_configuration_says(
    options: dict[str, Any], tmp_path: Path
) -> None:
    truth = save("llama", tmp_path, **options)
    engine = oxibonsai.load(tmp_path / "base", lora=tmp_path / "lora", kv_type="f32")
    assert_close(engine.logits(IDS), truth)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_matrices_stay_as_they_are_stored(dtype: str, tmp_path: Path) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    save("qwen3", tmp_path)
    path = tmp_path / "lora" / "adapter_model.safetensors"
    halves = {k: v.to(getattr(torch, dtype)) for k, v in load_file(path).items()}
    config = read_config(Checkpoint(converted(tmp_path)))
    widened = []
    for tensors in (halves, {k: v.float() for k, v in halves.items()}):
        save_file(tensors, path)
        convert_lora(tmp_path / "lora", tmp_path / "a.gguf", config)
        file = _core.GgufFile(str(tmp_path / "a.gguf"))
        widened.append(
            {t.name: _core.decode(t.quant_type, file.tensor_bytes(t.name)) for t in file.tensors}
        )
        types = {t.quant_type for t in file.tensors}
        assert types == {{"bfloat16": "BF16", "float16": "F16"}[dtype]} or tensors is not halves
    assert all((widened[0][name] == widened[1][name]).all() for name in widened[1])


def converted(folder: Path) -> Path:
    if not (folder / "base.gguf").exists():
        convert(folder / "base", folder / "base.gguf")
    return folder / "base.gguf"


def test_an_adapter_trained_without_a_head_is_the_same(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    save("qwen3", tmp_path)
    found = [oxibonsai.load(tmp_path / "base", lora=tmp_path / "lora").logits(IDS).tobytes()]
    path = tmp_path / "lora" / "adapter_model.safetensors"
    short = {k.replace("model.model.layers", "model.layers"): v for k, v in load_file(path).items()}
    save_file(short, path)
    found.append(oxibonsai.load(tmp_path / "base", lora=tmp_path / "lora").logits(IDS).tobytes())
    assert found[0] == found[1]


def test_an_adapted_encoder_gives_the_vectors_of_peft(tmp_path: Path) -> None:
    import peft
    import torch
    from transformers import BertConfig, BertModel

    bert_folder.write(tmp_path / "base")
    model = BertModel.from_pretrained(tmp_path / "base", config=BertConfig(**bert_folder.CONFIG))
    targets = ["query", "key", "value", "dense"]
    config = peft.LoraConfig(
        r=4, lora_alpha=8, target_modules=targets, exclude_modules=["pooler.dense"]
    )
    adapted = peft.get_peft_model(model, config).eval()
    draw(adapted)
    with torch.no_grad():
        adapted.save_pretrained(tmp_path / "lora")
        truth = adapted.double()(torch.tensor([IDS])).last_hidden_state[0].numpy().mean(axis=0)
    vectors = [
        oxibonsai.load(tmp_path / "base", lora=lora).embedder.embed([IDS], normalize=False)[0]
        for lora in (None, tmp_path / "lora")
    ]
    assert_close(vectors[1], truth)
    assert np.abs(vectors[0] - truth).max() > 0.3 * np.abs(truth).max()


def test_the_command_writes_a_file_that_gives_the_same_bytes(tmp_path: Path) -> None:
    save("llama", tmp_path, **PATTERNS)
    base, lora, out = converted(tmp_path), tmp_path / "lora", tmp_path / "a.gguf"
    done = run_oxibonsai("convert", lora, out)
    assert done.returncode == 2
    assert "--base" in done.stderr
    done = run_oxibonsai("convert", lora, out, "--base", base, "--type", "f16")
    assert done.returncode == 2
    done = run_oxibonsai("convert", tmp_path / "base", out, "--base", base)
    assert done.returncode == 3
    assert "adapter_config.json" in done.stderr
    assert not out.exists()
    done = run_oxibonsai("convert", lora, out, "--base", base)
    assert done.returncode == 0, done.stderr
    found = [oxibonsai.load(base, lora=name).logits(IDS).tobytes() for name in (lora, out)]
    assert found[0] == found[1]


def saved(folder: Path) -> Path:
    """A plain adapter of a Llama model, beside the model's GGUF file."""
    save("llama", folder, target_modules=["q_proj", "down_proj"])
    return converted(folder)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("peft")
    saved(folder)
    return folder


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"use_dora": True}, UnsupportedError, "use_dora is True"),
        ({"modules_to_save": ["lm_head"]}, UnsupportedError, "modules_to_save is"),
        ({"bias": "all"}, UnsupportedError, "bias is 'all'"),
        ({"lora_bias": True}, UnsupportedError, "lora_bias is True"),
        ({"peft_type": "IA3"}, UnsupportedError, "peft_type is 'IA3'"),
        ({"peft_type": None}, UnsupportedError, "peft_type is None"),
        ({"init_lora_weights": "pissa"}, UnsupportedError, "init_lora_weights is 'pissa'"),
        ({"init_lora_weights": "olora"}, UnsupportedError, "init_lora_weights is 'olora'"),
        ({"alora_invocation_tokens": [1]}, UnsupportedError, "alora_invocation_tokens"),
        ({"layer_replication": [[0, 1]]}, UnsupportedError, "layer_replication"),
        ({"trainable_token_indices": [3]}, UnsupportedError, "trainable_token_indices"),
        ({"a_field_of_next_year": 0.5}, UnsupportedError, "a_field_of_next_year is 0.5"),
        ({"rank_pattern": {"(a+)+$": 4}}, UnsupportedError, "no name of a module"),
        ({"rank_pattern": {"q_proj": 5}}, FormatError, "has rank 4, but .* says 5"),
        ({"rank_pattern": [4]}, FormatError, "rank_pattern is no object"),
        ({"r": 8}, FormatError, "has rank 4, but .* says 8"),
        ({"r": 0}, FormatError, "r is 0, not a positive count"),
        ({"r": None}, FormatError, "r is None"),
        ({"lora_alpha": 0}, FormatError, "lora_alpha is 0, not a number above 0"),
        ({"lora_alpha": -2}, FormatError, "lora_alpha is -2"),
        ({"lora_alpha": float("nan")}, FormatError, "lora_alpha is nan"),
        ({"lora_alpha": float("inf")}, FormatError, "lora_alpha is inf"),
        ({"lora_alpha": True}, FormatError, "lora_alpha is True"),
        ({"alpha_pattern": {"q_proj": 0}}, FormatError, "alpha_pattern of q_proj is 0"),
        ({"use_rslora": "yes"}, FormatError, "use_rslora is 'yes'"),
    ],
    ids=lambda value: str(value)[:40] if isinstance(value, dict) else None,
)
def test_what_is_no_plain_lora_is_refused_by_name(
    changes: dict[str, Any], error: type[OxiBonsaiError], message: str, plain: Path, tmp_path: Path
) -> None:
    (tmp_path / "adapter_model.safetensors").symlink_to(
        plain / "lora" / "adapter_model.safetensors"
    )
    config = json.loads((plain / "lora" / "adapter_config.json").read_text())
    (tmp_path / "adapter_config.json").write_text(json.dumps(config | changes))
    with pytest.raises(error, match=message) as raised:
        oxibonsai.load(plain / "base.gguf", lora=tmp_path)
    assert type(raised.value) is error


_FIRST = "base_model.model.model.layers.0.self_attn.q_proj.lora_{}.weight"


def _others(name: str) -> dict[str, Any]:
    """One change of the tensors, by what it is."""
    import torch

    ones = torch.ones
    return {
        "an embedding": {"base_model.model.model.embed_tokens.lora_embedding_A": ones(4, 9)},
        "a magnitude": {_FIRST.format("magnitude_vector"): ones(128)},
        "a saved module": {"base_model.model.lm_head.weight": ones(9, 9)},
        "a norm": {"base_model.model.model.norm.lora_A.weight": ones(4, 9)},
        "a foreign layer": {"base_model.model.transformer.h.0.lora_A.weight": ones(4, 9)},
        "a vector": {_FIRST.format("A"): ones(128)},
        "integers": {_FIRST.format("A"): ones(4, 128, dtype=torch.int64)},
        "no A": {_FIRST.format("A"): None},
        "no B": {_FIRST.format("B"): None},
        "a layer too many": {_FIRST.format("A").replace(".0.", ".9."): ones(4, 128)},
        "another width": {_FIRST.format("A"): ones(4, 64)},
        "other rows": {_FIRST.format("B"): ones(64, 4)},
        "a NaN": {_FIRST.format("B"): torch.full((128, 4), float("nan"))},
    }[name]  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("an embedding", UnsupportedError, "lora_embedding_A is no part of a plain LoRA"),
        ("a magnitude", UnsupportedError, "magnitude_vector.weight is no part of a plain LoRA"),
        ("a saved module", UnsupportedError, "lm_head.weight is no part of a plain LoRA"),
        ("a norm", UnsupportedError, "changes no linear layer"),
        (
            "a foreign layer",
            UnsupportedError,
            r"transformer\.h\.0\.lora_A\.weight changes no linear",
        ),
        ("a vector", FormatError, "no matrix"),
        ("integers", UnsupportedError, "type I64"),
        ("no A", FormatError, "attn_q.weight.lora_b but no"),
        ("no B", FormatError, "attn_q.weight.lora_a but no"),
        ("a layer too many", FormatError, r"blk\.9\..*lora_a but no"),
        ("another width", FormatError, r"has shape \(4, 64\), but .* needs \(4, 128\)"),
        ("other rows", FormatError, "has 64 rows, but .* has 128"),
        ("a NaN", FormatError, "lora_B.weight"),
    ],
)
def test_tensors_that_do_not_fit_are_named(
    name: str, error: type[OxiBonsaiError], message: str, plain: Path, tmp_path: Path
) -> None:
    from safetensors.torch import load_file, save_file

    tensors = load_file(plain / "lora" / "adapter_model.safetensors") | _others(name)
    kept = {k: v for k, v in tensors.items() if v is not None}
    save_file(kept, tmp_path / "adapter_model.safetensors")
    config = (plain / "lora" / "adapter_config.json").read_text()
    (tmp_path / "adapter_config.json").write_text(config)
    with pytest.raises(error, match=message) as raised:
        oxibonsai.load(plain / "base.gguf", lora=tmp_path)
    assert type(raised.value) is error


def test_what_is_missing_is_named(plain: Path, tmp_path: Path) -> None:
    text = (plain / "lora" / "adapter_config.json").read_text()
    config = tmp_path / "adapter_config.json"
    config.write_text(text)
    with pytest.raises(FormatError, match=r"has no adapter_model\.safetensors"):
        oxibonsai.load(plain / "base.gguf", lora=tmp_path)
    config.write_text(text[:-9])
    with pytest.raises(FormatError, match=r"cannot read .*adapter_config\.json"):
        oxibonsai.load(plain / "base.gguf", lora=tmp_path)


def test_the_language_model_of_a_larger_one_is_adapted_by_both_of_its_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch
    from safetensors.torch import save_file

    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "models")
    import dense_models as dm
    import expert_models as em

    dm.save(next(c for c in em.CASES if c.name == "gemma4-shared"), tmp_path / "base")
    config, lora = read_config(Checkpoint(converted(tmp_path))), tmp_path / "lora"
    lora.mkdir()
    options = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj"]}
    (lora / "adapter_config.json").write_text(json.dumps(options))
    shapes = {"A": (4, dm.HIDDEN), "B": (config.num_attention_heads * 8, 4)}
    files = []
    for layers in ("model.layers", "model.language_model.layers"):
        name = f"base_model.model.{layers}.{{}}.self_attn.q_proj.lora_{{}}.weight"
        held = {name.format(2, k): torch.full(shape, 0.5) for k, shape in shapes.items()}
        save_file(held, lora / "adapter_model.safetensors")
        convert_lora(lora, tmp_path / "a.gguf", config)
        files.append((tmp_path / "a.gguf").read_bytes())
    assert files[0] == files[1]
    assert b"blk.2.attn_q.weight.lora_a" in files[0]
    held = {name.format(9, k): torch.full(shape, 0.5) for k, shape in shapes.items()}
    save_file(held, lora / "adapter_model.safetensors")
    with pytest.raises(UnsupportedError, match="changes no linear layer of gemma4"):
        convert_lora(lora, tmp_path / "a.gguf", config)
