"""``oxibonsai finetune``: a LoRA adapter of a model from examples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import rich_click as click

from oxibonsai.cli.foreign_options import Command
from oxibonsai.cli.learning_options import LEARNING, learning_options
from oxibonsai.cli.output import say_written, warn
from oxibonsai.finetune.settings import FinetuneSettings

_HELP = {
    "rank": "Of the adapter's matrices.",
    "alpha": "Scale of their product, over the rank.",
    "dropout": "Share of an adapter's inputs left out.",
    "use_rslora": "Scale over the root of the rank.",
    "use_dora": "DoRA, which PEFT runs and --lora does not.",
    "target_modules": "Linear layers, as transformers names them: q_proj,v_proj.",
    **LEARNING,
    "checkpointing": "Less memory, more time.",
    "packing": "Several examples in a row of --context tokens.",
    "beta": "Of preferences (DPO): what a distance from MODEL costs.",
    "gguf": "Write OUT/adapter.gguf, too, which llama.cpp takes.",
}


@click.command(cls=Command)
@learning_options(FinetuneSettings, _HELP)
def finetune(
    model: str,
    data: Path,
    out: Path,
    held_out: Path | None,
    resume: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Train a LoRA adapter of MODEL, whose weights stay as they are, on examples.

    A line of DATA has "messages", of which what the assistant says is learnt; or "prompt" and
    "completion"; or "text". Or all lines have a "prompt" and two answers, "chosen" and "rejected". OUT
    gets the adapter, which --lora takes, checkpoints and loss.png.
    """
    settings = FinetuneSettings(**options)
    from oxibonsai.finetune.run import finetune as run

    result = run(model, data, out, settings, held_out=held_out, resume=resume)
    if result.cut or result.dropped:
        warn([
            f"{result.cut} examples were cut to {settings.context} tokens, and {result.dropped} had "
            "nothing to learn within them: --context takes more"
        ])  # fmt: skip
    facts = {
        "steps": result.steps,
        "examples": result.examples,
        "rows": result.rows,
        "cut": result.cut,
        "dropped": result.dropped,
        "loss": result.loss,
        "held_out_loss": result.held_out,
    }
    say_written(result.adapter, as_json, **facts)
    if not as_json:
        held = "" if result.held_out is None else f", held-out loss {result.held_out:.3f}"
        click.echo(f"{result.steps} steps, loss {result.loss:.3f}{held}")
