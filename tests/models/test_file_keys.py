"""Keys of a file that contradict each other, or are missing: what llama.cpp makes of them, or an error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gguf_copy
import oxibonsai
from oxibonsai.checkpoint import Checkpoint
from oxibonsai.convert.language_model import convert
from oxibonsai.errors import FormatError
from oxibonsai.models import read_config

pytest.importorskip("transformers", reason="needs transformers and torch (extra: test)")
import dense_models as dm
import expert_models as em
import recurrent_models as rm

pytestmark = pytest.mark.hf


def file_of(name: str, folder: Path) -> Path:
    cases: list[dm.Case | rm.Case] = [*em.CASES, *dm.CASES, *rm.CASES]
    case = next(c for c in cases if c.name == name)
    if isinstance(case, rm.Case):
        case.save(folder / "model")
    else:
        dm.save(case, folder / "model")
    convert(folder / "model", folder / "model.gguf", dtype="f32")
    return folder / "model.gguf"


def changed(path: Path, **arguments: Any) -> Path:
    target = path.with_name("changed.gguf")
    gguf_copy.copy(path, target, **arguments)
    return target


@pytest.mark.parametrize(
    ("name", "counts"),
    [("ernie4_5-moe", (0, 3)), ("hunyuan-moe", (0, 5)), ("nemotron_h_moe", (0, 7))],
)
def test_the_count_of_shared_experts_agrees_with_their_width(
    name: str, counts: tuple[int, ...], tmp_path: Path
) -> None:
    path = file_of(name, tmp_path)
    key = f"{Checkpoint(path).architecture}.expert_shared_count"
    for count in counts:
        other = changed(path, keys={key: (count, "u32")})
        with pytest.raises(FormatError, match=f"expert_shared_count is {count}, but"):
            read_config(Checkpoint(other))
    found = read_config(Checkpoint(changed(path, without=(key,))))  # files need not have it
    assert found == read_config(Checkpoint(path))


def test_no_shared_expert_where_every_layer_has_one(tmp_path: Path) -> None:
    path = file_of("nemotron_h_moe", tmp_path)
    keys = (f"nemotron_h_moe.expert_shared_{k}" for k in ("count", "feed_forward_length"))
    with pytest.raises(FormatError, match="no shared expert"):
        read_config(Checkpoint(changed(path, without=tuple(keys))))


@pytest.mark.parametrize(
    ("name", "missing"),
    [
        ("gemma4-experts", "rope_freqs.weight"),
        ("gemma4-experts", "gemma4.attention.sliding_window"),
        ("gpt-oss", "gpt-oss.attention.sliding_window"),
        ("cohere2", "cohere2.logit_scale"),
    ],
)
def test_what_no_default_can_stand_for_must_be_there(
    name: str, missing: str, tmp_path: Path
) -> None:
    path = file_of(name, tmp_path)
    with pytest.raises(FormatError, match=missing):
        read_config(Checkpoint(changed(path, without=(missing,))))


@pytest.mark.parametrize("name", ["glm4moe", "nemotron_h_moe"])
def test_weights_of_experts_are_normalised_only_if_the_file_says_so(
    name: str, tmp_path: Path
) -> None:
    path = file_of(name, tmp_path)
    key = f"{name}.expert_weights_norm"
    found = read_config(Checkpoint(changed(path, without=(key,)))).experts
    assert found is not None
    assert not found.normalize


def test_granite_without_positions(tmp_path: Path) -> None:
    path = file_of("granite", tmp_path)
    other = changed(path, keys={"granite.rope.scaling.finetuned": (False, "bool")})
    ids = [5, 9, 5, 9, 5, 9, 70]
    still, turned = (oxibonsai.load(p).logits(ids) for p in (other, path))
    assert np.abs(still - turned).max() > 0.1
    assert read_config(Checkpoint(other)).rope.rotary_dim == 0


def test_a_factor_of_cos_and_sin_is_that_of_all_layers(tmp_path: Path) -> None:
    path = file_of("gemma4-experts", tmp_path)
    config = read_config(
        Checkpoint(changed(path, keys={"gemma4.rope.scaling.attn_factor": (0.5, "f32")}))
    )
    local = config.of_family.rope_local
    assert config.rope.magnitude() == local.magnitude() == 0.5
