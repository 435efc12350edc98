"""Finetune: transformers' Trainer on packed weights, and what it leaves in a folder."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oxibonsai.errors import OxiBonsaiError, RequestError, needs_extra
from oxibonsai.files.figures import save_losses
from oxibonsai.files.step_progress import StepProgress, step_progress
from oxibonsai.files.whole_file import make_folder
from oxibonsai.finetune.examples import IGNORED, Example, Examples, read_examples
from oxibonsai.finetune.settings import FinetuneSettings
from oxibonsai.hf.tokenizer import AutoTokenizer
from oxibonsai.loading import open_model

with needs_extra("finetune"):
    import peft
    import torch
    import transformers
    from transformers.trainer_utils import get_last_checkpoint

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
    find: Any = get_last_checkpoint
    newest = find(str(checkpoints)) if checkpoints.is_dir() else None
    if not resume and (newest is not None or (out / "adapter_config.json").exists()):
        raise RequestError(
            f"{out} has an adapter or checkpoints: go on with --resume, or name a new folder"
        )
    checkpoint, tokenizer = open_model(source), AutoTokenizer.from_pretrained(source)
    learnt = read_examples(Path(data), tokenizer, settings.context)
    measured = read_examples(Path(held_out), tokenizer, settings.context) if held_out else None
    transformers.set_seed(settings.seed)
    name = str(checkpoint.path) if source is None else str(source)
    with _quiet(), step_progress("Training", "steps") as progress:
        with _refusals():
            model = trainable_model(checkpoint, _adapter(settings), settings.dtype, name)
            make_folder(out)
            trainer = _trainer(model, learnt, measured, checkpoints, settings, progress)
        trainer.train(resume_from_checkpoint=newest)
        if measured is not None:
            trainer.evaluate()
        model.save_pretrained(str(out))
    history = trainer.state.log_history
    learning, measuring = (
        [(row["step"], row[key]) for row in history if key in row] for key in ("loss", "eval_loss")
    )
    save_losses(out / "loss.png", learning, measuring, x="updates", y="loss, nats a token")
    return Result(
        adapter=out,
        steps=trainer.state.global_step,
        examples=len(learnt.items),
        cut=learnt.cut,
        dropped=learnt.dropped,
        loss=learning[-1][1],
        held_out=measuring[-1][1] if measuring else None,
    )


@contextmanager
def _refusals() -> Iterator[None]:
    """Say of settings that transformers or PEFT refuses what they say.

    Raises:
        RequestError: A name or a value is none of theirs, or needs a package that is not installed.
    """
    try:
        yield
    except OxiBonsaiError:
        raise
    except (ValueError, RuntimeError) as e:
        raise RequestError(f"these settings make no run: {e}") from e


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the libraries from warning of each other's old names, and that a hub can't be asked.

    PEFT asks it whether the base has other embeddings. No base of ours has any.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Could not find a config file", UserWarning)
        warnings.filterwarnings("ignore", ".*gradient_checkpointing", FutureWarning)
        yield


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
    arguments = transformers.TrainingArguments(
        str(checkpoints),
        num_train_epochs=settings.epochs,
        max_steps=settings.steps or -1,
        per_device_train_batch_size=settings.batch,
        per_device_eval_batch_size=settings.batch,
        gradient_accumulation_steps=settings.accumulate,
        learning_rate=settings.learning_rate,
        lr_scheduler_type=settings.schedule,
        warmup_steps=settings.warmup,
        weight_decay=settings.weight_decay,
        max_grad_norm=settings.clip,
        gradient_checkpointing=settings.checkpointing,
        seed=settings.seed,
        save_steps=settings.save_every,
        save_total_limit=settings.keep,
        eval_strategy="no" if measured is None else "steps",
        eval_steps=settings.save_every,
        logging_steps=1,
        report_to=settings.names("report_to"),
        disable_tqdm=True,
        dataloader_pin_memory=torch.cuda.is_available(),
    )
    trainer = transformers.Trainer(
        model,
        arguments,
        data_collator=_batch,
        train_dataset=learnt.items,
        eval_dataset=None if measured is None else measured.items,
        callbacks=[_Progress(progress)],
    )
    trainer.remove_callback(transformers.PrinterCallback)
    return trainer


class _Progress(transformers.TrainerCallback):
    """Shows updates, with their loss."""

    def __init__(self, progress: StepProgress) -> None:
        self._progress = progress

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **more: Any) -> None:
        """Show a row of the log."""
        if logs and "loss" in logs:
            self._progress(state.global_step, state.max_steps, f"loss {float(logs['loss']):.3f}")


def _batch(examples: Sequence[Example]) -> dict[str, torch.Tensor]:
    """Return examples as tensors [examples, longest], filled up behind their ends."""
    longest = max(len(e.ids) for e in examples)

    def rows(lists: list[list[int]], fill: int) -> torch.Tensor:
        return torch.tensor([row + [fill] * (longest - len(row)) for row in lists])

    return {
        "input_ids": rows([e.ids for e in examples], 0),
        "attention_mask": rows([[1] * len(e.ids) for e in examples], 0),
        "labels": rows([e.labels for e in examples], IGNORED),
    }
