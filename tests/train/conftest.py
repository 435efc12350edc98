"""Fixtures of training: a tokenizer, texts, and the settings of a run of seconds."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="training needs torch (extra train)")
pytest.importorskip("transformers", reason="training needs transformers (extra train)")

import small_texts

from oxibonsai.train import NetworkShape, Sources


@pytest.fixture(scope="session")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Sources:
    """Texts to learn, texts to measure, and their tokenizer."""
    folder = tmp_path_factory.mktemp("texts")
    return Sources(
        texts=small_texts.write_texts(folder / "texts.jsonl", 200, seed=1),
        tokenizer=small_texts.write_tokenizer(folder / "tokenizer"),
        held_out=small_texts.write_texts(folder / "held_out.jsonl", 20, seed=2),
    )


@pytest.fixture(scope="session")
def shape() -> NetworkShape:
    """The smallest that every format divides."""
    return NetworkShape(hidden_size=128, layers=1, heads=2, kv_heads=1, head_dim=64, ffn_size=128)
