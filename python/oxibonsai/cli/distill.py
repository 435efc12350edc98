"""``oxibonsai distill``: a model of binary or ternary weights from one of floats."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import rich_click as click

from oxibonsai.cli.foreign_options import Command
from oxibonsai.cli.learning_options import LEARNING, learning_options
from oxibonsai.cli.output import say_written, warn, written_text
from oxibonsai.distill.settings import HIDDEN_LOSSES, DistillSettings

_HELP = {
    "weight_type": "Of the matrices: q1_0, q2_0_g64, pq2_0, ptq1_0, tq2_0 or another of quantize.",
    "pure": "That type for all matrices.",
    "token_embedding_type": "Of the embeddings.",
    "output_tensor_type": "Of the matrix that gives logits.",
    "kl": "Weight of KL(teacher || student).",
    "temperature": "Of both models' logits in it.",
    "top_k": "Logits a token that the teacher gives once, before the first update; 0: all, live.",
    "cross_entropy": "Weight of the examples' cross-entropy.",
    "label_smoothing": "Share of its targets.",
    "hidden": "Weight of the distance of hidden states.",
    "hidden_loss": "That distance.",
    **LEARNING,
    "optimizer": "Transformers' name (adamw_torch, adafactor ...), or muon.",
    "optimizer_options": "Transformers' optim_args: beta2=0.95,eps=1e-8.",
    "schedule": "Transformers' name (cosine, warmup_stable_decay ...) or torch's class (OneCycleLR).",
    "schedule_options": "Of the schedule, as a JSON object.",
}


@click.command(cls=Command)
@learning_options(
    DistillSettings,
    _HELP,
    model="TEACHER",
    names={"weight_type": "--type"},
    choices={"hidden_loss": HIDDEN_LOSSES},
)
def distill(
    model: str,
    data: Path,
    out: Path,
    held_out: Path | None,
    resume: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Train TEACHER with weights that are rounded to a type of few bits to say what it said before.

    A line of DATA has "messages", of which what the assistant says is learnt; or "prompt" and
    "completion"; or "text". OUT gets the GGUF file, checkpoints and loss.png.
    """
    settings = DistillSettings(**options)
    from oxibonsai.distill.run import distill as run

    result = run(model, data, out, settings, held_out=held_out, resume=resume)
    warn(result.warnings)
    held = result.held_out
    if as_json:
        say_written(
            result.gguf,
            True,
            steps=result.steps,
            examples=result.examples,
            loss=result.loss,
            held_out_perplexity=None if held is None else asdict(held),
        )
        return
    click.echo(f"{written_text(result.gguf)}, {result.steps} steps, loss {result.loss:.3f}")
    if held is not None:
        click.echo(
            f"held-out perplexity {held.distilled:.3f}; rounding alone {held.rounded:.3f}, teacher "
            f"{held.teacher:.3f}"
        )
