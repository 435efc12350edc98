"""Proposals for all sequences of a step."""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress

from oxibonsai.engine.sequence import Sequence
from oxibonsai.engine.speculation.draft_model import DraftModel, DraftSpeculator
from oxibonsai.engine.speculation.mtp import MtpDraft, MtpSpeculator
from oxibonsai.errors import OxiBonsaiError


def propose(wanted: list[tuple[Sequence, int]]) -> list[list[int]]:
    """Asks every sequence's speculator; those of one draft model or layer share its passes.

    Args:
        wanted: Sequences with speculators, and how many tokens each may get.

    Returns:
        Tokens for each; none where a speculator has no good guess, or fails.
    """
    drafts: list[list[int]] = [[] for _ in wanted]
    shared: defaultdict[DraftModel | MtpDraft, list[int]] = defaultdict(list)
    for i, (sequence, most) in enumerate(wanted):
        speculator = sequence.speculator
        if isinstance(speculator, DraftSpeculator | MtpSpeculator):
            shared[speculator.model].append(i)
        elif speculator is not None:
            with suppress(OxiBonsaiError):
                drafts[i] = speculator.propose(sequence, most)
    for model, indices in shared.items():
        with suppress(OxiBonsaiError):
            proposals = model.propose([wanted[i] for i in indices])
            for i, proposal in zip(indices, proposals, strict=True):
                drafts[i] = proposal
    return drafts
