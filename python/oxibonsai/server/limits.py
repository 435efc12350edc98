"""Which limits a caller has: requests and tokens in a time, tokens a day."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from oxibonsai.server.errors import ApiError
from oxibonsai.server.rate_limit import Balance, Buckets, Budgets, Rate
from oxibonsai.server.stores.errors import StoreError

_log = logging.getLogger("oxibonsai.server")

ANONYMOUS = "anonymous"
_DAY_SECONDS = 86400
_Limit = TypeVar("_Limit")


@dataclass(frozen=True)
class Caller:
    """Who is limited.

    Attributes:
        key: Owner id of the key that was sent, if it is accepted or no keys are configured.
        owner: The same, if it is accepted.
        group: Who shares a limit with callers that have no accepted key.
        is_batch: It is a batch, whose requests the server itself makes.
    """

    key: str | None
    owner: str | None
    group: str = ANONYMOUS
    is_batch: bool = False

    @classmethod
    def behind(cls, owner: str, *, is_batch: bool = False) -> Caller:
        """Return the caller for whom the server works in the background."""
        known = None if owner == ANONYMOUS else owner
        return cls(known, known, is_batch=is_batch)


class PerCaller(Generic[_Limit]):
    """A limit of each caller.

    A key with a limit of its own has a count of its own, as has every accepted key where all have a
    limit. The other callers share one if there is a limit for them, else each group of them has one.

    Args:
        each: Of each caller that has no other; None: no limit.
        per_key: Of single keys, by owner id.
        anonymous: Of all callers without a known key together; None: as ``each`` says.
    """

    def __init__(
        self, each: _Limit | None, per_key: Mapping[str, _Limit], anonymous: _Limit | None = None
    ) -> None:
        self._each, self._per_key, self._anonymous = each, per_key, anonymous

    def of(self, caller: Caller) -> tuple[str, _Limit] | None:
        """Return the name of a caller's count, and its limit; None if it has none."""
        own = None if caller.key is None else self._per_key.get(caller.key)
        if caller.key is not None and own is not None:
            return caller.key, own
        if caller.owner is None and self._anonymous is not None:
            return ANONYMOUS, self._anonymous
        return None if self._each is None else (caller.owner or caller.group, self._each)


class RequestLimits:
    """Limits how many requests each caller sends, and all of them together.

    Args:
        buckets: Where the buckets are.
        rates: Of callers.
        together: Rate of all requests that are let in; None: no limit.
    """

    def __init__(self, buckets: Buckets, rates: PerCaller[Rate], together: Rate | None) -> None:
        self._buckets, self._rates, self._together = buckets, rates, together

    def take(self, caller: Caller) -> Balance | None:
        """Count a request against its caller's rate; None if the caller has no limit."""
        found = self._rates.of(caller)
        return None if found is None else self._buckets.take(*found)

    def take_together(self, caller: Caller, own: Balance | None) -> Balance | None:
        """Count a request that its caller's rate let in against the rate of all.

        A request that the rate of all refuses does not count against its caller's.

        Returns:
            The balance that leaves less; None if there is no limit at all.
        """
        if self._together is None:
            return own
        balance = self._buckets.take("*", self._together)
        found = self._rates.of(caller)
        if balance.wait > 0:
            if found is not None:
                self._buckets.charge(*found, -1)
            return balance
        return min((b for b in (own, balance) if b is not None), key=lambda b: b.left)


