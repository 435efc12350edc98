"""Sequences, scheduling and the paged cache around one model."""

from oxibonsai.engine.beam_search import Beam, beam_search
from oxibonsai.engine.completion import Completion, best_samples, complete, submit_samples
from oxibonsai.engine.constraint import Constrain, TokenConstraint
from oxibonsai.engine.context_shift import ContextShift, Shifted
from oxibonsai.engine.engine import Engine
from oxibonsai.engine.loading import load
from oxibonsai.engine.pool import EnginePool, EngineRequest
from oxibonsai.engine.pooled_states import Ids
from oxibonsai.engine.runner import EngineRunner
from oxibonsai.engine.sequence import Options, Sequence
from oxibonsai.engine.snapshot import Restored, restore, save
from oxibonsai.engine.speculation import DraftModel, Lookahead, MtpDraft, NgramSpeculator

__all__ = [
    "Beam",
    "Completion",
    "Constrain",
    "ContextShift",
    "DraftModel",
    "Engine",
    "EnginePool",
    "EngineRequest",
    "EngineRunner",
    "Ids",
    "Lookahead",
    "MtpDraft",
    "NgramSpeculator",
    "Options",
    "Restored",
    "Sequence",
    "Shifted",
    "TokenConstraint",
    "beam_search",
    "best_samples",
    "complete",
    "load",
    "restore",
    "save",
    "submit_samples",
]
