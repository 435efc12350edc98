"""SentencePiece's table of replacements (``tokenizer.ggml.precompiled_charsmap``).

Layout: uint32 size in bytes of a double array, the array of uint32 units, and after it the
replacements, each ended by a zero byte. The array is a trie over the bytes of what is replaced
(Darts-clone): a unit has its label in bits 0 to 7, whether a value hangs on it in bit 8, and the way to
its children in bits 9 to 30. A value is the offset of a replacement.
"""

from __future__ import annotations

import re

import numpy as np

from oxibonsai.errors import FormatError
from oxibonsai.tokenizer.vocabulary import Metadata

KEY = "tokenizer.ggml.precompiled_charsmap"
_LABEL, _LEAF, _VALUE = 0x8000_00FF, 1 << 8, 0x7FFF_FFFF
_ROOT = 0
_LONGEST = 256  # bytes that are replaced at once


def read_charsmap(metadata: Metadata) -> CharsMap | None:
    """Return the table; None where the file has none.

    Raises:
        FormatError: The table is broken.
    """
    stored = metadata.get(KEY)
    if stored is None:
        return None
    if not isinstance(stored, np.ndarray) or stored.dtype.itemsize != 1 or stored.ndim != 1:
        raise FormatError(f"{KEY} is no list of bytes")
    data = stored.tobytes()
    size = int.from_bytes(data[:4], "little")
    if len(data) < 4 or size % 4 or size == 0 or 4 + size >= len(data):
        raise FormatError(f"{KEY} has {len(data)} bytes, and an array of {size} of them")
    return CharsMap(np.frombuffer(data, dtype="<u4", count=size // 4, offset=4), data[4 + size :])


class CharsMap:
    """Replaces the longest text that the table has at each place.

    Args:
        units: The double array.
        replacements: Texts, each ended by a zero byte.
    """

    def __init__(self, units: np.ndarray, replacements: bytes) -> None:
        self._units: list[int] = units.tolist()
        self._replacements = replacements
        spaces = np.count_nonzero((units & np.uint32(_LABEL)) == 0x20)
        self.replaces_inner_spaces = bool(spaces > (self._step(self._place(_ROOT), 0x20) != 0))
        firsts = "".join(map(re.escape, self._first_characters()))
        self._first = re.compile(f"[{firsts}]") if firsts else None

    def apply(self, text: str) -> str:
        """Return the text with its replacements.

        Raises:
            FormatError: The table leads outside of itself.
        """
        if self._first is None:
            return text
        parts = []
        at = 0
        for found in self._first.finditer(text):
            start = found.start()
            if start < at:
                continue
            size, replacement = self._longest(text[start : start + _LONGEST].encode()[:_LONGEST])
            if size:
                parts += [text[at:start], replacement]
                at = start + size
        return "".join([*parts, text[at:]])

    def _longest(self, data: bytes) -> tuple[int, str]:
        """Return the characters of the longest beginning that the table has, and what replaces it."""
        place = self._place(_ROOT)
        size, value = 0, 0
        for i, label in enumerate(data):
            node = self._step(place, label)
            if node == 0:
                break
            place = self._place(node)
            if self._units[node] & _LEAF:
                if place >= len(self._units):
                    raise FormatError(f"{KEY}: a value at {place} is outside of the array")
                size, value = i + 1, self._units[place] & _VALUE
        return len(data[:size].decode(errors="ignore")), self._replacement(value) if size else ""

    def _replacement(self, offset: int) -> str:
        end = self._replacements.find(b"\0", offset)
        if offset >= len(self._replacements) or end < 0:
            raise FormatError(f"{KEY}: a replacement at {offset} is outside of the table")
        try:
            return self._replacements[offset:end].decode()
        except UnicodeDecodeError as e:
            raise FormatError(f"{KEY}: the replacement at {offset} is no UTF-8") from e

    def _place(self, node: int) -> int:
        """Return where the children of a node are: their labels are XORed with it."""
        unit = self._units[node]
        return node ^ (unit >> 10) << ((unit & 1 << 9) >> 6)

    def _step(self, place: int, label: int) -> int:
        """Return the child with a label; 0 where there is none."""
        node = place ^ label
        found = node < len(self._units) and self._units[node] & _LABEL == label
        return node if found and label else 0

    def _first_characters(self) -> list[str]:
        """Return the characters with which something in the table begins."""
        found = []
        for lead in range(1, 0xF5):
            node = self._step(self._place(_ROOT), lead)
            more = (lead >= 0xC0) + (lead >= 0xE0) + (lead >= 0xF0)
            ways = [(bytes([lead]), node)] if node else []
            for _ in range(more):
                ways = [
                    (key + bytes([label]), after)
                    for key, before in ways
                    for label in range(0x80, 0xC0)
                    if (after := self._step(self._place(before), label))
                ]
            # What is no UTF-8 stands in no text.
            found += [c for key, _ in ways if (c := key.decode(errors="ignore"))]
        return found
