"""Texts cut into pieces, in every way."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import strategies as st


def pieces(text: str, cuts: list[int]) -> list[str]:
    edges = [0, *sorted(c % (len(text) + 1) for c in cuts), len(text)]
    return [text[a:b] for a, b in pairwise(edges)]


any_cuts = st.lists(st.integers(0, 1 << 20), max_size=12)
