"""The base file: llama.cpp's layout to the byte, and files that lie."""

from __future__ import annotations

import io
import struct
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oxibonsai.errors import FormatError, RequestError
from oxibonsai.evaluate import KlBase, KlBaseWriter, base_bytes
from oxibonsai.evaluate.kl_base import quantize

CTX, VOCABULARY, WINDOWS = 7, 5, 2  # three scored positions a window, one word of padding each
TOKENS = [i % VOCABULARY for i in range(CTX * WINDOWS)]
HEADER_BYTES = 20
RECORD_BYTES = 2 * (4 + VOCABULARY + 1)


def rows() -> np.ndarray:
    random = np.random.default_rng(3)
    return random.normal(0, 2, (WINDOWS * 3, VOCABULARY)).astype(np.float32)


def whole_base() -> bytes:
    out = io.BytesIO()
    writer = KlBaseWriter(out, TOKENS, CTX, VOCABULARY)
    for row in rows():
        writer.add(row)
    return out.getvalue()


def read_all(path: Path) -> list[np.ndarray]:
    base = KlBase(path)
    return [row for chunk in range(base.chunks) for row in base.log_probs(chunk)]


def log_softmax(row: np.ndarray) -> np.ndarray:
    row = row.astype(np.float64)
    return row - np.log(np.exp(row).sum())


def test_the_layout_by_hand(tmp_path: Path) -> None:
    out = io.BytesIO()
    writer = KlBaseWriter(out, [2, 0, 1], 3, 3)
    # Probabilities 1/2, 1/4, 1/4: the range log 2 is cut into 65535 steps.
    writer.add(np.log(np.array([2, 1, 1], np.float32)))
    scale, lowest = np.float32(np.log(np.float32(2)) / np.float32(65535)), np.log(0.25)
    data = out.getvalue()
    assert data[:32] == b"_logits_" + struct.pack("<Iii", 3, 3, 1) + struct.pack("<3i", 2, 0, 1)
    assert struct.unpack("<2f", data[32:40]) == pytest.approx((scale, lowest), rel=1e-6)
    assert struct.unpack("<4H", data[40:]) == (65535, 0, 0, 0)
    assert len(data) == base_bytes(3, 3, 1)


def test_what_is_written_is_read_within_half_a_step(tmp_path: Path) -> None:
    path = tmp_path / "base"
    path.write_bytes(whole_base())
    base = KlBase(path)
    assert (base.ctx_size, base.vocab_size, base.chunks) == (CTX, VOCABULARY, WINDOWS)
    assert base.tokens.tolist() == TOKENS
    for row, kept in zip(rows(), read_all(path), strict=True):
        step = (row.max() - row.min()) / 65535
        np.testing.assert_allclose(kept, log_softmax(row), rtol=0, atol=step / 2 + 1e-6)


def test_what_lies_deeper_than_sixteen_is_kept_as_the_lowest() -> None:
    record = quantize(np.array([0.0, -8.0, -16.0, -40.0, -np.inf], np.float32))
    assert record[4:9].tolist() == [65535, 32768, 0, 0, 0]


def test_equal_logits_have_no_scale() -> None:
    record = quantize(np.full(4, 7.0, np.float32))
    scale, lowest = record[:4].view("<f4")
    assert scale == 0.0
    assert lowest == pytest.approx(-np.log(4.0))
    assert not record[4:].any()


@pytest.mark.parametrize("length", range(len(whole_base())))
def test_every_truncation_is_refused(length: int, tmp_path: Path) -> None:
    path = tmp_path / "base"
    path.write_bytes(whole_base()[:length])
    with pytest.raises(FormatError):
        KlBase(path)


@pytest.mark.parametrize(
    ("offset", "replacement", "message"),
    [
        (0, b"_logitz_", "does not begin with _logits_"),
        (0, b"GGUF", "does not begin with _logits_"),
        (8, struct.pack("<I", 0), "claims 2 windows of 0 tokens"),
        (8, struct.pack("<I", 2), "claims 2 windows of 2 tokens"),
        (8, struct.pack("<I", 2**32 - 1), "its header asks for"),
        (12, struct.pack("<i", 0), "over a vocabulary of 0"),
        (12, struct.pack("<i", -5), "over a vocabulary of -5"),
        (12, struct.pack("<i", 2**31 - 1), "its header asks for"),
        (16, struct.pack("<i", 0), "claims 0 windows"),
        (16, struct.pack("<i", -1), "claims -1 windows"),
        (16, struct.pack("<i", 2**31 - 1), "its header asks for"),
        (8, struct.pack("<Iii", 2**32 - 1, 2**31 - 1, 2**31 - 1), "its header asks for"),
        (HEADER_BYTES + 8, struct.pack("<i", VOCABULARY), "token 5 at index 2 is outside"),
        (HEADER_BYTES + 8, struct.pack("<i", -1), "token -1 at index 2 is outside"),
    ],
)
def test_a_header_that_lies_is_refused(
    offset: int, replacement: bytes, message: str, tmp_path: Path
) -> None:
    data = bytearray(whole_base())
    data[offset : offset + len(replacement)] = replacement
    path = tmp_path / "base"
    path.write_bytes(data)
    with pytest.raises(FormatError, match=message):
        KlBase(path)


def test_bytes_after_the_end_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "base"
    path.write_bytes(whole_base() + b"\0")
    with pytest.raises(FormatError, match="its header asks for"):
        KlBase(path)


@pytest.mark.parametrize(
    "pair",
    [(np.nan, -1.0), (-1e-4, -1.0), (np.inf, -1.0), (0.0, np.nan), (0.0, np.inf), (1e30, 0.0),
     (0.0, -30.0), (0.0, 3e38)],
)  # fmt: skip
def test_a_record_that_is_no_distribution_is_refused(
    pair: tuple[float, float], tmp_path: Path
) -> None:
    data = bytearray(whole_base())
    second = HEADER_BYTES + 4 * len(TOKENS) + 4 * RECORD_BYTES
    data[second : second + 8] = struct.pack("<2f", *pair)
    path = tmp_path / "base"
    path.write_bytes(data)
    with pytest.raises(FormatError, match=r"window 1, record 1 sum to"):
        read_all(path)


def test_a_base_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    for path in (tmp_path / "absent", tmp_path):
        with pytest.raises(RequestError, match="cannot read the base"):
            KlBase(path)


@given(st.integers(0, len(whole_base()) - 1), st.binary(min_size=1, max_size=24))
def test_any_change_gives_distributions_or_an_error(
    tmp_path_factory: pytest.TempPathFactory, offset: int, change: bytes
) -> None:
    data = bytearray(whole_base())
    data[offset : offset + len(change)] = change
    path = tmp_path_factory.mktemp("base") / "base"
    path.write_bytes(data)
    with suppress(FormatError):
        for row in read_all(path):
            assert np.isfinite(row).all()
