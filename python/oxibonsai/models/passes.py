"""The passes that a model can run: what each reads of a batch, and what it gives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from oxibonsai.architectures.layers import pooled

# Results of a pass; the latter two over pooled hidden states.
LOGITS, HIDDEN = "logits", "hidden"
FINAL = -1  # the tap of hidden states after the final norm
SCORES, PROJECTED = "scores", "projected"


class Pass(NamedTuple):
    """One of a model's passes: what it reads of a batch, and its results.

    Attributes:
        inputs: Names; ``tokens`` are rows of any sequences, ``prompts`` those for an encoder.
        outputs: Names of the results.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


GENERATE = Pass(("tokens",), (LOGITS,))
EMBED = Pass(("tokens",), (HIDDEN,))
EMBED_TYPED = Pass(("tokens", "token_types"), (HIDDEN,))
GENERATE_WITH_IMAGES = Pass(("tokens", "images"), (LOGITS,))
GENERATE_WITH_LAYERS = Pass(("tokens",), (LOGITS, HIDDEN, "layers"))
ENCODE = Pass(("prompts",), (HIDDEN,))


def tap_name(tap: int) -> str:
    """Return the name of the result with the hidden states of a tap."""
    return HIDDEN if tap == FINAL else f"layer.{tap}"


def hidden_states_pass(taps: Sequence[int]) -> Pass:
    """Return the pass that also gives hidden states of all rows, of at least one tap."""
    return Pass(("tokens",), (LOGITS, *map(tap_name, taps)))


GENERATE_WITH_HIDDEN_STATES = hidden_states_pass((FINAL,))


def pooled_pass(name: str) -> Pass:
    """Return the pass from pooled hidden states to ``SCORES`` or ``PROJECTED``."""
    return Pass((pooled.POOLED,), (name,))
