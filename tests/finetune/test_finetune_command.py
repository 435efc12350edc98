"""``oxibonsai finetune``: what is trained answers, a stopped run goes on, wrong settings are named."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import oxibonsai
from oxibonsai.cli.main import _run

pytest.importorskip("peft", reason="needs peft, transformers and torch (extra: test)")
pytestmark = pytest.mark.hf
ROW = {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho ho!"}]}
SHORT = ["--rank", "4", "--lr", "0.02", "--accumulate", "2", "--schedule", "constant"]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    file = tmp_path / "data.jsonl"
    others = ({"prompt": f"{i} ", "completion": "is a number"} for i in range(5))
    file.write_text("\n".join(json.dumps(row) for row in (ROW, *others)))
    return file


def weights(folder: Path) -> bytes:
    return (folder / "adapter_model.safetensors").read_bytes()


def test_an_interrupted_run_gives_the_adapter_of_a_whole_one(
    tiny_path: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(out: str, *more: str) -> Any:
        line = ["finetune", str(tiny_path), str(data), str(tmp_path / out), *SHORT, *more, "--json"]
        assert _run([*line, "--steps", "4", "--save-every", "2"]) == 0
        return json.loads(capsys.readouterr().out)

    whole = run("whole", "--held-out", str(data))
    assert (whole["steps"], whole["examples"], whole["cut"]) == (4, 6, 0)
    assert whole["held_out_loss"] < 5
    assert (tmp_path / "whole" / "loss.png").read_bytes().startswith(b"\x89PNG")
    stopped = tmp_path / "stopped" / "checkpoints"
    shutil.copytree(tmp_path / "whole" / "checkpoints" / "checkpoint-2", stopped / "checkpoint-2")
    assert run("stopped", "--resume")["steps"] == 4
    assert weights(stopped.parent) == weights(tmp_path / "whole")
    assert _run(["finetune", str(tiny_path), str(data), str(stopped.parent)]) == 2
    assert "has an adapter or checkpoints: go on with --resume" in capsys.readouterr().err


def test_a_model_learns_its_answer(tiny_path: Path, tmp_path: Path) -> None:
    data, out = tmp_path / "one.jsonl", tmp_path / "adapter"
    data.write_text(json.dumps(ROW))
    line = ["finetune", str(tiny_path), str(data), str(out), "--rslora", "--checkpointing"]
    assert _run([*line, *SHORT, "--steps", "60", "--dtype", "float32"]) == 0
    tokenizer = oxibonsai.AutoTokenizer.from_pretrained(tiny_path)
    asked = tokenizer.apply_chat_template(ROW["messages"][:1], add_generation_prompt=True)

    def answer(**options: Any) -> str:
        model = oxibonsai.AutoModelForCausalLM.from_pretrained(tiny_path, **options)
        ids = model.generate([asked["input_ids"]], max_new_tokens=8, do_sample=False)[0]
        text: str = tokenizer.decode(ids[len(asked["input_ids"]) :])
        return text

    assert not answer().startswith("Ho ho!")
    assert answer(lora=str(out)).startswith("Ho ho!")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--rank", "0"], "rank is 0; it is at least 1"),
        (["--lr", "0"], "learning_rate is 0.0; it must be a number above 0"),
        (["--dropout", "1"], "dropout is 1.0; it is at least 0 and below 1"),
        (["--schedule", "steep"], "steep"),
        (["--target-modules", "no_such"], "no_such"),
        (["--report-to", "nobody"], "nobody"),
    ],
)
def test_a_wrong_setting_is_named(
    tiny_path: Path,
    data: Path,
    tmp_path: Path,
    options: list[str],
    problem: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    line = ["finetune", str(tiny_path), str(data), str(tmp_path / "out"), "--steps", "1", *options]
    assert _run(line) == 2
    assert problem in capsys.readouterr().err
