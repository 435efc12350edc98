"""Finetune: transformers' Trainer on packed weights, and what it leaves in a folder."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from oxibonsai.convert.lora import convert_lora
from oxibonsai.errors import RequestError, needs_extra
from oxibonsai.files.step_progress import StepProgress, step_progress
from oxibonsai.files.whole_file import make_folder
from oxibonsai.finetune.examples import (
    Examples,
    holds_preferences,
    pack_examples,
    read_examples,
    read_preferences,
)
from oxibonsai.finetune.settings import FinetuneSettings
from oxibonsai.hf.tokenizer import AutoTokenizer
from oxibonsai.loading import open_model
from oxibonsai.models import read_config

with needs_extra("finetune"):
    import peft
    import transformers

    from oxibonsai.finetune.preferences import PreferenceTrainer, preference_batch
    from oxibonsai.finetune.trainer import (
        Progress,
        batch,
        check_packing,
        checkpoint_to_resume,
        plot_losses,
        quiet,
        refusals,
        train,
        training_arguments,
    )
    from oxibonsai.hf.trainable import trainable_model

_GGUF = "adapter.gguf"


@dataclass(frozen=True)
class Result:
    """The result of a run.

    Attributes:
        adapter: PEFT's folder, which ``--lora`` takes.
        steps: Updates.
        examples: That it learnt from, or pairs of answers.
        rows: Of the batches: the examples, or what they are packed into.
        cut: Of them, how many were longer than the context.
        dropped: Examples with nothing to learn within the context.
        loss: Of the last update, nats a token; of preferences, nats a pair.
        held_out: Of the held-out examples at the end; None without them.
    """

    adapter: Path
    steps: int
    examples: int
    rows: int
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
        data: JSON lines: examples, see :func:`oxibonsai.finetune.examples.read_examples`, or
            preferences, see :func:`oxibonsai.finetune.examples.read_preferences`.
        out: Folder that gets the adapter, ``checkpoints`` and ``loss.png``, and ``adapter.gguf`` where
            that is wanted. Made where it is missing.
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
    compares = holds_preferences(Path(data))
    if compares and settings.packing:
        raise RequestError(f"{data} holds preferences, which are not packed: leave out packing")
    if not compares and settings.beta != FinetuneSettings.beta:
        raise RequestError(f"beta is of preferences, and {data} holds none: leave it out")
    read = read_preferences if compares else read_examples
    learnt = read(Path(data), tokenizer, settings.context)
    measured = read(Path(held_out), tokenizer, settings.context) if held_out else None
    rows: Sequence[Any] = learnt.items
    if settings.packing:
        rows = pack_examples(rows, settings.context)
    transformers.set_seed(settings.seed)
    name = str(checkpoint.path) if source is None else str(source)
    with quiet(), step_progress("Training", "steps") as progress:
        with refusals():
            model = trainable_model(checkpoint, _adapter(settings), settings.dtype, name)
            if settings.packing:
                # With keys and values kept, transformers takes no look at positions.
                model.config.use_cache = False
                check_packing(model, name)
            make_folder(out)
            kind = partial(PreferenceTrainer, settings.beta) if compares else transformers.Trainer
            collate = preference_batch if compares else batch
            trainer = _trainer(
                kind, collate, model, rows, measured, checkpoints, settings, progress
            )
        train(trainer, newest)
        model.save_pretrained(str(out))
    if settings.gguf:
        convert_lora(out, out / _GGUF, read_config(checkpoint))
    learning, measuring = plot_losses(trainer, out)
    return Result(
        adapter=out,
        steps=trainer.state.global_step,
        examples=len(learnt.items),
        rows=len(rows),
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
        use_rslora=settings.use_rslora,
        use_dora=settings.use_dora,
        target_modules=named[0] if named == ["all-linear"] else named,
        task_type="CAUSAL_LM",
    )


def _trainer(
    kind: Callable[..., Any],
    collate: Callable[[Any], Any],
    model: Any,
    rows: Sequence[Any],
    measured: Examples[Any] | None,
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
    trainer = kind(
        model,
        arguments,
        data_collator=collate,
        train_dataset=rows,
        eval_dataset=None if measured is None else measured.items,
        callbacks=[Progress(progress)],
    )
    trainer.remove_callback(transformers.PrinterCallback)
    return trainer
