"""Texts as sequences: the batch of a step depends on the seed and the step alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from oxibonsai.errors import FormatError, RequestError
from oxibonsai.train import Sources
from oxibonsai.train.data import TrainTokenizer, Windows, in_order, read_texts


def test_every_text_stands_between_ends(sources: Sources) -> None:
    tokenizer = TrainTokenizer(sources.tokenizer)
    tokens = tokenizer.tokens(sources.texts)
    assert tokens[0] == tokens[-1] == tokenizer.eos
    assert int((tokens == tokenizer.eos).sum()) == 201


def test_a_step_has_the_same_batch_whatever_came_before() -> None:
    tokens = np.arange(1000)
    through, straight = (Windows(tokens, 16, batch=4, seed=5) for _ in range(2))
    batches = [through.batch(step) for step in range(40)]
    assert torch.equal(straight.batch(33), batches[33])
    assert not torch.equal(Windows(tokens, 16, batch=4, seed=6).batch(33), batches[33])


def test_a_pass_has_each_token_once_as_input() -> None:
    windows = Windows(np.arange(16 * 20 + 1), 16, batch=19, seed=5)
    first, second = windows.batch(0), windows.batch(1)
    for batch in (first, second):
        inputs = batch[:, :-1].flatten()
        assert len(set(inputs.tolist())) == 19 * 16
        assert torch.equal(batch[:, 1:], batch[:, :-1] + 1)
    assert not torch.equal(first, second)


def test_measured_texts_are_scored_once() -> None:
    batches = in_order(np.arange(16 * 5 + 4), 16, batch=2)
    assert [len(b) for b in batches] == [2, 2, 1]
    assert torch.cat([b[:, 1:].flatten() for b in batches]).tolist() == list(range(1, 81))


def test_too_few_tokens_are_refused() -> None:
    with pytest.raises(RequestError, match="17 tokens, too few for sequences of 16"):
        Windows(np.arange(17), 16, batch=1, seed=0)
    with pytest.raises(RequestError, match="16 tokens, too few for sequences of 16"):
        in_order(np.arange(16), 16, batch=1)


@pytest.mark.parametrize("line", ["no JSON", "[1]", '{"texts": "a"}', '{"text": 1}', '"text"'])
def test_a_line_that_is_no_text_is_named(tmp_path: Path, line: str) -> None:
    file = tmp_path / "texts.jsonl"
    file.write_text(f'{{"text": "good"}}\n\n{line}\n')
    with pytest.raises(FormatError, match=r"texts\.jsonl, line 3: expected an object"):
        read_texts(file)


def test_files_that_hold_no_texts_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "texts.jsonl"
    with pytest.raises(RequestError, match="cannot read"):
        read_texts(file)
    file.write_text("\n")
    with pytest.raises(FormatError, match="holds no text"):
        read_texts(file)
    file.write_bytes(b"\xff")
    with pytest.raises(FormatError, match=r"is not UTF-8 text \(byte 0\)"):
        read_texts(file)


def test_a_tokenizer_needs_its_files_and_an_end_of_text(sources: Sources, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"has no tokenizer\.json"):
        TrainTokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_bytes((sources.tokenizer / "tokenizer.json").read_bytes())
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": "<end>"}')
    with pytest.raises(FormatError, match="eos_token is '<end>', which is no token"):
        TrainTokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(FormatError, match="cannot read the tokenizer"):
        TrainTokenizer(tmp_path)
