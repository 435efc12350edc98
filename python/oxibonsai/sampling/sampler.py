"""Choose the tokens of one sequence."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from oxibonsai import _core
from oxibonsai.errors import RequestError
from oxibonsai.sampling.params import SamplingParams
from oxibonsai.sampling.steps import Context, active_steps


@dataclass(frozen=True)
class TopLogits:
    """The k largest logits of a vocabulary.

    Attributes:
        ids: int32 [k], the largest first, of equal ones the lower id.
        values: float32 [k], theirs.
        vocabulary: How many logits there are.
        fetch: Brings all of them, float32 [vocabulary]; until the device's next step.
    """

    ids: npt.NDArray[np.int32]
    values: npt.NDArray[np.float32]
    vocabulary: int
    fetch: Callable[[], npt.NDArray[np.float32]]

    def hold(self, k: int, temperature: float = 1.0) -> bool:
        """Return whether the k largest of all logits divided by the temperature are among these.

        Division can make different logits equal, of which the lower id then comes first: it may be one
        that is not here, unless the last one here is less than the k-th.
        """
        if len(self.ids) == self.vocabulary:
            return True
        if len(self.ids) <= k:
            return False
        with np.errstate(over="ignore"):
            largest, least_kept, last = self.values[[0, k - 1, -1]] / np.float32(temperature)
        return bool(np.isfinite(largest) and least_kept > last)


Logits = npt.NDArray[np.float32]
Mask = npt.NDArray[np.uint32]

# The draw of step t has counter t; XTC's has this bit set too, so that the two are independent.
_XTC_COUNTER = 1 << 63
# With more of them than this, finding the largest logits takes longer than fetching all.
_MOST_TOP = 64


class _Workspace(threading.local):
    """Buffers of a vocabulary's size, one set a thread."""

    def __init__(self) -> None:
        self.candidates = _core.Candidates()


_workspace = _Workspace()


class Sampler:
    """Chooses the tokens of one sequence.

    The draw of step t is a function of (seed, t) alone, so a sequence's text doesn't depend on what
    runs beside it. Mirostat's aim is the only state, and only :meth:`choose` moves it.

    Args:
        params: The request's.
        breakers: Ids that end a repeated passage for DRY (see :func:`breaker_ids`).
        bad_words: Tokens of each of ``params.bad_words``, one or more.

    Attributes:
        seed: The request's, or one made for it.
        breakers, bad_words: As given.
    """

    def __init__(
        self,
        params: SamplingParams,
        breakers: Collection[int] = frozenset(),
        bad_words: Collection[tuple[int, ...]] = (),
    ) -> None:
        self.params = params
        self.seed = secrets.randbits(64) if params.seed is None else params.seed
        self.breakers = frozenset(breakers)
        self.bad_words = tuple(bad_words)
        self._breakers = np.array(sorted(breakers), dtype=np.int32)
        self._steps = active_steps(params)
        self._bias_ids = np.array(list(params.logit_bias), dtype=np.int32)
        self._bias = np.array(list(params.logit_bias.values()), dtype=np.float32)
        self._banned = (*params.banned_tokens, *(word[0] for word in bad_words if len(word) == 1))
        self._phrases = [word for word in bad_words if len(word) > 1]
        self._allowed = _mask_of(params.allowed_tokens) if params.allowed_tokens else None
        plain = not (params.logit_bias or self._banned or self._phrases)
        self._untouched = params.greedy and plain and not self._steps
        # How many of the largest logits the chain keeps before it looks at any other; None: it looks
        # at all.
        self._kept = _first_kept(params) if plain and self._allowed is None else None
        self._mu = 2.0 * params.mirostat_tau
        self._drawn: TokenLogprobs | None = None

    @property
    def top_wanted(self) -> int | None:
        """How many of the largest logits :meth:`choose` needs as a rule; None: all of them.

        One more than the chain keeps shows whether they decide.
        """
        p = self.params
        if self._kept is None or self._kept >= _MOST_TOP or (p.logprobs and not p.drawn_logprobs):
            return None
        return 1 if self._untouched else self._kept + 1

    def choose(
        self,
        logits: Logits | TopLogits,
        history: Sequence[int],
        step: int,
        *,
        mask: Mask | None = None,
        banned: Collection[int] = (),
    ) -> int:
        """Return the next token.

        Args:
            logits: float32 [vocabulary]; or the largest of them, and the others are fetched where
                these do not decide.
            history: Prompt and generated tokens; an int32 array is read in place.
            step: How many of its last tokens have been generated.
            mask: uint32 words; bit i of word i // 32 set: token i is allowed. Tokens past its end
                are not.
            banned: Ids that may not be chosen at this step.

        Raises:
            RequestError: No token is left, or an id lies outside the vocabulary.
        """
        if self._allowed is not None:
            mask = self._allowed if mask is None else _both(mask, self._allowed)
        if self._untouched and mask is None and not banned:
            return self._first_maximum(logits)
        p = self.params
        candidates = _workspace.candidates
        if isinstance(logits, TopLogits) and mask is None and not banned and self._decided(logits):
            candidates.start_with(logits.ids, logits.values, logits.vocabulary)
        else:
            candidates.start(_all(logits), mask)
        if p.logit_bias:
            candidates.add_bias(self._bias_ids, self._bias)
        if self._banned:
            candidates.ban(self._banned)
        if self._phrases and (last := self._ends_of_phrases(history, step)):
            candidates.ban(last)
        if banned:
            candidates.ban(tuple(banned))
        if self._steps:
            chance = _core.uniform(self.seed, step | _XTC_COUNTER) if p.xtc_probability else 0.0
            context = Context(history, step, chance, self._breakers)
            for _, apply, _ in self._steps:
                apply(candidates, p, context)
        if p.greedy:
            return candidates.greedy()
        if p.mirostat == 1:
            candidates.keep_zipf(self._mu)
        elif p.mirostat == 2:
            candidates.keep_below_surprisal(self._mu)
        token, surprisal = candidates.draw(_core.uniform(self.seed, step))
        if p.drawn_logprobs:
            logprob, best = candidates.logprobs(token, min(p.top_logprobs, len(candidates)))
            possible = tuple(t for t in best if t[1] > -np.inf)
            self._drawn = TokenLogprobs(token, logprob, possible)
        if p.mirostat != 0:
            self._mu -= p.mirostat_eta * (surprisal - p.mirostat_tau)
        return token

    def take_drawn(self, token: int) -> TokenLogprobs:
        """Return the distribution of the latest token's draw, where the parameters ask for it.

        Args:
            token: The token; one that was not drawn (it was forced, or the most likely one was asked
                for) has probability 1.
        """
        drawn, self._drawn = self._drawn, None
        if drawn is not None:
            return drawn
        return TokenLogprobs(token, 0.0, ((token, 0.0),) if self.params.top_logprobs else ())

    def _ends_of_phrases(self, history: Sequence[int], step: int) -> tuple[int, ...]:
        """Return the tokens that would complete bad words of which all others have been generated."""
        ends = []
        for *before, last in self._phrases:
            if len(before) <= step and list(history[len(history) - len(before) :]) == before:
                ends.append(last)
        return tuple(ends)

    def _decided(self, logits: TopLogits) -> bool:
        return self._kept is not None and logits.hold(self._kept, self.params.temperature)

    @staticmethod
    def _first_maximum(logits: Logits | TopLogits) -> int:
        if isinstance(logits, TopLogits):
            token, largest = int(logits.ids[0]), logits.values[0]
        else:
            token = _core.argmax(logits)
            largest = logits[token]
        if not largest > -np.inf:
            raise RequestError("no token is left to choose from: every logit is NaN or -inf")
        return token

    def state(self) -> dict[str, float | int]:
        """Return the state with which a snapshot's sampler continues with the same tokens."""
        return {"seed": self.seed, "mirostat_mu": self._mu}

    def restore(self, state: Mapping[str, float | int]) -> None:
        """Continue from a :meth:`state`."""
        self.seed = int(state["seed"])
        self._mu = float(state["mirostat_mu"])


