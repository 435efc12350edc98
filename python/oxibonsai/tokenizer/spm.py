"""SentencePiece BPE (``tokenizer.ggml.model`` = ``llama``) with byte fallback.

Neighbouring symbols merge, best score first, wherever their joint text is a token. A merge list, as
the `tokenizers` library wants it, can't say this exactly: a symbol need not be a token itself.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Generator, Iterable, Iterator, Sequence
from functools import cache, lru_cache

from oxibonsai.errors import FormatError
from oxibonsai.tokenizer.pieces import pieces
from oxibonsai.tokenizer.vocabulary import BYTE, Metadata, Vocabulary

_SPACE = "\u2581"
_LONGEST_KEPT = 64  # characters of a word whose tokens are remembered
_WORDS_KEPT = 1 << 15
# Characters before which a long text may be cut, after one that no token has there.
_ENDS = "\t\n\r !\"'(),.:;?[]" + _SPACE + "\u3001\u3002\u300c\u300d\uff01\uff0c\uff1a\uff1b\uff1f"
_TOKENS_AT_ONCE = 1024
_STEPS = 1024  # merges between two signs of life
_BYTE_TOKEN = re.compile(r"^<0x([0-9A-Fa-f]{2})>$")


class SpmBpe:
    """Merges characters by score."""

    composes = False

    def __init__(self, vocabulary: Vocabulary, metadata: Metadata) -> None:
        if len(vocabulary.scores) != len(vocabulary.texts):
            raise FormatError("tokenizer.ggml.scores is missing: SPM needs one for each token")
        prefix = metadata.get("tokenizer.ggml.add_space_prefix", True)
        if not isinstance(prefix, bool):
            raise FormatError(f"tokenizer.ggml.add_space_prefix is {prefix!r}, not true or false")
        self.add_space_prefix = prefix
        self._ids = {t: i for i, t in enumerate(vocabulary.texts)}
        self._scores = vocabulary.scores
        self._unknown = vocabulary.unk_id
        self._bytes = byte_tokens(vocabulary)
        # A space is counted as the three bytes of the character that stands for it.
        self.longest_piece = max(len(t.encode("utf-8", "surrogateescape")) for t in self._ids)
        keeps_all = len(self._bytes) == 256 or self._unknown is not None
        self.lost_bytes: bytes | None = b"" if keeps_all else None
        self._joined = joined_to(_SPACE, self._ids)
        self._border = cache(lambda: token_border(self._ids, _SPACE))
        self._kept_ids = lru_cache(_WORDS_KEPT)(self._word_ids)

    def encode_text(
        self, text: str, *, after_special: bool, bounded: bool
    ) -> Iterator[Sequence[int]]:
        """Yield ids of a text without special tokens, piece by piece; none now and then in a long word.

        Args:
            text: Any text.
            after_special: Whether it starts the input or follows a special token: then a space is
                put in front, where the vocabulary asks for one.
            bounded: See :func:`oxibonsai.tokenizer.pieces.pieces`.
        """
        if self.add_space_prefix and after_special:
            text = " " + text
        for piece in pieces(text, self._border, bounded=bounded):
            ids: list[int] = []
            for word in self._words(piece.replace(" ", _SPACE)):
                if len(word) <= _LONGEST_KEPT:
                    ids += self._kept_ids(word)
                else:
                    yield ids
                    symbols = yield from self._merge(word)
                    ids = self._ids_of(symbols)
                if len(ids) >= _TOKENS_AT_ONCE:
                    yield ids
                    ids = []
            yield ids

    def _words(self, text: str) -> Iterator[str]:
        """Yield the parts of a text that no token joins: each is merged as if it were alone."""
        start = 0
        at = text.find(_SPACE, 1)
        while at > 0:
            if text[at - 1] not in self._joined:
                yield text[start:at]
                start = at
            at = text.find(_SPACE, at + 1)
        yield text[start:]

    def _word_ids(self, word: str) -> tuple[int, ...]:
        steps = self._merge(word)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return tuple(self._ids_of(end.value))

    def _ids_of(self, symbols: list[str]) -> list[int]:
        ids: list[int] = []
        for symbol in symbols:
            known = self._ids.get(symbol)
            if known is not None:
                ids.append(known)
            else:
                ids.extend(self._fall_back(symbol))
        return ids

    def _merge(self, text: str) -> Generator[tuple[int, ...], None, list[str]]:
        """Merge symbols: the best score first, the leftmost of equals.

        Yields:
            Nothing, now and then.
        """
        symbols: list[str | None] = list(text)
        after = list(range(1, len(text) + 1))
        before = list(range(-1, len(text) - 1))
        queue: list[tuple[float, int, int, str]] = []

        def propose(left: int, right: int) -> None:
            if left < 0 or right >= len(symbols):
                return
            joint = f"{symbols[left]}{symbols[right]}"
            token = self._ids.get(joint)
            if token is not None:
                heapq.heappush(queue, (-self._scores[token], left, right, joint))

        for i in range(len(symbols) - 1):
            propose(i, i + 1)
            if i % _STEPS == _STEPS - 1:
                yield ()
        steps = 0
        while queue:
            steps += 1
            if steps % _STEPS == 0:
                yield ()
            _, left, right, joint = heapq.heappop(queue)
            # Stale where one side has changed since.
            if symbols[left] is None or symbols[right] is None or after[left] != right:
                continue
            if f"{symbols[left]}{symbols[right]}" != joint:
                continue
            symbols[left], symbols[right] = joint, None
            after[left] = after[right]
            if after[left] < len(symbols):
                before[after[left]] = left
            propose(before[left], left)
            propose(left, after[left])
        return [s for s in symbols if s is not None]

    def _fall_back(self, piece: str) -> list[int]:
        """Return a symbol outside the vocabulary as the tokens of its bytes."""
        ids = [self._bytes.get(b, self._unknown) for b in piece.encode()]
        return [i for i in ids if i is not None]

    @staticmethod
    def piece_bytes(text: str) -> bytes:
        """Return the bytes that a normal token stands for."""
        return text.replace(_SPACE, " ").encode("utf-8", "surrogateescape")


def joined_to(character: str, texts: Iterable[str]) -> frozenset[str]:
    """Return the characters that some token has right before this one."""
    inside = (t for t in texts if t.find(character, 1) > 0)
    return frozenset(t[i] for t in inside for i in range(len(t) - 1) if t[i + 1] == character)


def token_border(texts: Iterable[str], space: str = " ") -> re.Pattern[str]:
    """Match between two characters that no token joins, in a text whose spaces are spaces.

    Args:
        texts: The tokens'.
        space: How they write one.
    """
    found = re.compile(f"[{re.escape(_ENDS)}]")
    inside = [t for t in texts if found.search(t, 1)]
    ways = []
    for end in _ENDS:
        joined = "".join(joined_to(space if end == " " else end, inside))
        kept = joined + (" " if space in joined else "")
        before = f"(?<=[^{re.escape(kept)}])" if kept else "(?<=.)"
        ways.append(f"{before}(?={re.escape(end)})")
    return re.compile("|".join(ways), re.DOTALL)


def byte_of(text: str) -> int | None:
    """Return the value of a byte token ``<0xNN>``."""
    match = _BYTE_TOKEN.match(text)
    return None if match is None else int(match[1], 16)


def byte_tokens(vocabulary: Vocabulary) -> dict[int, int]:
    found = {}
    for i, (text, kind) in enumerate(zip(vocabulary.texts, vocabulary.types, strict=True)):
        if kind != BYTE:
            continue
        value = byte_of(text)
        if value is None:
            raise FormatError(f"tokenizer.ggml.tokens[{i}] is {text!r}, no byte token like <0x0A>")
        found[value] = i
    return found
