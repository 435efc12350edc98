"""How well a model predicts a text, and how far it is from another model's predictions."""

from oxibonsai.evaluate.comparison import Comparison, TextScores, compare_models
from oxibonsai.evaluate.continuations import (
    Continuation,
    ContinuationScore,
    score_continuations,
)
from oxibonsai.evaluate.divergence import Divergence, measure_divergence
from oxibonsai.evaluate.kl_base import KlBase, KlBaseWriter, base_bytes
from oxibonsai.evaluate.perplexity import Perplexity, measure_perplexity
from oxibonsai.evaluate.statistics import Estimate
from oxibonsai.evaluate.windows import Window, cut_windows, text_tokens

__all__ = [
    "Comparison",
    "Continuation",
    "ContinuationScore",
    "Divergence",
    "Estimate",
    "KlBase",
    "KlBaseWriter",
    "Perplexity",
    "TextScores",
    "Window",
    "base_bytes",
    "compare_models",
    "cut_windows",
    "measure_divergence",
    "measure_perplexity",
    "score_continuations",
    "text_tokens",
]
