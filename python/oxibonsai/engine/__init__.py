"""Sequences, scheduling and the paged cache around one model."""

from oxibonsai.engine.beam_search import Beam, beam_search
from oxibonsai.engine.completion import Completion, best_samples, complete, submit_samples
from oxibonsai.engine.context_shift import ContextShift, Shifted
from oxibonsai.engine.engine import Engine
from oxibonsai.engine.loading import load
from oxibonsai.engine.memory_estimate import MemoryEstimate, estimate_memory
from oxibonsai.engine.pool import EnginePool, EngineRequest
from oxibonsai.engine.pooled_states import Ids
from oxibonsai.engine.runner import EngineRunner
from oxibonsai.engine.sequence import Constrain, Options, Sequence, TokenConstraint
from oxibonsai.engine.snapshot import Snapshot, restore, save
from oxibonsai.engine.speculation.dflash import DflashDraft
from oxibonsai.engine.speculation.draft_model import DraftModel
from oxibonsai.engine.speculation.eagle3 import EagleDraft
from oxibonsai.engine.speculation.lookahead import Lookahead
from oxibonsai.engine.speculation.mtp import MtpDraft
from oxibonsai.engine.speculation.ngram import NgramSpeculator

__all__ = [
    "Beam",
    "Completion",
    "Constrain",
    "ContextShift",
    "DflashDraft",
    "DraftModel",
    "EagleDraft",
    "Engine",
    "EnginePool",
    "EngineRequest",
    "EngineRunner",
    "Ids",
    "Lookahead",
    "MemoryEstimate",
    "MtpDraft",
    "NgramSpeculator",
    "Options",
    "Sequence",
    "Shifted",
    "Snapshot",
    "TokenConstraint",
    "beam_search",
    "best_samples",
    "complete",
    "estimate_memory",
    "load",
    "restore",
    "save",
    "submit_samples",
]
