"""Scores of a tiny model against the definition in float64, and the command around them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import oxibonsai
import tiny_model
from forked import run_oxibonsai
from oxibonsai.engine import Engine
from oxibonsai.errors import FormatError, RequestError
from oxibonsai.evaluate import (
    Estimate,
    KlBase,
    KlBaseWriter,
    cut_windows,
    measure_divergence,
    measure_perplexity,
)
from oxibonsai.evaluate.divergence import compare_rows

CTX = 32
TOKENS = np.random.default_rng(5).integers(0, tiny_model.VOCABULARY, 5 * CTX).tolist()


@pytest.fixture(scope="module")
def engine(tiny_path: Path) -> Engine:
    return oxibonsai.load(tiny_path, ctx_size=64, parallel=1)


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    path = tmp_path_factory.mktemp("other") / "other.gguf"
    tiny_model.write(path, seed=2)
    return oxibonsai.load(path, ctx_size=64, parallel=1)


@pytest.fixture(scope="module")
def base(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> KlBase:
    path = tmp_path_factory.mktemp("base") / "base"
    with path.open("wb") as out:
        writer = KlBaseWriter(out, TOKENS, CTX, tiny_model.VOCABULARY)
        measure_perplexity(engine, cut_windows(TOKENS, CTX, None), writer)
    return KlBase(path)


def log_softmax(logits: np.ndarray) -> np.ndarray:
    logits = logits.astype(np.float64)
    return (
        logits
        - np.log(np.exp(logits - logits.max(-1, keepdims=True)).sum(-1, keepdims=True))
        - (logits.max(-1, keepdims=True))
    )


def scored(engine: Engine) -> tuple[np.ndarray, list[int]]:
    """Log-probabilities after every scored token of the text, and the tokens that follow."""
    rows, targets = [], []
    for start in range(0, len(TOKENS), CTX):
        logits = log_softmax(engine.logits(TOKENS[start : start + CTX]))
        for i in range(CTX // 2, CTX - 1):
            rows.append(logits[i])
            targets.append(TOKENS[start + i + 1])
    return np.array(rows), targets


def test_blocks_of_logits_are_the_logits(engine: Engine) -> None:
    whole = engine.logits(TOKENS[:60])
    for chunk_size, first in [(7, 0), (64, 13), (1, 58), (16, 16)]:
        blocks = list(engine.iter_logits(TOKENS[:60], chunk_size, first))
        assert max(len(b) for b in blocks) <= chunk_size
        assert np.concatenate(blocks).tobytes() == whole[first:].tobytes()


def test_blocks_that_are_not_read_to_the_end_free_their_pages(engine: Engine) -> None:
    for _ in range(5):
        next(engine.iter_logits(TOKENS[:60], 4))
    assert len(engine.logits(TOKENS[:60])) == 60


@pytest.mark.parametrize(("chunk_size", "first"), [(0, 0), (1, -1), (1, 60)])
def test_blocks_out_of_range_are_refused(engine: Engine, chunk_size: int, first: int) -> None:
    with pytest.raises(RequestError, match="must be"):
        engine.iter_logits(TOKENS[:60], chunk_size, first)


def test_perplexity_is_the_definition(engine: Engine) -> None:
    estimates: list[float] = []
    result = measure_perplexity(
        engine, cut_windows(TOKENS, CTX, None), None, lambda _, ppl: estimates.append(ppl)
    )
    rows, targets = scored(engine)
    nll = -rows[np.arange(len(targets)), targets]
    error = np.sqrt((np.mean(nll**2) - np.mean(nll) ** 2) / (len(nll) - 1))
    assert (result.windows, result.tokens) == (5, 5 * 15)
    assert result.nll == Estimate(pytest.approx(nll.mean(), 1e-6), pytest.approx(error, 1e-5))
    assert result.ppl.value == pytest.approx(np.exp(nll.mean()), 1e-6)
    assert result.ppl.error == pytest.approx(np.exp(nll.mean()) * error, 1e-5)
    assert estimates[0] == pytest.approx(np.exp(nll[:15].mean()), 1e-6)
    assert estimates[-1] == result.ppl.value


def test_strided_windows_score_what_they_say(engine: Engine) -> None:
    result = measure_perplexity(engine, cut_windows(TOKENS, CTX, 7, stride=8, chunks=2))
    nll = []
    for start in (0, 8):
        window = TOKENS[start : start + 36]
        rows = log_softmax(engine.logits([7, *window[1:]]))
        nll += [-rows[i, window[i + 1]] for i in range(27, 35)]
    assert result.nll.value == pytest.approx(np.mean(nll), 1e-6)


def test_divergence_is_the_definition(engine: Engine, other: Engine, base: KlBase) -> None:
    result = measure_divergence(other, base, None)
    p, targets = scored(engine)
    q, _ = scored(other)
    kl = (np.exp(p) * (p - q)).sum(-1)
    at = np.arange(len(targets)), targets
    delta = np.exp(q[at]) - np.exp(p[at])
    # A step of the file is at most 16/65535 nats.
    close = {"abs": 3e-4}
    assert result.tokens == len(targets)
    assert result.kl.value == pytest.approx(kl.mean(), **close)
    assert result.kl.error == pytest.approx(kl.std() / np.sqrt(len(kl) - 1), **close)
    assert result.kl_percentiles["100"] == pytest.approx(kl.max(), **close)
    assert result.kl_percentiles["50"] == pytest.approx(np.median(kl), **close)
    assert result.delta_p.value == pytest.approx(delta.mean(), **close)
    assert result.delta_p_rms.value == pytest.approx(np.sqrt((delta**2).mean()), **close)
    assert result.same_top.value == (p.argmax(-1) == q.argmax(-1)).mean()
    assert result.log_ratio.value == pytest.approx((p[at] - q[at]).mean(), **close)
    assert result.ratio.value == pytest.approx(result.ppl.value / result.base_ppl.value)
    assert result.difference.value == pytest.approx(result.ppl.value - result.base_ppl.value)


def test_a_model_does_not_diverge_from_itself(engine: Engine, base: KlBase) -> None:
    result = measure_divergence(engine, base, None)
    assert abs(result.kl.value) < 1e-5
    assert result.same_top == Estimate(1.0, 0.0)
    assert result.correlation == pytest.approx(1.0)
    assert measure_divergence(engine, base, None, chunks=2).windows == 2


def test_three_tokens_by_hand() -> None:
    base = np.log(np.array([0.5, 0.25, 0.25], np.float32))
    logits = np.log(np.array([1, 1, 2], np.float32))  # 1/4, 1/4, 1/2
    nll, base_nll, kl, same = compare_rows(logits, base, 0)
    assert nll == pytest.approx(np.log(4))
    assert base_nll == pytest.approx(np.log(2))
    assert kl == pytest.approx(0.5 * np.log(2) - 0.25 * np.log(2))
    assert not same


def test_a_base_of_another_vocabulary_is_refused(engine: Engine, tmp_path: Path) -> None:
    path = tmp_path / "base"
    with path.open("wb") as out:
        writer = KlBaseWriter(out, [0, 1, 2], 3, 7)
        writer.add(np.zeros(7, np.float32))
    with pytest.raises(RequestError, match="a model with 7 tokens, this one has 300"):
        measure_divergence(engine, KlBase(path), None)


def test_logits_that_are_no_numbers_are_refused() -> None:
    def blocks(*_: Any) -> Iterator[np.ndarray]:
        yield np.full((1, 4), np.nan, np.float32)

    broken: Any = SimpleNamespace(
        iter_logits=blocks, model=SimpleNamespace(config=SimpleNamespace(vocab_size=4))
    )
    with pytest.raises(FormatError, match="no finite numbers"):
        measure_perplexity(broken, cut_windows([0] * 6, 3, None))


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("ab bridge over troubled water, said the fish. " * 6)
    return path


def test_the_command_measures_saves_and_compares(
    tiny_path: Path, text: Path, tmp_path: Path
) -> None:
    base = tmp_path / "base.kld"
    common = ["perplexity", "-m", tiny_path, "--json"]
    done = run_oxibonsai(*common, "-f", text, "-c", 32, "--save-kl-base", base)
    first = json.loads(done.stdout)
    assert (first["ctx_size"], first["tokens"]) == (32, first["windows"] * 15)
    second = json.loads(run_oxibonsai(*common, "-f", text, "--kl-base", base).stdout)
    assert second["ppl"] == first["ppl"]
    assert second["kl"]["value"] < 1e-5
    assert second["ctx_size"] == 32
    one = json.loads(run_oxibonsai(*common, "--kl-base", base, "--chunks", 1).stdout)
    assert one["windows"] == 1
    assert [p.name for p in tmp_path.iterdir() if p.suffix == ".part"] == []
    plain = run_oxibonsai("perplexity", "-m", tiny_path, "--kl-base", base).stdout
    assert "same top token" in plain
    assert "100.000 ± 0.000 %" in plain
    plain = run_oxibonsai("perplexity", "-m", tiny_path, "-f", text, "-c", 32).stdout
    assert plain.startswith("PPL = ")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["-f", "TEXT"], 2, "windows of 512 need at least 1024"),
        ([], 2, "name a file with --file"),
        (["-f", "ABSENT"], 2, "cannot read the text"),
        (["-f", "BINARY"], 2, "not UTF-8 text (byte 1)"),
        (["--kl-base", "TEXT"], 3, "no base of log-probabilities"),
        (["--kl-base", "ABSENT"], 2, "cannot read the base"),
        (["--kl-base", "BASE", "-c", "16"], 2, "has windows of 3 tokens, not 16"),
        (["--kl-base", "BASE", "-f", "TEXT"], 2, "made of another text"),
        (["--kl-base", "BASE", "--stride", "4"], 2, "--stride does not go with"),
        (["--kl-base", "BASE", "--save-kl-base", "B"], 2, "give one of"),
        (["-f", "TEXT", "-c", "32", "--save-kl-base", "NOWHERE"], 2, "cannot write"),
    ],
)
def test_errors_are_one_line(
    arguments: list[str], code: int, message: str, tiny_path: Path, text: Path, tmp_path: Path
) -> None:
    (tmp_path / "binary").write_bytes(b"a\xff")
    with (tmp_path / "base").open("wb") as out:
        KlBaseWriter(out, [0, 1, 2], 3, 300).add(np.zeros(300, np.float32))
    places = {
        "TEXT": text,
        "ABSENT": tmp_path / "absent",
        "BINARY": tmp_path / "binary",
        "BASE": tmp_path / "base",
        "NOWHERE": tmp_path / "no" / "base",
    }
    done = run_oxibonsai("perplexity", "-m", tiny_path, *[places.get(a, a) for a in arguments])
    assert message in done.stderr
    assert done.returncode == code
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_windows_longer_than_the_context_are_refused(
    tiny_path: Path, text: Path, tmp_path: Path
) -> None:
    tiny_model.write(tmp_path / "m.gguf", changes={"qwen3.context_length": (16, "u32")})
    base = tmp_path / "base"
    run_oxibonsai("perplexity", tiny_path, "-f", text, "-c", 24, "--save-kl-base", base)
    beyond = "windows of 24 tokens are more than the model's context of 16: "
    for arguments, advice in (
        (["-f", text, "-c", 24], "give a smaller --ctx-size\n"),
        (["-f", text, "-c", 16, "--stride", 15], "give a smaller --ctx-size or --stride"),
        (["--kl-base", base], f"make {base} with a smaller --ctx-size"),
    ):
        done = run_oxibonsai("perplexity", tmp_path / "m.gguf", *arguments)
        assert done.returncode == 2
        assert (
            beyond.replace("24", "23" if "--stride" in arguments else "24") + advice in done.stderr
        )


def test_a_result_is_plain_values(engine: Engine, base: KlBase) -> None:
    json.dumps(asdict(measure_divergence(engine, base, None, chunks=1)))
