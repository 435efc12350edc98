"""oxibonsai quantize on the command line; convert with a type of its."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import bert_folder
import float_model
import oxibonsai
from forked import run_oxibonsai
from oxibonsai import _core
from oxibonsai.checkpoint.gguf import GgufModel
from oxibonsai.imatrix import Entry, Imatrix, write_imatrix
from oxibonsai.quantize import quantize


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("source") / "floats.gguf"
    float_model.write(path)
    return path


def test_a_model_is_quantized(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "m.gguf"
    options = ("--tensor-type", r"blk\.0\.=q8_0", "--token-embedding-type", "f16", "--threads", "2")
    done = run_oxibonsai("quantize", source, out, "q4_k_m", *options)
    assert done.returncode == 0, done.stderr
    types = {t.name: t.quant_type for t in GgufModel.open(out).tensors}
    assert types["token_embd.weight"] == "F16"
    assert types["blk.0.ffn_down.weight"] == "Q8_0"
    assert types["blk.1.attn_output.weight"] == "Q4_K"
    lines = done.stdout.splitlines()
    assert lines[-1].startswith(f"{out}: ")
    assert lines[-1].endswith(" bits a weight")
    assert "Q4_K: 1 tensor; relative error 0.0" in done.stdout
    # 128 columns are no whole block of Q4_K.
    assert "warning: Q4_K has groups of 256 weights" in done.stderr
    quantize(
        GgufModel.open(source),
        tmp_path / "same.gguf",
        "q4_k_m",
        patterns=[(r"blk\.0\.", "q8_0")],
        token_embedding="f16",
    )
    assert out.read_bytes() == (tmp_path / "same.gguf").read_bytes()


def test_a_dry_run_shows_everything_and_writes_nothing(source: Path, tmp_path: Path) -> None:
    done = run_oxibonsai("quantize", source, tmp_path / "m.gguf", "q4_k_s", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.iterdir()) == []
    rows = {line.split()[0]: line.split() for line in done.stdout.splitlines() if " x " in line}
    names = [t.name for t in GgufModel.open(source).tensors if len(t.shape) > 1]
    assert list(rows) == names
    assert rows["blk.1.ffn_down.weight"][1:] == [
        *("128", "x", "256", "F32", "Q4_K"),
        *("131,072", "18,432"),
    ]
    assert "Q5_0 (for Q4_K)" in " ".join(rows["blk.1.ffn_up.weight"])
    quantize(GgufModel.open(source), tmp_path / "m.gguf", "q4_k_s")
    total = sum(t.nbytes for t in GgufModel.open(tmp_path / "m.gguf").tensors)
    assert f"bytes become {total:,}: " in done.stdout


def test_destruction_is_loud_and_comes_before_the_work(source: Path, tmp_path: Path) -> None:
    done = run_oxibonsai("quantize", source, tmp_path / "m.gguf", "q1_0", "--dry-run")
    assert done.returncode == 0
    assert "Q1_0 DESTROYS THIS MODEL: its weights are not binary. Expected error" in done.stderr


def test_a_quantized_source_is_said_unless_it_is_allowed(source: Path, tmp_path: Path) -> None:
    quantize(GgufModel.open(source), tmp_path / "q8.gguf", "q8_0")
    command = ("quantize", tmp_path / "q8.gguf", tmp_path / "m.gguf", "q5_0")
    assert "quantized already (Q8_0)" in run_oxibonsai(*command).stderr
    assert "quantized already" not in run_oxibonsai(*command, "--allow-requantize").stderr


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["q4_9"], 2, "q4_9 is no type; did you mean Q4_1? oxibonsai quantize knows F32, "),
        (["q8_0", "--tensor-type", "ffn_dwon=q4_0"], 2, "'ffn_dwon' matches no matrix"),
        (["q8_0", "--tensor-type", "ffn_down"], 2, "is not REGEX=TYPE"),
        (["q8_0", "--output-tensor-type", "q4_9"], 2, "q4_9 is no type"),
        (["q8_0", "--imatrix", "no.gguf"], 2, "no.gguf"),
    ],
)
def test_what_can_not_be_is_said_in_one_line(
    arguments: list[str], code: int, sentence: str, source: Path, tmp_path: Path
) -> None:
    done = run_oxibonsai("quantize", source, tmp_path / "m.gguf", *arguments)
    assert done.returncode == code
    assert sentence in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("type_name", [n for n, u in _core.encoders().items() if u == "needed"])
def test_types_that_need_an_importance_matrix_say_so(
    type_name: str, source: Path, tmp_path: Path
) -> None:
    done = run_oxibonsai("quantize", source, tmp_path / "m.gguf", type_name, "--pure")
    assert done.returncode == 2
    assert "needs an importance matrix: make one with oxibonsai imatrix" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_an_importance_matrix_is_used_and_recorded(source: Path, tmp_path: Path) -> None:
    file = GgufModel.open(source)
    random = np.random.default_rng(3)
    entries = {
        t.name: Entry(
            random.uniform(1, 9, (1, t.shape[-1])).astype(np.float32), np.ones(1, np.float32)
        )
        for t in file.tensors
        if len(t.shape) > 1
    }
    write_imatrix(Imatrix(entries, datasets=("calibration.txt",)), tmp_path / "im.gguf")
    out = tmp_path / "m.gguf"
    done = run_oxibonsai("quantize", source, out, "q4_0", "--imatrix", tmp_path / "im.gguf")
    assert done.returncode == 0, done.stderr
    made = GgufModel.open(out)
    assert made.get("quantize.imatrix.file") == str(tmp_path / "im.gguf")
    assert made.get("quantize.imatrix.dataset") == "calibration.txt"
    assert made.get("quantize.imatrix.entries_count") == len(entries)


def test_a_folder_is_taken_and_converting_it_with_the_type_is_the_same(tmp_path: Path) -> None:
    folder = bert_folder.write(tmp_path / "model")
    assert run_oxibonsai("quantize", folder, tmp_path / "q.gguf", "q4_1").returncode == 0
    done = run_oxibonsai("convert", folder, tmp_path / "c.gguf", "--type", "Q4_1")
    assert done.returncode == 0, done.stderr
    quantized, converted = (GgufModel.open(tmp_path / f"{n}.gguf") for n in "qc")
    assert quantized.get("general.file_type") == converted.get("general.file_type") == 3
    for tensor in quantized.tensors:
        same = converted.tensor(tensor.name)
        # quantize leaves tables of positions as they are stored.
        if tensor.name not in ("position_embd.weight", "token_types.weight"):
            assert same.quant_type == tensor.quant_type
            one, other = (f.tensor_bytes(tensor.name) for f in (quantized, converted))
            assert one.tobytes() == other.tobytes()
    engine = oxibonsai.load(tmp_path / "c.gguf")
    assert np.isfinite(engine.embed(["hello world"])).all()


def test_convert_says_what_quantize_says(tmp_path: Path) -> None:
    folder = bert_folder.write(tmp_path / "model")
    done = run_oxibonsai("convert", folder, tmp_path / "m.gguf", "--type", "tq2_0")
    assert done.returncode == 0, done.stderr
    assert "TQ2_0 DESTROYS THIS MODEL" in done.stderr
    assert "TQ2_0 has groups of 256 weights" in done.stderr


def test_layers_are_rounded_for_a_text_and_types_chosen(source: Path, tmp_path: Path) -> None:
    text, out, plain = tmp_path / "text.txt", tmp_path / "m.gguf", tmp_path / "plain.gguf"
    text.write_text("One after the other, each byte is a token of this model. " * 30)
    options = ("--gptq", "--target-bits", "3", "--calibration", text, "--calibration-windows", "2")
    done = run_oxibonsai("quantize", source, out, "q4_0", *options, "--tensor-type", "attn_v=q5_0")
    assert done.returncode == 0, done.stderr
    file = GgufModel.open(out)
    types = {t.name: t.quant_type for t in file.tensors if len(t.shape) > 1}
    assert types["blk.0.attn_v.weight"] == types["blk.1.attn_v.weight"] == "Q5_0"
    chosen = [
        t for t in file.tensors if t.name in types and "blk" in t.name and "attn_v" not in t.name
    ]
    assert 8 * sum(t.nbytes for t in chosen) <= 3 * sum(int(np.prod(t.shape)) for t in chosen)
    assert len({t.quant_type for t in chosen}) > 1
    sizes = {t.name: t.shape[-1] for t in file.tensors if t.name in types}
    even = Imatrix(
        {
            name: Entry(np.ones((1, n), np.float32), np.ones(1, np.float32))
            for name, n in sizes.items()
        }
    )
    patterns = [(f"^{n}$", t) for n, t in types.items()]
    quantize(GgufModel.open(source), plain, "q4_0", patterns=patterns, imatrix=even)
    others = GgufModel.open(plain)
    for name in types:
        same = np.array_equal(file.tensor_bytes(name), others.tensor_bytes(name))
        assert same == (name == "token_embd.weight"), name
    assert np.isfinite(oxibonsai.load(out, ctx_size=64).logits([1, 2, 3])).all()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--gptq",), "--calibration FILE"),
        (("--calibration-windows", "2"), "--calibration-windows has an effect with --gptq or"),
        (("--calibration-ctx-size", "64"), "--calibration-ctx-size has an effect with --gptq or"),
        (("--layers-at-once", "2"), "--gptq alone"),
        (("--target-bits", "nan", "--calibration", __file__), "--target-bits is nan"),
    ],
)
def test_options_of_calibration_need_each_other(
    options: tuple[str, ...], said: str, source: Path, tmp_path: Path
) -> None:
    done = run_oxibonsai("quantize", source, tmp_path / "m.gguf", "q4_0", *options)
    assert done.returncode == 2
    assert said in " ".join(done.stderr.split())
    assert not (tmp_path / "m.gguf").exists()


def test_windows_of_calibration_are_no_longer_than_the_models_context(tmp_path: Path) -> None:
    model, text, out = tmp_path / "short.gguf", tmp_path / "text.txt", tmp_path / "m.gguf"
    float_model.write(model, changes={"qwen3.context_length": (64, "u32")})
    options = ["q4_0", "--gptq", "--calibration", text, "--calibration-windows", "2"]
    text.write_text("x" * 127)
    done = run_oxibonsai("quantize", model, out, *options)
    assert done.returncode == 2
    beyond = "windows of 512 tokens are more than the model's context of 64: "
    assert beyond + "give --calibration-ctx-size 64 or less" in " ".join(done.stderr.split())
    options += ["--calibration-ctx-size", "64"]
    done = run_oxibonsai("quantize", model, out, *options)
    assert done.returncode == 2
    assert f"{text} has 127 tokens; to calibrate takes 128 at least" in done.stderr
    assert not out.exists()
    text.write_text("x" * 128)
    done = run_oxibonsai("quantize", model, out, *options)
    assert done.returncode == 0, done.stderr
    assert out.exists()
