"""Choose an engine's speculator by the name that a user gives."""

from __future__ import annotations

from oxibonsai.engine.engine import Engine
from oxibonsai.engine.loading import load
from oxibonsai.engine.speculation.draft_model import DraftModel
from oxibonsai.engine.speculation.mtp import MtpDraft
from oxibonsai.engine.speculation.ngram import NgramSpeculator
from oxibonsai.engine.speculation.speculator import MakeSpeculator
from oxibonsai.errors import RequestError


def choose_speculation(
    engine: Engine,
    kind: str,
    draft: str | None,
    *,
    length: int | None = None,
    threshold: float = 0.5,
    parallel: int = 1,
) -> MakeSpeculator | None:
    """Return the maker of speculators for an engine's sequences; None if nothing proposes tokens.

    Args:
        engine: Checks the proposals.
        kind: ``off``; ``ngram``: what followed the last tokens when they came before; ``mtp``: the
            model's own layers that predict further tokens.
        draft: A smaller model of the same vocabulary.
        length: Tokens of a proposal; None: adapted to what is accepted.
        threshold: A proposal ends where the draft model is less sure than this.
        parallel: Sequences that the draft model reads at once.

    Raises:
        RequestError: Both are given, or the draft model has another vocabulary.
        OxiBonsaiError: The draft model can't be used.
    """
    if kind != "off" and draft is not None:
        raise RequestError("give --speculate or --draft-model, not both")
    if draft is not None:
        small = load(draft, ctx_size=None, parallel=parallel)
        return DraftModel(small, engine, threshold=threshold, length=length).speculator
    if kind == "mtp":
        return MtpDraft(engine, threshold=threshold, length=length).speculator
    if kind == "ngram":
        return _ngrams(length)
    return None


def _ngrams(usual_length: int | None) -> MakeSpeculator:
    def make(*, length: int | None = None, threshold: float | None = None) -> NgramSpeculator:
        if threshold is not None:
            raise RequestError(
                "drafts of n-grams have no probabilities to compare with a threshold: leave it out"
            )
        return NgramSpeculator(length=usual_length if length is None else length)

    return make
