"""Stop strings: where a text ends, found while it is streamed."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import lru_cache

from oxibonsai.errors import RequestError


class _Trie:
    """The automaton of Aho and Corasick (1975): a state is a beginning of some stop string.

    Of the text so far, the state's beginning is the longest that the text ends with.
    """

    def __init__(self, words: Sequence[str]) -> None:
        self.children: list[dict[str, int]] = [{}]
        self.depth = [0]
        self.word = [0]  # one that begins like the state
        self.match: list[int | None] = [None]  # longest one that the state ends with
        for i, word in enumerate(words):
            state = 0
            for char in word:
                state = self.children[state].get(char) or self._add_state(state, char, i)
            if self.match[state] is None:
                self.match[state] = i
        self.fallback = [0] * len(self.depth)  # the longest shorter state that a state ends with
        self._link()

    def _add_state(self, state: int, char: str, word: int) -> int:
        new = len(self.depth)
        self.children[state][char] = new
        self.children.append({})
        self.depth.append(self.depth[state] + 1)
        self.word.append(word)
        self.match.append(None)
        return new

    def _link(self) -> None:
        queue = deque(self.children[0].values())
        while queue:
            state = queue.popleft()
            for char, child in self.children[state].items():
                self.fallback[child] = self.step(self.fallback[state], char)
                queue.append(child)
            if self.match[state] is None:
                self.match[state] = self.match[self.fallback[state]]

    def step(self, state: int, char: str) -> int:
        while state and char not in self.children[state]:
            state = self.fallback[state]
        return self.children[state].get(char, 0)


# The samples of a request share one: it takes some 300 bytes for each character.
_trie = lru_cache(maxsize=4)(_Trie)


class StopScanner:
    """Passes on a streamed text up to the first stop string.

    The text ends at the first character that completes a stop string; where it completes several,
    the longest counts. Neither depends on how the text is cut into pieces. Time is linear in the
    text, whatever the stop strings; held back is at most the beginning of one.

    Args:
        stops: Any number of strings, none empty.
        include_stop: Show the stop string too.

    Attributes:
        hit: The stop string that was found, or None.

    Raises:
        RequestError: A stop string is empty.
    """

    def __init__(self, stops: Sequence[str], *, include_stop: bool = False) -> None:
        for i, stop in enumerate(stops):
            if not isinstance(stop, str) or not stop:
                raise RequestError(f"stop[{i}] is {stop!r}: a stop string has a character or more")
        self._stops = tuple(stops)
        self._trie = _trie(self._stops)
        self._include_stop = include_stop
        self._state = 0
        self.hit: str | None = None

    def feed(self, text: str) -> str:
        """Take a piece of the text; return what may be shown of it and of what was held back."""
        return self.scan(text, 0)[0]

    def flush(self) -> str:
        """Return the text held back at the end: the beginning of a stop string."""
        held = "" if self.hit is not None else self._held()
        self._state = 0
        return held

    def reset(self) -> None:
        """Look for a stop string again; what was held back is forgotten."""
        self._state = 0
        self.hit = None

    def scan(self, text: str, start: int) -> tuple[str, int]:
        """Do what :meth:`feed` does from an index on; also return the index behind the stop string."""
        if self.hit is not None:
            return "", start
        if not self._stops:
            return text[start:], len(text)
        trie, state = self._trie, self._state
        shown: list[str] = []
        for i in range(start, len(text)):
            char = text[i]
            old, state = state, trie.step(state, char)
            match = trie.match[state]
            if match is not None:
                self.hit = self._stops[match]
                shown.append(self._beginning(old)[: trie.depth[old] + 1 - len(self.hit)])
                shown.append(self.hit if self._include_stop else "")
                return "".join(shown), i + 1
            # The state's beginning stays back; what came before it can be no part of a stop.
            free = trie.depth[old] + 1 - trie.depth[state]
            if free and old:
                shown.append(self._beginning(old)[:free])
            if free > trie.depth[old]:
                shown.append(char)
        self._state = state
        return "".join(shown), len(text)

    def _held(self) -> str:
        return self._beginning(self._state)

    def _beginning(self, state: int) -> str:
        return self._stops[self._trie.word[state]][: self._trie.depth[state]] if state else ""
