"""Which tokens count, and what stands before them."""

from __future__ import annotations

from pathlib import Path

import pytest

import tiny_model
from oxibonsai.checkpoint import Checkpoint
from oxibonsai.errors import RequestError, UnsupportedError
from oxibonsai.evaluate import Window, cut_windows, text_tokens
from oxibonsai.tokenizer import Tokenizer


def test_the_second_half_of_each_window_counts_but_its_last_token() -> None:
    assert cut_windows(range(1, 18), 8, None) == [
        Window((1, 2, 3, 4, 5, 6, 7, 8), 4, (6, 7, 8)),
        Window((9, 10, 11, 12, 13, 14, 15, 16), 4, (14, 15, 16)),
    ]


def test_an_odd_window_counts_from_its_middle() -> None:
    assert cut_windows(range(6), 3, None)[1] == Window((3, 4, 5), 1, (5,))


def test_a_bos_replaces_the_first_token_of_every_window() -> None:
    windows = cut_windows(range(1, 17), 8, 0)
    assert [w.inputs[:2] for w in windows] == [(0, 2), (0, 10)]
    assert windows[1].targets == (14, 15, 16)


def test_chunks_limit_the_windows() -> None:
    assert len(cut_windows(range(80), 8, None)) == 10
    assert len(cut_windows(range(80), 8, None, chunks=3)) == 3
    assert len(cut_windows(range(80), 8, None, chunks=30)) == 10


def test_a_stride_scores_every_token_after_the_first_window_once() -> None:
    windows = cut_windows(range(32), 8, None, stride=4)
    assert windows[0] == Window(tuple(range(10)), 5, (6, 7, 8, 9))
    assert windows[1] == Window(tuple(range(4, 14)), 5, (10, 11, 12, 13))
    assert [t for w in windows for t in w.targets] == list(range(6, 30))


@pytest.mark.parametrize(
    ("tokens", "size", "options", "message"),
    [
        (15, 8, {}, "the text has 15 tokens; windows of 8 need at least 16"),
        (16, 2, {}, "must be at least 3"),
        (16, 8, {"chunks": 0}, "chunks is 0"),
        (16, 8, {"stride": 0}, "the stride is 0; it must be 1 to 7"),
        (16, 8, {"stride": 8}, "the stride is 8"),
    ],
)
def test_what_makes_no_windows_is_refused(
    tokens: int, size: int, options: dict[str, int], message: str
) -> None:
    with pytest.raises(RequestError, match=message):
        cut_windows(range(tokens), size, None, **options)


def test_one_newline_at_the_end_of_a_text_does_not_count(tiny_path: Path) -> None:
    tokenizer = Tokenizer.from_gguf(Checkpoint(tiny_path).file)
    assert text_tokens(tokenizer, "ab\n\n") == tokenizer.encode("ab\n")
    assert text_tokens(tokenizer, "ab\r\n") == tokenizer.encode("ab\r")


def test_a_tokenizer_that_ends_texts_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "eos.gguf"
    tiny_model.write(path, changes={"tokenizer.ggml.add_eos_token": (True, "bool")})
    tokenizer = Tokenizer.from_gguf(Checkpoint(path).file)
    with pytest.raises(UnsupportedError, match="end-of-text token"):
        text_tokens(tokenizer, "ab")
