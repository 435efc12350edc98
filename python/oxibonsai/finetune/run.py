"""Finetune: transformers' Trainer on packed weights, and what it leaves in a folder."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oxibonsai.errors import needs_extra
from oxibonsai.files.step_progress import StepProgress, step_progress
from oxibonsai.files.whole_file import make_folder
from oxibonsai.finetune.examples import Examples, read_examples
from oxibonsai.finetune.settings import FinetuneSettings
from oxibonsai.hf.tokenizer import AutoTokenizer
from oxibonsai.loading import open_model

with needs_extra("finetune"):
    import peft
    import transformers

    from oxibonsai.finetune.trainer import (
        Progress,
        batch,
        checkpoint_to_resume,
        plot_losses,
        quiet,
        refusals,
        train,
        training_arguments,
    )
    from oxibonsai.hf.trainable import trainable_model


@dataclass(frozen=True)
class Result:
    """The result of a run.

    Attributes:
        adapter: PEFT's folder, which ``--lora`` takes.
        steps: Updates.
        examples: That it learnt from.
        cut: Of them, how many were longer than the context.
        dropped: Examples with nothing to learn within the context.
        loss: Of the last update, nats a token.
        held_out: Of the held-out examples at the end; None without them.
    """

    adapter: Path
    steps: int
    examples: int
    cut: int
    dropped: int
    loss: float
    held_out: float | None


def finetune(
    source: str | os.PathLike[str] | None,
    data: str | os.PathLike[str],
    out: str | os.PathLike[str],
    settings: FinetuneSettings,
    *,
    held_out: str | os.PathLike[str] | None = None,
    resume: bool = False,
) -> Result:
    """Train a LoRA adapter of a model on examples, and write it.

    Args:
        source: The model, as of :func:`oxibonsai.load`.
        data: JSON lines; see :func:`oxibonsai.finetune.examples.read_examples`.
        out: Folder that gets the adapter, ``checkpoints`` and ``loss.png``. Made where it is missing.
        settings: The adapter's shape, and how it learns.
        held_out: Examples whose loss is measured at each checkpoint; not learnt from.
        resume: Go on from the folder's newest checkpoint; the rest as before.

    Raises:
        RequestError: An argument makes no run, or the data holds nothing to learn.
        FormatError: A file is broken.
        UnsupportedError: A package of the extra is missing, or the model can't be trained.
    """
    out = Path(out)
    checkpoints = out / "checkpoints"
    newest = checkpoint_to_resume(
        checkpoints, out / "adapter_config.json", "an adapter", resume=resume
    )
    checkpoint, tokenizer = open_model(source), AutoTokenizer.from_pretrained(source)
    learnt = read_examples(Path(data), tokenizer, settings.context)
    measured = read_examples(Path(held_out), tokenizer, settings.context) if held_out else None
    transformers.set_seed(settings.seed)
    name = str(checkpoint.path) if source is None else str(source)
    with quiet(), step_progress("Training", "steps") as progress:
        with refusals():
            model = trainable_model(checkpoint, _adapter(settings), settings.dtype, name)
            make_folder(out)
            trainer = _trainer(model, learnt, measured, checkpoints, settings, progress)
        train(trainer, newest)
        model.save_pretrained(str(out))
    learning, measuring = plot_losses(trainer, out)
    return Result(
        adapter=out,
        steps=trainer.state.global_step,
        examples=len(learnt.items),
        cut=learnt.cut,
        dropped=learnt.dropped,
        loss=learning[-1][1],
        held_out=measuring[-1][1] if measuring else None,
    )


def _adapter(settings: FinetuneSettings) -> Any:
    named = settings.names("target_modules")
    return peft.LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha,
        lora_dropout=settings.dropout,
        use_rslora=settings.rslora,
        target_modules=named[0] if named == ["all-linear"] else named,
        task_type="CAUSAL_LM",
    )


def _trainer(
    model: Any,
    learnt: Examples,
    measured: Examples | None,
    checkpoints: Path,
    settings: FinetuneSettings,
    progress: StepProgress,
) -> Any:
    arguments = training_arguments(
        settings,
        checkpoints,
        measures=measured is not None,
        lr_scheduler_type=settings.schedule,
        gradient_checkpointing=settings.checkpointing,
    )
    trainer = transformers.Trainer(
        model,
        arguments,
        data_collator=batch,
        train_dataset=learnt.items,
        eval_dataset=None if measured is None else measured.items,
        callbacks=[Progress(progress)],
    )
    trainer.remove_callback(transformers.PrinterCallback)
    return trainer
