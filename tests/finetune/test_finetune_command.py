"""``oxibonsai finetune``: what is trained answers, a stopped run goes on, wrong settings are named."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oxibonsai
from oxibonsai.cli.main import _run
from oxibonsai.errors import FormatError, UnsupportedError

pytest.importorskip("peft", reason="needs peft, transformers and torch (extra: test)")
from safetensors.torch import load_file

pytestmark = pytest.mark.hf
# PEFT asks transformers by an old name.
PEFT_WARNS = pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning")
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
    line = ["finetune", str(tiny_path), str(data), str(out), "--use-rslora", "--checkpointing"]
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


@pytest.mark.slow
def test_packed_examples_are_learnt_as_by_themselves(
    tiny_path: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(out: str, *more: str) -> Any:
        line = ["finetune", str(tiny_path), str(data), str(tmp_path / out), *SHORT[:4], *more]
        assert _run([*line, "--accumulate", "1", "--steps", "3", "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    alone = run("alone", "--batch", "6")
    packed = run("packed", "--batch", "1", "--packing")
    assert (alone["examples"], alone["rows"]) == (packed["examples"], 6)
    assert packed["rows"] == 1
    assert packed["loss"] == pytest.approx(alone["loss"], rel=1e-3)
    log = json.loads((tmp_path / "alone/checkpoints/checkpoint-3/trainer_state.json").read_text())
    assert log["log_history"][0]["loss"] > 1.01 * alone["loss"]  # something was learnt


def test_models_whose_packed_examples_would_see_each_other_are_refused() -> None:
    import torch

    from oxibonsai.finetune.trainer import check_packing

    class Blind(torch.nn.Module):
        """Takes no look at positions."""

        def forward(self, input_ids: Any, position_ids: Any = None) -> Any:
            sums = input_ids.cumsum(dim=1).float()
            return type("Output", (), {"logits": sums[..., None].expand(-1, -1, 5)})

    with pytest.raises(UnsupportedError, match="they would see each other; leave out --packing"):
        check_packing(Blind(), "m.gguf")


@pytest.mark.parametrize(
    ("where", "error"),
    [
        ("packed", "they would see each other"),
        ("all", "computes logits that are no finite numbers"),
    ],
)
def test_models_that_compute_no_numbers_are_refused(where: str, error: str) -> None:
    import torch

    from oxibonsai.finetune.trainer import check_packing

    class Undefined(torch.nn.Module):
        """Computes no numbers, of packed texts or of all."""

        def forward(self, input_ids: Any, position_ids: Any = None) -> Any:
            is_number = where == "packed" and position_ids is None
            logits = torch.full((*input_ids.shape, 5), 1.0 if is_number else float("nan"))
            return type("Output", (), {"logits": logits})

    with pytest.raises((UnsupportedError, FormatError), match=error):
        check_packing(Undefined(), "m.gguf")


@pytest.mark.slow
@PEFT_WARNS
def test_preferences_are_learnt_with_the_loss_of_dpo(
    tiny_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import peft
    import torch

    prompts = [("Say a word: ", "yes indeed", "no"), ("And one more: ", "up", "down it goes")]
    rows = [{"prompt": p, "chosen": c, "rejected": r} for p, c, r in prompts]
    data, out = tmp_path / "pairs.jsonl", tmp_path / "adapter"
    data.write_text("\n".join(map(json.dumps, rows)))
    line = ["finetune", str(tiny_path), str(data), str(out), *SHORT[:4], "--beta", "0.3", "--json"]
    line += ["--batch", "2", "--accumulate", "1", "--held-out", str(data), "--steps", "4"]
    assert _run(line) == 0
    found = json.loads(capsys.readouterr().out)
    first = json.loads((out / "checkpoints/checkpoint-4/trainer_state.json").read_text())
    assert first["log_history"][0]["loss"] == pytest.approx(np.log(2), abs=1e-4)
    tokenizer = oxibonsai.AutoTokenizer.from_pretrained(tiny_path)
    model = oxibonsai.AutoModelForCausalLM.from_pretrained(tiny_path).trainable()
    tuned = peft.PeftModel.from_pretrained(model, str(out))

    def log_probability(prompt: str, answer: str) -> float:
        given = tokenizer(prompt)["input_ids"]
        said = tokenizer(answer, add_special_tokens=False)["input_ids"]
        ids = torch.tensor([[*given, *said, tokenizer.eos_token_id]])
        logs = tuned(ids).logits[0].double().log_softmax(-1)
        return sum(float(logs[i - 1, ids[0, i]]) for i in range(len(given), ids.shape[1]))

    losses = []
    with torch.no_grad():
        for prompt, chosen, rejected in prompts:
            now = log_probability(prompt, chosen) - log_probability(prompt, rejected)
            with tuned.disable_adapter():
                before = log_probability(prompt, chosen) - log_probability(prompt, rejected)
            losses.append(np.log1p(np.exp(-0.3 * (now - before))))
    assert found["held_out_loss"] == pytest.approx(np.mean(losses), rel=1e-3)
    assert found["held_out_loss"] < 0.6
    assert _run([*line[:3], str(tmp_path / "other"), "--packing"]) == 2
    assert "holds preferences, which are not packed" in capsys.readouterr().err


def test_the_adapter_is_a_gguf_file_too(tiny_path: Path, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "adapter"
    line = ["finetune", str(tiny_path), str(data), str(out), *SHORT, "--use-rslora", "--gguf"]
    assert _run([*line, "--steps", "2"]) == 0
    ids = list(range(20))
    found = oxibonsai.load(tiny_path, lora=out / "adapter.gguf").logits(ids)
    assert np.array_equal(found, oxibonsai.load(tiny_path, lora=out).logits(ids))
    assert not np.array_equal(found, oxibonsai.load(tiny_path).logits(ids))


@pytest.mark.slow
@PEFT_WARNS
def test_dora_is_pefts(
    tiny_path: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import peft
    import torch

    out = tmp_path / "dora"
    line = ["finetune", str(tiny_path), str(data), str(out), *SHORT, "--use-dora"]
    assert _run([*line, "--steps", "2"]) == 0
    base = oxibonsai.AutoModelForCausalLM.from_pretrained(tiny_path).trainable()
    ids = torch.arange(20)[None]
    with torch.no_grad():
        plain = base(ids).logits
        tuned = peft.PeftModel.from_pretrained(base, str(out))(ids).logits
    assert (tuned - plain).abs().max() > 0.01
    norms = [n for n in load_file(out / "adapter_model.safetensors") if "magnitude" in n]
    assert len(norms) == 14
    with pytest.raises(UnsupportedError, match="use_dora is True"):
        oxibonsai.load(tiny_path, lora=out)
    assert _run([*line, "--gguf"]) == 2
    assert "GGUF files have no DoRA" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--rank", "0"], "rank is 0; it is at least 1"),
        (["--lr", "0"], "learning_rate is 0.0; it must be a number above 0"),
        (["--dropout", "1"], "dropout is 1.0; it is at least 0 and below 1"),
        (["--schedule", "steep"], "steep"),
        (["--target-modules", "no_such"], "no_such"),
        (["--report-to", "nobody"], "nobody"),
        (["--beta", "0.2"], "beta is of preferences, and"),
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
