"""Methods of speculation by llama.cpp's names, and the choice among them."""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass
from typing import Protocol

from oxibonsai.architectures import dflash, eagle3
from oxibonsai.checkpoint import Checkpoint
from oxibonsai.engine.engine import Engine
from oxibonsai.engine.loading import load
from oxibonsai.engine.sequence import Speculator
from oxibonsai.engine.speculation.dflash import DflashDraft
from oxibonsai.engine.speculation.draft_model import DraftModel
from oxibonsai.engine.speculation.eagle3 import EagleDraft
from oxibonsai.engine.speculation.first_of import FirstOf
from oxibonsai.engine.speculation.mtp import MtpDraft
from oxibonsai.engine.speculation.ngram import NgramSpeculator
from oxibonsai.engine.speculation.proposals import Limits
from oxibonsai.errors import RequestError, UnsupportedError
from oxibonsai.loading import open_model
from oxibonsai.models.drafting import is_mtp_alone

_log = logging.getLogger(__name__)

AUTO, NONE = "auto", "none"
NGRAM, MTP, DFLASH, DSPARK, EAGLE, SIMPLE = (
    "ngram-simple", "draft-mtp", "draft-dflash", "draft-dspark", "draft-eagle3", "draft-simple",
)  # fmt: skip
KINDS = (NGRAM, MTP, DFLASH, DSPARK, EAGLE, SIMPLE)
_SHORT = {"off": NONE, "ngram": NGRAM, "mtp": MTP}
# llama.cpp's other names, with what to use instead.
_OTHERS = dict.fromkeys(
    ("ngram-map-k", "ngram-map-k4v", "ngram-mod", "ngram-cache"),
    "there is one kind of n-grams, which finds the latest occurrence of the last 4 to 2 tokens: use "
    "ngram-simple",
)
_OLD_DSPARK = "dspark"


class MakeSpeculator(Protocol):
    """Makes speculators, one for each new sequence."""

    def __call__(self, *, length: int | None = None, threshold: float | None = None) -> Speculator:
        """Return a new speculator.

        Args:
            length: Tokens of a proposal; None: as usual.
            threshold: A proposal ends where its maker is less sure than this; None: as usual.

        Raises:
            RequestError: One of them is out of range, or there are no probabilities to compare.
        """
        ...


@dataclass(frozen=True)
class Speculation:
    """The choice of what proposes tokens for an engine's sequences.

    Attributes:
        kinds: Of :data:`KINDS`, in the order in which they are asked; none where nothing proposes.
        reason: Why these, or why none.
        make: Makes speculators; None: nothing proposes.
    """

    kinds: tuple[str, ...]
    reason: str
    make: MakeSpeculator | None


def speculation_kinds(text: str, draft: str | None = None) -> tuple[str, ...]:
    """Return the kinds that a user names, ``("auto",)``, or none.

    Args:
        text: llama.cpp's names, separated by commas; ``none`` or ``off``; ``auto``.
        draft: The draft model that is given with them.

    Raises:
        RequestError: A name is not known, or what it means is not here; it says what to use instead. Or
            nothing would use the draft model.
    """
    kinds = _kinds(text)
    if draft is not None and all(kind == NGRAM for kind in kinds):
        raise RequestError(
            f"nothing of --speculate {text} uses the draft model {draft}: leave out --speculate or "
            "--draft-model, or name a drafter, too"
        )
    return kinds


def _kinds(text: str) -> tuple[str, ...]:
    names = [_SHORT.get(name.strip(), name.strip()) for name in text.split(",")]
    if len(names) == 1 and names[0] in (AUTO, NONE):
        return (AUTO,) if names[0] == AUTO else ()
    for name in names:
        if name in _OTHERS:
            raise RequestError(f"the speculation {name} is not available: {_OTHERS[name]}")
        if name not in KINDS:
            raise RequestError(
                f"there is no speculation {name}; known are {AUTO}, {NONE}, and, one or several separated "
                f"by commas, {', '.join(KINDS)}"
            )
    if len(set(names)) != len(names):
        raise RequestError(f"the speculation {text} names a kind twice")
    if sum(name != NGRAM for name in names) > 1:
        raise RequestError(
            f"the speculation {text} names several drafters; one goes together with {NGRAM}"
        )
    return tuple(names)


