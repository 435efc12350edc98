"""Two tiny models side by side, against the definitions in float64; the command and its page."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest

import oxibonsai
import tiny_model
from oxibonsai.cli.comparison_page import Report, Side
from oxibonsai.cli.main import _run
from oxibonsai.engine import Engine, MemoryEstimate
from oxibonsai.errors import RequestError
from oxibonsai.evaluate import (
    Comparison,
    Estimate,
    KlBase,
    KlBaseWriter,
    compare_models,
    cut_windows,
    measure_divergence,
    measure_perplexity,
)

CTX = 32
# "ab" is one token of two bytes, and the Greek letters are two of one byte each.
TEXT = "".join(np.random.default_rng(4).choice(["ab", "c", " ", "αβ", "The", ". "], 150).tolist())


@pytest.fixture(scope="module")
def paths(tiny_path: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    tokens, kinds = (
        tiny_model.tokenizer_keys()[f"tokenizer.ggml.{k}"][0] for k in ("tokens", "token_type")
    )
    size = tiny_model.VOCABULARY + 4
    embeddings = np.random.default_rng(3).normal(0, 1, (size, tiny_model.HIDDEN)).astype(np.float32)
    tiny_model.write(folder / "b.gguf", seed=2)
    tiny_model.write(
        folder / "renamed.gguf",
        changes={"tokenizer.ggml.tokens": ([*tokens[:280], "other", *tokens[281:]], "arr[str]")},
    )
    tiny_model.write(
        folder / "cut.gguf", changes={"tokenizer.ggml.merges": ([], "arr[str]")}, seed=2
    )
    tiny_model.write(
        folder / "larger.gguf",
        changes={
            "tokenizer.ggml.tokens": ([*tokens, "x0", "x1", "x2", "x3"], "arr[str]"),
            "tokenizer.ggml.token_type": ([*kinds, 1, 1, 1, 1], "arr[i32]"),
        },
        tensors={"token_embd.weight": (embeddings.shape, 0, embeddings.tobytes())},
    )
    return {"a": tiny_path, **{p.stem: p for p in folder.iterdir()}}


def load(path: Path) -> Engine:
    return oxibonsai.load(path, ctx_size=64, parallel=1)


@pytest.fixture(scope="module")
def a(paths: dict[str, Path]) -> Engine:
    return load(paths["a"])


@pytest.fixture(scope="module")
def b(paths: dict[str, Path]) -> Engine:
    return load(paths["b"])


def scored(engine: Engine) -> tuple[np.ndarray, list[int]]:
    """Log-probabilities after every scored token of the text, and the tokens that follow."""
    tokens = engine.tokenizer.encode(TEXT)
    rows, targets = [], []
    for start in range(0, len(tokens) - CTX + 1, CTX):
        logits = engine.logits(tokens[start : start + CTX]).astype(np.float64)
        for i in range(CTX // 2, CTX - 1):
            rows.append(
                logits[i] - np.log(np.exp(logits[i] - logits[i].max()).sum()) - logits[i].max()
            )
            targets.append(tokens[start + i + 1])
    return np.array(rows), targets


def bits_per_byte(engine: Engine) -> tuple[float, float]:
    """The figure, and its standard error by leaving out one token after the other."""
    rows, targets = scored(engine)
    bits = -rows[np.arange(len(targets)), targets] / np.log(2)
    sizes = np.array([2 if engine.tokenizer.decode([t]) == "ab" else 1 for t in targets])
    left = (bits.sum() - bits) / (sizes.sum() - sizes)
    count = len(targets)
    return bits.sum() / sizes.sum(), np.sqrt(
        (count - 1) / count * ((left - left.mean()) ** 2).sum()
    )


@pytest.mark.parametrize("swapped", [False, True], ids=["a, b", "b, a"])
def test_figures_are_the_definitions(a: Engine, b: Engine, swapped: bool) -> None:
    first, second = (b, a) if swapped else (a, b)
    result = compare_models(first, second, [TEXT], CTX)
    p, targets = scored(first)
    q, _ = scored(second)
    at = np.arange(len(targets)), targets
    # llama-perplexity leaves out what the base gives less than e**-16.
    kl = np.where(p > -16, np.exp(p) * (p - q), 0).sum(-1)
    assert result.divergence is not None
    assert result.kl is not None
    assert result.differing is None
    assert result.kl == pytest.approx(kl, abs=1e-5)
    assert result.divergence.kl == Estimate(
        pytest.approx(kl.mean(), 1e-5), pytest.approx(kl.std() / np.sqrt(len(kl) - 1), 1e-4)
    )
    assert result.divergence.same_top.value == (p.argmax(-1) == q.argmax(-1)).mean()
    assert result.divergence.log_ratio.value == pytest.approx((p[at] - q[at]).mean(), 1e-5)
    assert result.a.perplexity.ppl.value == pytest.approx(np.exp(-p[at].mean()), 1e-6)
    assert result.b.perplexity.ppl.value == pytest.approx(np.exp(-q[at].mean()), 1e-6)
    assert result.b.perplexity.ppl == result.divergence.ppl
    (bits_a, error_a), (bits_b, _) = bits_per_byte(first), bits_per_byte(second)
    assert result.a.bits_per_byte.value == pytest.approx(bits_a, 1e-6)
    assert result.a.bits_per_byte.error == pytest.approx(error_a, 0.02)  # both are of first order
    assert result.b.bits_per_byte.value == pytest.approx(bits_b, 1e-6)
    assert result.bits_per_byte_difference.value == pytest.approx(bits_b - bits_a, 1e-5)


def test_the_divergence_is_that_from_a_base_file(a: Engine, b: Engine, tmp_path: Path) -> None:
    result = compare_models(a, b, [TEXT], CTX).divergence
    tokens = a.tokenizer.encode(TEXT)
    with (tmp_path / "base").open("wb") as out:
        writer = KlBaseWriter(out, tokens, CTX, tiny_model.VOCABULARY)
        measure_perplexity(a, cut_windows(tokens, CTX, None), writer)
    based = measure_divergence(b, KlBase(tmp_path / "base"), None)
    assert result is not None
    assert result.tokens == based.tokens
    assert result.kl.value == pytest.approx(based.kl.value, abs=3e-4)  # a step of the file
    assert result.same_top == based.same_top


def test_a_model_beside_itself_differs_by_nothing_at_all(a: Engine, paths: dict[str, Path]) -> None:
    result = compare_models(a, load(paths["a"]), [TEXT], CTX)
    assert result.kl is not None
    assert result.divergence is not None
    assert not result.kl.any()
    nothing = Estimate(0.0, 0.0)
    assert (
        result.divergence.kl == result.divergence.delta_p == result.divergence.log_ratio == nothing
    )
    assert result.divergence.same_top == Estimate(1.0, 0.0)
    assert result.bits_per_byte_difference == nothing


def test_texts_are_cut_each_for_itself(a: Engine, b: Engine) -> None:
    half = len(TEXT) // 2
    texts = [TEXT[:half], TEXT[half:]]
    alone = [compare_models(a, b, [t], CTX, 2) for t in texts]
    seen: list[tuple[int, int]] = []
    result = compare_models(a, b, texts, CTX, 2, lambda *done: seen.append(done))
    assert result.a.nll.tolist() == [*alone[0].a.nll, *alone[1].a.nll]
    assert seen == [(i, 4) for i in range(1, 5)]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("renamed", "token 280 is 'filler22' in A, 'other' in B"),
        ("cut", "text 1 is cut otherwise from token"),
        ("larger", "A has 300 tokens, B 304"),
    ],
)
def test_other_tokens_leave_bits_per_byte(
    a: Engine, paths: dict[str, Path], name: str, message: str
) -> None:
    other = load(paths[name])
    result = compare_models(a, other, [TEXT], CTX)
    assert result.divergence is None
    assert result.kl is None
    assert message in str(result.differing)
    values = [bits_per_byte(e) for e in (a, other)]
    assert result.a.bits_per_byte.value == pytest.approx(values[0][0], 1e-6)
    assert result.b.bits_per_byte.value == pytest.approx(values[1][0], 1e-6)
    difference = result.bits_per_byte_difference
    assert difference.value == pytest.approx(values[1][0] - values[0][0], 1e-5)
    assert difference.error == pytest.approx(np.hypot(values[0][1], values[1][1]), 0.02)


def test_a_short_text_is_refused(a: Engine, b: Engine) -> None:
    with pytest.raises(RequestError, match="windows of 32 need at least 64"):
        compare_models(a, b, [TEXT, "ab"], CTX)


def test_speed_is_compared_round_by_round() -> None:
    memory = MemoryEstimate(*[1] * 9, kv_type=None)
    a, b = (
        Side("m", "m", None, 1, 1, memory, [rates])
        # The machine was half as fast in the second round, for both.
        for rates in ([8.0, 4.0, 8.0], [16.0, 8.0, 16.0])
    )
    report = Report(a, b, ["tg1"], Comparison(*[None] * 5), [], 1, {}, "cpu")  # type: ignore[arg-type]
    assert report.speedup(0) == Estimate(pytest.approx(2.0), pytest.approx(0.0, abs=1e-12))


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    return path


QUICK = ["-c", str(CTX), "-p", "8", "-n", "4", "-r", "2"]


def compare(*arguments: object) -> int:
    return _run(["compare", *map(str, arguments)])


def test_the_page_has_the_figures_of_the_json(
    paths: dict[str, Path], text: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib", reason="plots need the bench extra")
    out = tmp_path / "a page.md"
    assert compare(paths["a"], paths["b"], "-f", text, *QUICK, "-o", out, "--json") == 0
    found = json.loads(capfd.readouterr().out)
    page = out.read_text()
    for key in ("ppl", "bits_per_byte"):
        cells = [f"{found[s][key]['value']:.4f} ± {found[s][key]['error']:.4f}" for s in "ab"]
        beside = found["divergence"]["ratio"] if key == "ppl" else found["bits_per_byte_difference"]
        cells.append(f"{beside['value']:{'' if key == 'ppl' else '+'}.4f} ± {beside['error']:.4f}")
        assert "| " + " | ".join(cells) in page
    assert f"| KL divergence, mean | {found['divergence']['kl']['value']:.6f} ± " in page
    assert f"| {100 * found['divergence']['same_top']['value']:.3f} ± " in page
    assert [len(found[s]["tok_s"]["tg4"]["rounds"]) for s in "ab"] == [2, 2]
    estimate = oxibonsai.estimate_memory(paths["b"], ctx=CTX)
    assert found["b"]["memory"]["total"] == estimate.total
    assert re.search(r"\| pp8, tok/s \| .* x \|", page)
    assert "(a%20page.svg)" in page
    root = ET.parse(tmp_path / "a page.svg").getroot()
    assert root.tag.endswith("svg")
    assert {p.suffix for p in tmp_path.iterdir()} == {".md", ".svg", ".txt"}


def test_other_tokens_are_told_in_a_sentence(
    paths: dict[str, Path], text: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "page.md"
    line = [paths["a"], paths["larger"], "-f", text, "-c", CTX, "-p", 0, "-n", 0]
    assert compare(*line, "-o", out, "--no-plots") == 0
    sentence = (
        "No KL divergence and no top-1 agreement: the vocabularies differ: A has 300 tokens, B 304."
    )
    assert sentence in out.read_text()
    shown = capfd.readouterr().out
    assert sentence in shown
    assert "bits per byte" in shown
    assert "tok/s" not in shown
    assert [p.name for p in tmp_path.iterdir() if p.suffix == ".svg"] == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--file"),
        (["-f", "ABSENT"], "cannot read the text"),
        (["-f", "TEXT", "-c", "300", "-n", "0", "-p", "0"], "windows of 300 need at least 600"),
        (["-f", "TEXT", "-p", "600"], "has a context of 512 positions, 601 are to be measured"),
        (["-f", "TEXT", "-r", "1"], "--repetitions is 1"),
        (["-f", "TEXT", "-o", "-"], "give --no-plots"),
        (["-f", "TEXT", "-o", "page.svg"], "give --no-plots"),
    ],
)
def test_errors_are_one_line(
    arguments: list[str], message: str, paths: dict[str, Path], text: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    if "-o" in arguments:
        pytest.importorskip("matplotlib", reason="plots need the bench extra")
    monkeypatch.chdir(tmp_path)
    places = {"TEXT": text, "ABSENT": tmp_path / "absent"}
    assert compare(paths["a"], paths["b"], *[places.get(x, x) for x in arguments]) == 2
    said = capfd.readouterr()
    *before, last = said.err.splitlines()
    assert message in last
    assert all(line.startswith("warning: ctx_size is 601") for line in before)
    assert said.out == ""
    assert [p.name for p in tmp_path.iterdir()] == [text.name]


def test_plots_without_matplotlib_are_refused_before_the_work(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda *_: None)
    assert compare("absent.gguf", "absent.gguf", "-f", text, "-o", tmp_path / "page.md") == 2
    assert "pip install 'oxibonsai[bench]'" in capfd.readouterr().err
