"""Whether speculation pays on a running server: speed and acceptance over a grid of drafts."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from oxibonsai.errors import OxiBonsaiError, RequestError
from oxibonsai.loadtest.client import ChatClient

# Two kinds of work: free text, and text that repeats its prompt, where prompt lookup has most to find.
PROMPTS = {
    "free": "Tell me, in a few paragraphs, how a bicycle stays upright.",
    "copy": "Repeat this list exactly, word by word:\n"
    "1. The quiet ferry crosses the bay.\n"
    "2. The old tram crosses the square.\n"
    "3. The small fox crosses the garden.\n"
    "4. The late train crosses the valley.\n"
    "5. The young rider crosses the bridge.",
}
_NGRAMS = "ngram-simple"


@dataclass(frozen=True)
class Drafts:
    """How a request is drafted; None: as the server does by itself."""

    length: int | None
    threshold: float | None

    def fields(self) -> dict[str, float]:
        """Return llama-server's fields of a request."""
        given = {"speculative.n_max": self.length, "speculative.p_min": self.threshold}
        return {name: value for name, value in given.items() if value is not None}


@dataclass(frozen=True)
class Cell:
    """One way to draft on one prompt.

    Attributes:
        prompt: A key of ``PROMPTS``.
        drafted: Tokens of all drafts.
        accepted: Those that became part of the text.
        plain_tok_s: Tokens per second without drafts, the median of the rounds.
        tok_s: Tokens per second with them.
    """

    prompt: str
    length: int | None
    threshold: float | None
    drafted: int
    accepted: int
    plain_tok_s: float
    tok_s: float

    @property
    def acceptance(self) -> float | None:
        """Share of drafted tokens that were accepted; None if none was drafted."""
        return self.accepted / self.drafted if self.drafted else None

    @property
    def speed(self) -> float:
        """Times the speed without drafts."""
        return self.tok_s / self.plain_tok_s


async def speculation_of(client: ChatClient, model: str) -> str:
    """Return the name of a model's speculator in llama-server's words.

    Raises:
        RequestError: Nothing does.
        OxiBonsaiError: The server does not say.
    """
    try:
        found = (await client.properties(model))["default_generation_settings"]["params"]
        kind = str(found["speculative.types"])
    except (LookupError, TypeError) as e:
        raise OxiBonsaiError("the server's /props does not say what drafts tokens") from e
    if kind == "none":
        raise RequestError(
            "the server drafts no tokens: start it with --speculate or --draft-model"
        )
    return kind


def grid(kind: str, lengths: Sequence[int], thresholds: Sequence[float]) -> list[Drafts]:
    """Return the server's own setting, then every length with every threshold, where drafts have them."""
    shares: Sequence[float | None] = (None,) if kind == _NGRAMS else thresholds
    return [Drafts(None, None), *itertools.starmap(Drafts, itertools.product(lengths, shares))]


async def measure(
    client: ChatClient,
    ways: Sequence[Drafts],
    *,
    model: str,
    tokens: int,
    rounds: int,
    began: Callable[[str], None] = lambda _: None,
) -> list[Cell]:
    """Measure every way on every prompt, in turn with plain decoding.

    Args:
        client: Of the server.
        ways: How to draft.
        model: Its name.
        tokens: Length of the answers.
        rounds: Answers of each way; medians count.
        began: Told of each cell as it begins.

    Raises:
        OxiBonsaiError: A request was not answered, or drafts have changed a text.
    """
    runs = _Runs(client, {"model": model, "max_tokens": tokens})
    cells = []
    for (name, prompt), drafts in itertools.product(PROMPTS.items(), ways):
        began(f"{name}, {drafts.length or 'adapted'} tokens, threshold {drafts.threshold or '-'}")
        plain, drafted = [], []
        for _ in range(rounds):
            plain.append(await runs.one(prompt, Drafts(0, None)))
            drafted.append(await runs.one(prompt, drafts))
            if drafted[-1].text != plain[-1].text:
                raise OxiBonsaiError("speculation has changed a text, which it never may")
        cells.append(
            Cell(
                name,
                drafts.length,
                drafts.threshold,
                sum(run.drafted for run in drafted),
                sum(run.accepted for run in drafted),
                statistics.median(run.tok_s for run in plain),
                statistics.median(run.tok_s for run in drafted),
            )
        )
    return cells


@dataclass(frozen=True)
class _Run:
    text: str
    tok_s: float
    drafted: int
    accepted: int


class _Runs:
    """Requests of one measurement, none of which finds another's prompt in the cache."""

    def __init__(self, client: ChatClient, body: dict[str, Any]) -> None:
        self._client = client
        self._body = {**body, "temperature": 0, "ignore_eos": True}
        self._count = 0

    async def one(self, prompt: str, drafts: Drafts) -> _Run:
        self._count += 1
        body = {
            **self._body,
            "messages": [{"role": "user", "content": prompt}],
            "cache_salt": f"run {self._count}",
            **drafts.fields(),
        }
        answer = await self._client.whole_answer(body)
        try:
            message, timings = answer["choices"][0]["message"], answer["timings"]
            return _Run(
                text=f"{message.get('reasoning_content')}\n{message['content']}",
                tok_s=float(timings["predicted_per_second"]),
                drafted=int(timings.get("draft_n", 0)),
                accepted=int(timings.get("draft_n_accepted", 0)),
            )
        except (LookupError, TypeError, ValueError) as e:
            raise OxiBonsaiError("the answer has no text or no llama-server timings") from e