def choose_speculation(
    engine: Engine,
    kinds: str = AUTO,
    draft: str | None = None,
    *,
    length: int | None = None,
    least: int = 0,
    threshold: float = 0.5,
    parallel: int = 1,
) -> Speculation:
    """Choose what proposes tokens for an engine's sequences, and log why.

    Args:
        engine: Checks the proposals.
        kinds: As of :func:`speculation_kinds`; ``auto``: what ``draft`` holds, else the layer for
            multi-token prediction that the model's file may have.
        draft: A smaller model of the same vocabulary, or a file with a drafter, or a folder with one of
            EAGLE-3.
        length: Tokens of a proposal; None: as many as make decoding fastest.
        least: Shorter proposals are dropped.
        threshold: A proposal ends where its maker is less sure than this.
        parallel: Sequences that a draft model reads at once.

    Raises:
        RequestError: The kinds do not go with what ``draft`` holds, or a number is out of range.
        OxiBonsaiError: The draft model can't be used.
    """
    limits = Limits(length, least, threshold)
    named = speculation_kinds(kinds, draft)
    file = None if draft is None else open_model(draft, drafts_for=engine.model)
    chosen, reason = _choose(engine, named, file)
    try:
        makers = [_maker(kind, engine, file, limits) for kind in chosen if kind != SIMPLE]
        if SIMPLE in chosen:
            small = load(draft, parallel=parallel)
            simple = DraftModel(small, engine, **asdict(limits)).speculator
            makers.insert(chosen.index(SIMPLE), simple)
    except UnsupportedError as e:
        if named != (AUTO,) or draft is not None:
            raise
        chosen, reason, makers = (), str(e), []
    _log.info("speculation: %s: %s", ", ".join(chosen) or NONE, reason)
    if len(makers) < 2:
        return Speculation(chosen, reason, makers[0] if makers else None)
    return Speculation(chosen, reason, _in_turn(dict(zip(chosen, makers, strict=True))))


def _choose(
    engine: Engine, named: tuple[str, ...], file: Checkpoint | None
) -> tuple[tuple[str, ...], str]:
    """Return the kinds to use and why."""
    if file is not None:
        draft, held = file.path, drafter_kind(file)
        if named == (AUTO,):
            return (held,), f"{draft} is for it"
        wanted = [kind for kind in named if kind != NGRAM]
        if wanted != [held]:
            raise RequestError(f"the draft model {draft} is for {held}, not for {wanted[0]}")
        return named, "as asked for"
    if named == (AUTO,):
        path = engine.model.weights.checkpoint.path
        if engine.model.config.num_nextn_predict_layers > 0:
            return (MTP,), f"{path} has a layer for it"
        return (), (
            f"{path} has no layer that predicts further tokens, and no draft model is given; "
            f"{NGRAM} is used where it is asked for"
        )
    for kind in named:
        if kind in (DFLASH, DSPARK, EAGLE, SIMPLE):
            raise RequestError(f"the speculation {kind} needs its file: give it with --draft-model")
    return named, "as asked for"


def drafter_kind(checkpoint: Checkpoint) -> str:
    """Return the kind of speculation that a file is for.

    Raises:
        UnsupportedError: It is a drafter that can't be used; it says what to do.
    """
    name = checkpoint.architecture
    if name == _OLD_DSPARK:
        raise UnsupportedError(
            f"{checkpoint.path} is a drafter in PrismML's old format (architecture {name}): convert its "
            "bf16 file with `gguf-dspark-to-dflash --drop-shared-tensors` of PrismML's llama.cpp, with the "
            "model as the donor of the vocabulary"
        )
    if name == eagle3.NAME:
        return EAGLE
    if name == dflash.NAME:
        return DSPARK if checkpoint.has("markov_w1.weight") else DFLASH
    return MTP if is_mtp_alone(checkpoint) else SIMPLE


def _maker(kind: str, engine: Engine, file: Checkpoint | None, limits: Limits) -> MakeSpeculator:
    if kind == NGRAM:
        return _ngrams(limits)
    numbers = asdict(limits)
    if kind == MTP:
        return MtpDraft(engine, file, **numbers).speculator
    assert file is not None  # checked with the choice
    if kind == EAGLE:
        return EagleDraft(engine, file, **numbers).speculator
    return DflashDraft(engine, file, **numbers).speculator


def _in_turn(makers: dict[str, MakeSpeculator]) -> MakeSpeculator:
    def make(*, length: int | None = None, threshold: float | None = None) -> FirstOf:
        return FirstOf(
            [
                maker(length=length, threshold=None if kind == NGRAM else threshold)
                for kind, maker in makers.items()
            ]
        )

    return make


def _ngrams(limits: Limits) -> MakeSpeculator:
    def make(*, length: int | None = None, threshold: float | None = None) -> NgramSpeculator:
        if threshold is not None:
            raise RequestError(
                "drafts of n-grams have no probabilities to compare with a threshold: leave it out"
            )
        own = limits.of_request(length, None)
        return NgramSpeculator(length=own.length, least=own.least)

    return make
