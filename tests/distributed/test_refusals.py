"""What several processes cannot share is refused before any of them waits for another."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

import bert_folder
import oxibonsai
from oxibonsai import RequestError, UnsupportedError
from oxibonsai.convert.language_model import convert
from oxibonsai.distributed import Group, Layout, RankPlan
from oxibonsai.distributed.__main__ import cli
from oxibonsai.loading import open_model
from oxibonsai.models import load_model


def plan(tensor: int, pipeline: int) -> RankPlan:
    """Of a group whose connections nobody may use yet."""
    return RankPlan(Group(Layout(tensor, pipeline, 0), 1.0, None, None, None), 1)


@pytest.mark.parametrize(
    "flags",
    [
        ("--gpu-layers", "3"),
        ("--load-as", "Q4_0"),
        ("--packed-cache",),
        ("--kv-pressure", "balanced"),
        ("--mmproj", "tower.gguf"),
        ("--slot-save-path", "slots"),
        ("--models", "a.gguf"),
    ],
    ids=lambda flags: flags[0],
)
def test_flags_that_need_the_whole_model_are_refused(flags: tuple[str, ...]) -> None:
    arguments = ["serve", "--model", "missing.gguf", *flags]
    error = CliRunner().invoke(cli, arguments, standalone_mode=False).exception
    assert isinstance(error, RequestError)
    assert f"{flags[0]} is not available where several processes" in str(error)


def test_several_engines_without_stages_are_refused() -> None:
    arguments = ["serve", "--model", "missing.gguf", "--replicas", "2", "--tensor-parallel", "2"]
    error = CliRunner().invoke(cli, arguments, standalone_mode=False).exception
    assert isinstance(error, RequestError)
    assert "--replicas needs --pipeline-parallel" in str(error)


def test_layers_for_a_gpu_are_refused_beside_a_plan(tiny_path: Path) -> None:
    with pytest.raises(RequestError, match="leave out gpu_layers"):
        oxibonsai.load(tiny_path, device=plan(2, 1), gpu_layers=1)


@pytest.mark.parametrize(("tensor", "pipeline"), [(2, 1), (1, 2)])
def test_a_model_of_vectors_is_refused(tensor: int, pipeline: int, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    convert(bert_folder.write(tmp_path / "model"), path, dtype="f32")
    with pytest.raises(UnsupportedError, match="only models that generate text"):
        load_model(open_model(path), plan(tensor, pipeline))


def test_more_stages_than_layers_are_refused(tiny_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="has 2 layers, which cannot be shared by 4 stages"):
        load_model(open_model(tiny_path), plan(1, 4))
