"""``oxibonsai distill``: the file holds what was trained, a stopped run goes on, errors name causes."""

from __future__ import annotations

import copy
import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import float_model
from oxibonsai.cli.main import _run

pytest.importorskip("peft", reason="needs peft, transformers and torch (extra: test)")
import dense_models as dm
import torch
from distilled_models import CASES, write_data, write_model
from safetensors.torch import load_file
from torch.func import functional_call

from oxibonsai.distill.optimization import MuonAndAdamW
from oxibonsai.distill.rounding import plan_rounding
from oxibonsai.distill.run import distill
from oxibonsai.distill.settings import DistillSettings
from oxibonsai.export.config_json import inverse_of
from oxibonsai.hf.trainable import filled_model
from oxibonsai.loading import open_model
from oxibonsai.quantize import TypeRules, find_mix

pytestmark = [pytest.mark.hf, pytest.mark.filterwarnings("ignore")]
SHORT = DistillSettings(steps=2, context=24, learning_rate=1e-2, schedule="constant")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_data(tmp_path)


@pytest.fixture(scope="module")
def floats(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("floats") / "floats.gguf"
    float_model.write(path)
    return path


def from_file(path: Path) -> tuple[Any, Any]:
    """A file, read backwards, and transformers' model of its values."""
    checkpoint = open_model(path)
    inverse = inverse_of(checkpoint, "float32")
    return checkpoint, filled_model(inverse, torch.float32, "file", packed=False).eval()


@pytest.mark.parametrize(
    ("case", "weight_type", "options"),
    [
        (CASES[0], "q2_0_g64", {"top_k": 16}),
        (CASES[1], "q2_0_g64", {"pure": True, "optimizer": "muon", "hidden": 0.1}),
        (CASES[2], "q4_0", {"token_embedding_type": "f16", "cross_entropy": 0.5}),
    ],
    ids=lambda v: v.name if isinstance(v, dm.Case) else None,
)
def test_the_file_holds_what_the_trained_module_computes_with(
    case: dm.Case, weight_type: str, options: dict[str, Any], data: Path, tmp_path: Path
) -> None:
    teacher = write_model(case, tmp_path / "teacher")
    settings = dataclasses.replace(SHORT, weight_type=weight_type, **options)
    result = distill(teacher, data, tmp_path / "run", settings)
    assert sorted(p.name for p in (tmp_path / "run").iterdir()) == [
        "checkpoints", "loss.png", "run.gguf"
    ]  # fmt: skip
    checkpoint, student = from_file(teacher)
    rules = TypeRules(
        find_mix(weight_type), pure=settings.pure, token_embedding=settings.token_embedding_type or None
    )  # fmt: skip
    rounding = plan_rounding(checkpoint, inverse_of(checkpoint, "float32"), rules)
    untrained = {n: v.clone() for n, v in rounding.values(student).items()}
    latent = load_file(tmp_path / "run" / "checkpoints" / "checkpoint-2" / "model.safetensors")
    assert set(student.load_state_dict(latent, strict=False).missing_keys) <= {"lm_head.weight"}
    _, exported = from_file(result.gguf)
    values = rounding.values(student)
    for name, parameter in exported.named_parameters():
        if name in values:
            assert torch.equal(parameter, values[name]), name
        else:  # a file has Gemma's norms with the one that its layers add, rounded once more
            assert torch.allclose(parameter, student.get_parameter(name), rtol=1e-6, atol=1e-7), (
                name
            )
    moved = [name for name, value in values.items() if not torch.equal(value, untrained[name])]
    assert len(moved) == len(values)
    ids = torch.tensor([dm.IDS])
    with torch.no_grad():
        assert torch.equal(exported(ids).logits, functional_call(student, values, (ids,)).logits)


def test_a_student_comes_near_its_teacher(floats: Path, data: Path, tmp_path: Path) -> None:
    settings = DistillSettings(
        weight_type="q1_0", steps=12, context=24, learning_rate=4e-3,
        schedule="OneCycleLR", schedule_options='{"pct_start": 0.5}',
    )  # fmt: skip
    result = distill(floats, data, tmp_path / "run", settings, held_out=data)
    state = next((tmp_path / "run" / "checkpoints").glob("*/trainer_state.json"))
    rows = [row for row in json.loads(state.read_text())["log_history"] if "loss" in row]
    assert rows[-1]["loss"] < rows[0]["loss"] / 3
    rates = [row["learning_rate"] for row in rows]
    assert rates.index(max(rates)) in (5, 6)
    assert max(rates) == pytest.approx(4e-3, rel=0.1)
    assert result.held_out is not None
    teacher, rounded, distilled = dataclasses.astuple(result.held_out)
    assert abs(distilled - teacher) < abs(rounded - teacher)


@pytest.mark.slow
def test_an_interrupted_run_gives_the_file_of_a_whole_one(
    floats: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(out: Path, *more: str) -> Any:
        line = [
            "distill",
            str(floats),
            str(data),
            str(out),
            "--type",
            "pq2_0",
            "--optimizer",
            "muon",
        ]
        assert (
            _run([*line, "--steps", "2", "--save-every", "1", "--context", "24", *more, "--json"])
            == 0
        )
        return json.loads(capsys.readouterr().out)

    whole, stopped = tmp_path / "whole" / "run", tmp_path / "stopped" / "run"
    facts = run(whole, "--held-out", str(data))
    assert (facts["steps"], facts["path"]) == (2, str(whole / "run.gguf"))
    assert facts["held_out_perplexity"].keys() == {"teacher", "rounded", "distilled"}
    shutil.copytree(
        whole / "checkpoints" / "checkpoint-1", stopped / "checkpoints" / "checkpoint-1"
    )
    run(stopped, "--resume")
    assert (stopped / "run.gguf").read_bytes() == (whole / "run.gguf").read_bytes()
    assert _run(["distill", str(floats), str(data), str(stopped)]) == 2
    assert "has a model or checkpoints: go on with --resume" in capsys.readouterr().err


def test_muon_and_adamw_go_on_from_their_state() -> None:
    def made() -> tuple[list[Any], MuonAndAdamW]:
        torch.manual_seed(1)
        matrix, table, vector = (
            torch.nn.Parameter(torch.randn(shape)) for shape in [(4, 6), (5, 6), (3,)]
        )
        optimizer = MuonAndAdamW([matrix], [table], [vector], lr=0.1, weight_decay=0.5)
        return [matrix, table, vector], optimizer

    def update(parameters: list[Any], optimizer: MuonAndAdamW) -> None:
        for parameter in parameters:
            parameter.grad = parameter.detach().clone() + 1
        optimizer.step()

    whole, optimizer = made()
    start = [p.detach().clone() for p in whole]
    update(whole, optimizer)
    other, resumed = made()
    with torch.no_grad():
        for mine, theirs in zip(other, whole, strict=True):
            mine.copy_(theirs)
    resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for group in (*optimizer.param_groups, *resumed.param_groups):
        group["lr"] = 0.01  # which a schedule sets
    for parameters, each in ((whole, optimizer), (other, resumed)):
        update(parameters, each)
    for mine, theirs, first in zip(other, whole, start, strict=True):
        assert torch.equal(mine, theirs)
        assert not torch.equal(mine, first)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--type", "q9"], "q9 is no type"),
        (["--type", "iq2_xs"], "needs an importance matrix"),
        (["--kl", "0"], "kl, cross_entropy and hidden are all 0"),
        (["--top-k", "4", "--hidden", "1"], "top_k stores the teacher's logits"),
        (["--temperature", "0"], "temperature is 0.0; it must be a number above 0"),
        (["--schedule", "steep"], "steep"),
        (["--schedule", "StepLR"], "step_size"),
        (["--schedule-options", "4"], "it is a JSON object"),
        (["--optimizer", "pessimizer"], "pessimizer"),
        (["--optimizer", "muon", "--optimizer-options", "beta2=0.9"], "muon takes none"),
        (["--label-smoothing", "0.1"], "set cross_entropy above 0"),
        (["--kl", "0", "--hidden", "1", "--temperature", "2"], "temperature is of kl, which is 0"),
        (["--hidden-loss", "l1_loss"], "set hidden above 0"),
        (["--schedule", "OneCycleLR", "--warmup", "3"], "OneCycleLR takes schedule_options alone"),
    ],
)
def test_a_wrong_setting_is_named(
    floats: Path,
    data: Path,
    tmp_path: Path,
    options: list[str],
    problem: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    line = ["distill", str(floats), str(data), str(tmp_path / "out"), "--steps", "1", *options]
    assert _run(line) == 2
    assert problem in capsys.readouterr().err
