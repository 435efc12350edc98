"""How far a long prompt is read, before the first word of its answer."""

from __future__ import annotations

from oxibonsai.engine import Engine, Sequence
from oxibonsai.files.step_progress import step_progress


def read_prompt_of(engine: Engine, sequence: Sequence) -> None:
    """Lets a sequence go on until its prompt is read, and shows how far it is on stderr."""
    total = sequence.num_prompt_tokens
    with step_progress("Reading the prompt", "tokens") as progress:
        while not sequence.finished and sequence.times.first_token is None:
            engine.advance(sequence)
            progress(min(sequence.num_computed, total), total, "")
