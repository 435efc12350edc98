"""Tokens that are found in a text as they stand, before anything else is made of it."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from functools import lru_cache

_WINDOW = 1 << 20  # characters that one search looks through
_STEPS = 4096  # places looked at between two signs of life


class Atoms:
    """Cuts a text at them, the longest first: where two overlap, the longer one is taken.

    Args:
        atoms: Texts and ids; of equal texts the first counts.
    """

    def __init__(self, atoms: Iterable[tuple[str, int]]) -> None:
        self._ids: dict[str, int] = {}
        for text, token in atoms:
            if text:
                self._ids.setdefault(text, token)
        self._sorted = sorted(self._ids)
        lengths: dict[str, set[int]] = {}
        for text in self._ids:
            lengths.setdefault(text[:2], set()).add(len(text))
        # By the first two characters, the longest first.
        self._lengths = {head: sorted(found, reverse=True) for head, found in lengths.items()}
        firsts = sorted({text[0] for text in self._ids})
        self._first = re.compile(f"[{''.join(map(re.escape, firsts))}]") if firsts else None
        self._is_certain = lru_cache(1 << 14)(self._find_certain)

    def cut(self, text: str) -> Iterator[str | int]:
        """Yield the ids of atoms and the texts between; an empty text now and then in a long search."""
        start = 0
        for at, size in self._occurrences(text):
            if size == 0:
                yield ""
            elif at >= start:
                atom = text[at : at + size]
                if not self._is_certain(atom) and self._is_disputed(text, at, atom):
                    yield from self._longest_first(text[start:])
                    return
                if at > start:
                    yield text[start:at]
                yield self._ids[atom]
                start = at + size
        if start < len(text):
            yield text[start:]

    def _occurrences(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield where atoms begin and the length of the longest there; length 0: nothing for long."""
        if self._first is None:
            return
        at = steps = 0
        while at < len(text):
            found = self._first.search(text, at, at + _WINDOW)
            steps += 1
            if found is None:
                at += _WINDOW
                continue
            size = self._longest(text, found.start())
            if size or steps % _STEPS == 0:
                yield found.start(), size
            at = found.start() + max(size, 1)

    def _longest(self, text: str, at: int) -> int:
        for size in self._lengths.get(text[at : at + 2], ()):
            if text[at : at + size] in self._ids:
                return size
        return 1 if text[at] in self._ids else 0

    def _find_certain(self, atom: str) -> bool:
        """Return whether no other atom that is as long or longer can begin inside of this one."""
        for i in range(1, len(atom)):
            rest = atom[i:]
            for other in self._sorted[bisect_left(self._sorted, rest) :]:
                if not other.startswith(rest):
                    break
                if len(other) >= len(atom) and other != atom:
                    return False
        return True

    def _is_disputed(self, text: str, at: int, atom: str) -> bool:
        """Return whether another atom that is as long or longer does begin inside of this one."""
        for i in range(at + 1, at + len(atom)):
            size = self._longest(text, i)
            if size >= len(atom) and text[i : i + size] != atom:
                return True
        return False

    def _longest_first(self, text: str) -> list[str | int]:
        """Return the definition, atom by atom."""
        parts: list[str | int] = [text] if text else []
        for atom, token in sorted(self._ids.items(), key=lambda a: -len(a[0])):
            if atom not in text:
                continue
            cut: list[str | int] = []
            for part in parts:
                if isinstance(part, int):
                    cut.append(part)
                    continue
                for i, piece in enumerate(part.split(atom)):
                    if i > 0:
                        cut.append(token)
                    if piece:
                        cut.append(piece)
            parts = cut
        return parts