def _first_kept(params: SamplingParams) -> int | None:
    """Return how many of the most likely tokens are left after the first step that drops any.

    None where that is no ``top_k``, or where logits change before it by more than a division.
    """
    if params.greedy:
        return None if active_steps(params) else 1
    steps = [step.name for step in active_steps(params)]
    if steps[:1] == ["temperature"] and params.dynatemp_range == 0.0:
        steps = steps[1:]
    return params.top_k if steps[:1] == ["top_k"] else None


def _all(logits: Logits | TopLogits) -> Logits:
    return logits.fetch() if isinstance(logits, TopLogits) else logits


def _mask_of(tokens: Collection[int]) -> Mask:
    mask = np.zeros(max(tokens) // 32 + 1, dtype=np.uint32)
    for token in tokens:
        mask[token // 32] |= np.uint32(1 << token % 32)
    return mask


def _both(one: Mask, other: Mask) -> Mask:
    words = min(len(one), len(other))
    return one[:words] & other[:words]


class TokenLogprobs(NamedTuple):
    """A token under the model's own distribution, and the most likely ones beside it."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...]


def token_logprobs(logits: Logits | TopLogits, token: int, top: int = 0) -> TokenLogprobs:
    """Return the natural logarithms of probabilities of the unchanged logits.

    Args:
        logits: float32 [vocabulary]; all of them are fetched if they are not here.
        token: The one that was chosen.
        top: How many of the most likely to report, largest first, ties by lower id.

    Raises:
        RequestError: The token lies outside the vocabulary, or every logit is NaN or -inf.
    """
    candidates = _workspace.candidates
    candidates.start(_all(logits), None)
    logprob, best = candidates.logprobs(token, top)
    return TokenLogprobs(token, logprob, best)


def breaker_ids(token_texts: Iterable[str], strings: Iterable[str]) -> frozenset[int]:
    """Return the ids of the tokens whose text contains one of the strings; ids count from 0."""
    wanted = tuple(strings)
    return frozenset(
        i for i, text in enumerate(token_texts) if any(string in text for string in wanted)
    )


def word_tokens(
    words: Iterable[str | tuple[int, ...]], encode: Callable[[str], Iterable[int]]
) -> tuple[tuple[int, ...], ...]:
    """Return the tokens of each word, at the beginning of a text and after a space; ids as they are."""
    found: dict[tuple[int, ...], None] = {}
    for word in words:
        if isinstance(word, str):
            bare = word.lstrip() or word
            found.update(dict.fromkeys(tuple(encode(s)) for s in (bare, f" {bare}")))
        else:
            found[word] = None
    return tuple(filter(None, found))
