"""Models with recurrent state become the files that llama.cpp's converter makes of them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from make_llama_cpp_recurrent import TRUTH, record

from oxibonsai import FormatError, UnsupportedError
from oxibonsai.convert.language_model import convert

pytest.importorskip("transformers", reason="needs transformers and torch")
sys.path.insert(0, str(Path(__file__).parents[1] / "models"))
import recurrent_models as rm

pytestmark = pytest.mark.hf

THEIRS = json.loads(TRUTH.read_text())
# Decays are exponentials, which torch rounds otherwise than once from float64.
ROUNDED = "ssm_a"
# Keys of theirs that say nothing of these models: there are no experts, and nothing is rotated.
IDLE = {"expert_count", "expert_used_count", "expert_shared_feed_forward_length"}
NOT_ROTATED = {"granitehybrid": {"rope.dimension_count"}}
# llama.cpp takes it that no Granite with Mamba layers has positions; transformers goes by what
# config.json says.
ROTATED = {"granitehybrid with experts": {"context_length", "rope.scaling.finetuned"}}


@pytest.mark.parametrize("case", rm.CASES, ids=lambda c: c.name)
def test_tensors_and_keys_are_those_of_llama_cpp(case: rm.Case, tmp_path: Path) -> None:
    case.save(tmp_path / "model")
    convert(tmp_path / "model", tmp_path / "model.gguf", dtype="f32")
    ours, theirs = record(tmp_path / "model.gguf", case.architecture), THEIRS[case.name]
    assert ours["tensors"].keys() == theirs["tensors"].keys()
    for name, (shape, digest) in theirs["tensors"].items():
        assert ours["tensors"][name][0] == shape, name
        assert ours["tensors"][name][1] == digest or name.endswith(ROUNDED), name
    idle = IDLE | NOT_ROTATED.get(case.architecture, set()) | ROTATED.get(case.name, set())
    for key, value in theirs["keys"].items():
        if key not in idle:
            assert ours["keys"].get(key) == pytest.approx(value), key


def test_decays_are_exponentials_rounded_once(tmp_path: Path) -> None:
    from oxibonsai.checkpoint import Checkpoint

    model = rm.CASES[0].save(tmp_path / "model")
    convert(tmp_path / "model", tmp_path / "model.gguf", dtype="f32")
    found = Checkpoint(tmp_path / "model.gguf").vector("blk.0.ssm_a")
    logarithms = model.model.layers[0].linear_attn.A_log.detach().numpy().astype(np.float64)
    order = logarithms.reshape(2, 2).T.reshape(-1)  # of the value heads, tiled
    assert (found == -np.exp(order).astype(np.float32)).all()


@pytest.mark.parametrize(
    ("architecture", "key", "value", "error", "sentence"),
    [
        ("qwen35", "layer_types", ["full_attention"], FormatError, "layer_types"),
        ("qwen35", "linear_num_value_heads", 3, FormatError, "asks for"),
        ("qwen35", "attention_bias", True, UnsupportedError, "attention_bias"),
        ("mamba", "use_bias", True, UnsupportedError, "use_bias"),
        ("mamba", "hidden_act", "gelu", UnsupportedError, "hidden_act"),
        ("mamba2", "time_step_limit", [0.0, 0.1], UnsupportedError, "time_step_limit"),
        ("mamba2", "num_heads", 0, FormatError, "num_heads"),
        ("lfm2", "conv_bias", True, UnsupportedError, "conv_bias"),
        ("lfm2", "layer_types", "conv", FormatError, "layer_types"),
        ("granitehybrid", "num_local_experts", 4, FormatError, "lacks"),
        ("falcon-h1", "mlp_multipliers", [1.0], FormatError, "mlp_multipliers"),
        ("falcon-h1", "mamba_n_heads", 5, FormatError, "heads"),
    ],
)
def test_what_cannot_be_converted_is_said(
    architecture: str,
    key: str,
    value: object,
    error: type[Exception],
    sentence: str,
    tmp_path: Path,
) -> None:
    case = next(c for c in rm.CASES if c.architecture == architecture)
    case.save(tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
    with pytest.raises(error, match=sentence):
        convert(tmp_path / "model", tmp_path / "model.gguf")