class TokenLimits:
    """Limits how many tokens each caller's requests have, in a time and on a day.

    The tokens of a prompt are taken before it is processed: where there are too few of them, the request
    is refused. Those that are generated are counted at the end, since nobody knows before how many there
    will be. They may leave a debt: the caller's next request waits until it is repaid, so that over time
    a caller gets its rate exactly, and ``max_tokens`` need not be reserved and given back.

    Batches count against budgets alone, so that one does not hold up its key's other requests.

    Args:
        buckets: Where the buckets are.
        budgets: Where the use of budgets is counted.
        rates: Tokens in a time.
        daily: Tokens a day, which ends at midnight UTC. Callers without an accepted key share one.
        caller: Returns the caller of the current request or background task; None: it has no limits.
        clock: Unix time.
    """

    def __init__(
        self,
        buckets: Buckets,
        budgets: Budgets,
        rates: PerCaller[Rate],
        daily: PerCaller[int],
        caller: Callable[[], Caller | None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._buckets, self._budgets = buckets, budgets
        self._rates, self._daily = rates, daily
        self._caller, self._clock = caller, clock

    def begin(self, prompt_tokens: int) -> TokenCount:
        """Take the tokens of a prompt, or of texts that have no answer.

        Raises:
            ApiError: 429: the caller has too few of them left.
            StoreError: What counts them can't be reached.
        """
        caller = self._caller()
        rate = None if caller is None else self._rate_of(caller)
        budget = None if caller is None else self._daily.of(replace(caller, group=ANONYMOUS))
        if rate is not None:
            self._take(*rate, prompt_tokens)
        day = int(self._clock() // _DAY_SECONDS)
        if budget is not None and not self._budgets.take(budget[0], day, prompt_tokens, budget[1]):
            if rate is not None:
                self._buckets.charge(*rate, -prompt_tokens)
            raise ApiError(
                429,
                f"The budget of {budget[1]} tokens a day leaves too few for this request's "
                f"{prompt_tokens}: it is renewed at midnight UTC.",
                kind="insufficient_quota",
                code="insufficient_quota",
                retry_after=(day + 1) * _DAY_SECONDS - self._clock(),
            )

        def count(tokens: int) -> None:
            if rate is not None:
                self._buckets.charge(*rate, tokens)
            if budget is not None:
                self._budgets.charge(budget[0], day, tokens)

        return TokenCount(prompt_tokens, count)

    @contextmanager
    def counting(self, tokens: int) -> Iterator[TokenCount]:
        """Take tokens for a block as :meth:`begin` does, and give them back if it fails."""
        count = self.begin(tokens)
        try:
            yield count
        except BaseException:
            count.give_back()
            raise

    def balance(self, caller: Caller) -> Balance | None:
        """Return a caller's tokens for responses; None if it has no limit, or that can't be known now."""
        rate = self._rate_of(caller)
        if rate is None:
            return None
        try:
            return self._buckets.look(*rate)
        except StoreError as e:  # the request itself is done
            _log.error("a response does not say the caller's tokens: %s", e)
            return None

    def _rate_of(self, caller: Caller) -> tuple[str, Rate] | None:
        found = None if caller.is_batch else self._rates.of(caller)
        return None if found is None else (f"tokens:{found[0]}", found[1])

    def _take(self, name: str, rate: Rate, tokens: int) -> None:
        assert rate.capacity is not None
        if tokens > rate.capacity:
            raise ApiError(
                429,
                f"The request has {tokens} tokens, and its caller's limit never lets more than "
                f"{math.floor(rate.capacity)} in at once: send less.",
                code="rate_limit_exceeded",
            )
        balance = self._buckets.take(name, rate, tokens)
        if balance.wait > 0:
            raise ApiError(
                429,
                f"Too many tokens: {int(balance.left)} of {math.floor(rate.capacity)} are left, and the "
                f"request has {tokens}. Try again after the time in Retry-After.",
                code="rate_limit_exceeded",
                retry_after=balance.wait,
            )


class TokenCount:
    """Counts the tokens of a request whose prompt was taken.

    Args:
        prompt_tokens: Of the prompt.
        count: Counts further tokens.
    """

    def __init__(self, prompt_tokens: int, count: Callable[[int], None]) -> None:
        self._prompt_tokens, self._count = prompt_tokens, count

    def generated(self, tokens: int) -> None:
        """Count the tokens of the answer, once it has ended."""
        self._add(tokens)

    def give_back(self) -> None:
        """Give the tokens of the prompt back: it was not processed."""
        self._add(-self._prompt_tokens)

    def _add(self, tokens: int) -> None:
        try:
            if tokens:
                self._count(tokens)
        except StoreError as e:  # the answer is there, and its client shall have it
            _log.error("%d tokens were not counted against a limit: %s", tokens, e)
