"""``oxibonsai prune``: what it reports, and which options go together."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import float_model
from oxibonsai.checkpoint.gguf import GgufModel
from oxibonsai.cli.main import _run
from oxibonsai.quantize import quantize

TEXT = "The quick brown fox jumps over the lazy dog. " * 20
CUT = ["-c", "32", "--chunks", "2"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model in float32, and a text."""
    made = tmp_path_factory.mktemp("prune")
    float_model.write(made / "m.gguf")
    (made / "text.txt").write_text(TEXT)
    return made


def run(capsys: pytest.CaptureFixture[str], *words: Any) -> Any:
    capsys.readouterr()
    assert _run(["prune", *map(str, words), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def perplexity(capsys: pytest.CaptureFixture[str], model: Path, text: Path) -> Any:
    capsys.readouterr()
    assert _run(["perplexity", str(model), "-f", str(text), *CUT, "--json"]) == 0
    return json.loads(capsys.readouterr().out)["ppl"]


def test_the_report_has_zeros_and_perplexities(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, text = tmp_path / "o.gguf", folder / "text.txt"
    options = ["--method", "magnitude", "--sparsity", 0.25, "--type", "Q8_0", "--ignore", "attn"]
    found = run(capsys, folder / "m.gguf", out, *options, "--held-out", text, *CUT)
    assert found["path"] == str(out)
    assert [t["name"].split(".")[2] for t in found["tensors"]] == [
        "ffn_gate",
        "ffn_up",
        "ffn_down",
    ] * 2
    assert {(t["type"], t["zeros"], t["sparsity"]) for t in found["tensors"]} == {
        ("Q8_0", 8192, 0.25)
    }
    assert found["sparsity"] == 0.25
    assert 0.001 < found["relative_errors"]["Q8_0"] < 0.01
    assert found["perplexity_before"] == perplexity(capsys, folder / "m.gguf", text)
    assert found["perplexity"] == perplexity(capsys, out, text) != found["perplexity_before"]


def test_wanda_measures_its_text_or_takes_what_was_measured(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, text = folder / "m.gguf", folder / "text.txt"
    line = [model, tmp_path / "a.gguf", "--method", "wanda", "--mask-structure", "2:4"]
    found = run(capsys, *line, "--calibration", text, *CUT)
    assert found["mask_structure"] == "2:4"
    assert {t["sparsity"] for t in found["tensors"]} == {0.5}
    assert _run(["imatrix", str(model), "-f", str(text), *CUT, "-o", str(tmp_path / "i.gguf")]) == 0
    line[1] = tmp_path / "b.gguf"
    run(capsys, *line, "--imatrix", tmp_path / "i.gguf")
    assert (tmp_path / "a.gguf").read_bytes() == (tmp_path / "b.gguf").read_bytes()
    line[1:4] = [tmp_path / "c.gguf", "--method", "magnitude"]
    run(capsys, *line)
    assert (tmp_path / "a.gguf").read_bytes() != (tmp_path / "c.gguf").read_bytes()


def test_shortgpt_drops_the_layer_that_changes_least(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, text = folder / "m.gguf", folder / "text.txt"
    line = [model, tmp_path / "a.gguf", "--method", "shortgpt", "--drop-layers", 1]
    found = run(capsys, *line, "--calibration", text, *CUT)
    least = found["influences"].index(min(found["influences"]))
    assert found["dropped_layers"] == [least]
    assert found["tokens"] == 64
    run(capsys, model, tmp_path / "b.gguf", "--prune-layers", least)
    assert (tmp_path / "a.gguf").read_bytes() == (tmp_path / "b.gguf").read_bytes()
    assert _run(["prune", *map(str, line), "--calibration", str(text), *CUT]) == 0
    assert f"without layers {least}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ([], "say what to prune: give --method, or --prune-layers"),
        (["--sparsity", "0.5"], "say what to prune"),
        (["--method", "magnitude", "--drop-layers", "1"], "--drop-layers does not go with --method mag"),
        (["--method", "magnitude", "--calibration", "TEXT"], "--calibration does not go with"),
        (["--method", "wanda"], "--method wanda needs --calibration or --imatrix"),
        (["--method", "shortgpt", "--calibration", "TEXT"], "needs --drop-layers"),
        (["--method", "shortgpt", "--drop-layers", "1"], "needs --calibration"),
        (["--prune-layers", "1", "--ignore", "x"], "--ignore does not go with --prune-layers"),
        (["--prune-layers", "1,x"], "'1,x' is no list of layers"),
        (["--method", "magnitude", "-c", "64"], "--ctx-size and --chunks are of"),
    ],
)  # fmt: skip
def test_options_that_say_nothing_together_are_refused(
    folder: Path,
    tmp_path: Path,
    options: list[str],
    problem: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = [str(folder / "text.txt") if o == "TEXT" else o for o in options]
    assert _run(["prune", str(folder / "m.gguf"), str(tmp_path / "o.gguf"), *given]) == 2
    assert problem in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--method", "shortgpt", "--drop-layers", "2", "--calibration", "TEXT"],
         "2 of 2 layers would be dropped"),
        (["--prune-layers", "2", "--held-out", "TEXT"], "has no layer 2"),
        (["--method", "wanda", "--calibration", "TEXT", "--ignore", "nothing"], "matches no matrix"),
        (["--method", "magnitude", "--held-out", "TEXT", "--sparsity", "0.3", "--mask-structure", "2:4"],
         "leave one of the two"),
        (["--method", "magnitude", "--held-out", "TEXT", "--type", "Q9"], "Q9 is no type"),
    ],
)  # fmt: skip
def test_what_no_measurement_makes_right_is_refused_before_a_text_is_read(
    folder: Path,
    tmp_path: Path,
    options: list[str],
    problem: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = tmp_path / "text.txt"
    text.write_bytes(b"\xff")  # is no text, which is said once it is read
    given = [str(text) if o == "TEXT" else o for o in options]
    assert _run(["prune", str(folder / "m.gguf"), str(tmp_path / "o.gguf"), *given]) == 2
    assert problem in capsys.readouterr().err


@pytest.mark.parametrize(
    "options",
    [
        ["--method", "wanda", "--calibration", "TEXT"],
        ["--method", "magnitude", "--held-out", "TEXT"],
    ],
)
def test_windows_longer_than_the_context_are_refused_with_the_size_that_fits(
    options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, text, out = tmp_path / "m.gguf", tmp_path / "text.txt", tmp_path / "o.gguf"
    float_model.write(model, changes={"qwen3.context_length": (64, "u32")})
    text.write_text(TEXT)
    line = ["prune", str(model), str(out), *(str(text) if o == "TEXT" else o for o in options)]
    for given, size in (([], 512), (["-c", "65"], 65)):
        assert _run([*line, *given]) == 2
        beyond = f"windows of {size} tokens are more than the model's context of 64: "
        assert beyond + "give --ctx-size 64 or less" in " ".join(capsys.readouterr().err.split())
        assert not out.exists()
    assert _run([*line, "-c", "64"]) == 0


def test_a_quantized_source_is_said_where_its_weights_get_another_type(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    quantize(GgufModel.open(folder / "m.gguf"), tmp_path / "q.gguf", "Q8_0")
    methods = (["--method", "magnitude"], ["--method", "magnitude", "--ignore", "ffn"])
    for options in (*methods, ["--prune-layers", "1"]):
        for types, is_said in (([], False), (["--type", "Q6_K"], True), (["--type", "F16"], False)):
            line = ["prune", str(tmp_path / "q.gguf"), str(tmp_path / "o.gguf"), *options, *types]
            assert _run(line) == 0
            assert ("quantized already (Q8_0)" in capsys.readouterr().err) == is_said, line
