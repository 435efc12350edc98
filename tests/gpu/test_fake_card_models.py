"""Models of many structures over the emulated card: every op that they use has the CPU's bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import oxibonsai
from native_build import needs_compiler
from oxibonsai import UnsupportedError
from oxibonsai.convert.language_model import convert
from oxibonsai.devices import open_device

pytest.importorskip("transformers", reason="needs transformers and torch (extra: test)")
import encoder_models
from device_models import DENSE, EXPERTS, RECURRENT, REMOTE, logits, write
from seq2seq_runs import Runs

pytestmark = [pytest.mark.slow, pytest.mark.hf, needs_compiler]

# The last layers read keys and values of earlier ones, so that one device must have both.
SHARING = ("gemma4-shared",)


@pytest.mark.parametrize("dtype", ["f32", "q8_0"])
@pytest.mark.parametrize("name", [*DENSE, *EXPERTS, *RECURRENT])
def test_logits_have_the_cpus_bytes(card: Any, name: str, dtype: str, tmp_path: Path) -> None:
    check_logits(write(name, tmp_path, dtype), shares=name in SHARING)


@pytest.mark.parametrize("name", REMOTE)
def test_logits_of_llama_cpps_files_have_the_cpus_bytes(
    card: Any, name: str, tmp_path: Path
) -> None:
    check_logits(write(name, tmp_path))


def check_logits(path: Path, *, shares: bool = False) -> None:
    """All layers on the card, and two of them.

    Args:
        path: Of the model.
        shares: Whether layers share keys and values, so that one device must have all of them.
    """
    wanted = logits(path, "cpu", 21)
    assert logits(path, "cuda", 8) == wanted
    if shares:
        with pytest.raises(UnsupportedError, match="share layer of the cache"):
            logits(path, "cuda", 8, gpu_layers=2)
    else:
        assert logits(path, "cuda", 8, gpu_layers=2) == wanted


ENCODERS = (
    "big-bird",
    "longformer",
    "modern-bert",
    "nomic-bert",
    "t5encoder-gated",
    "bert-classifier",
)


@pytest.mark.parametrize("dtype", ["f32", "q8_0"])
@pytest.mark.parametrize("name", ENCODERS)
def test_embeddings_have_the_cpus_bytes(card: Any, name: str, dtype: str, tmp_path: Path) -> None:
    cases = (*encoder_models.ENCODERS, *encoder_models.CLASSIFIERS)
    encoder_models.save(next(c for c in cases if c.name == name), tmp_path / "model")
    convert(tmp_path / "model", tmp_path / "model.gguf", dtype=dtype)
    texts = [encoder_models.IDS[:n] for n in (90, 1, 33)]

    def embeddings(device: str) -> bytes:
        engine = oxibonsai.load(tmp_path / "model.gguf", device=device, threads=2, parity="off")
        return engine.embed(texts).tobytes()

    assert embeddings("cuda") == embeddings("cpu")


@pytest.mark.parametrize("dtype", ["f32", "q8_0"])
def test_a_decoder_behind_an_encoder_has_the_cpus_bytes(
    card: Any, dtype: str, tmp_path: Path
) -> None:
    encoder_models.save(encoder_models.SEQ2SEQ[0], tmp_path / "model")
    convert(tmp_path / "model", tmp_path / "model.gguf", dtype=dtype)

    def logits(device: str) -> list[bytes]:
        runs = Runs(tmp_path / "model.gguf", open_device(device, 2))
        runs.encode(*(encoder_models.IDS[:n] for n in (70, 1, 33)))  # one is longer than a page
        steps = [
            [(0, 70, 0, 21), (1, 1, 0, 1)],
            [(0, 70, 21, 22), (1, 1, 1, 2), (2, 33, 0, 3)],
            *([(i, n, at + i, at + i + 1) for i, n in ((1, 1), (2, 33))] for at in (1, 2, 3)),
        ]
        return [runs.decode(*spans).tobytes() for spans in steps]

    assert logits("cuda:0") == logits("cpu")
