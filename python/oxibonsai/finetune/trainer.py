"""Run transformers' Trainer as the commands do: its arguments, its progress, its refusals."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers.trainer_utils import get_last_checkpoint
from transformers.utils import logging

from oxibonsai.errors import FormatError, OxiBonsaiError, RequestError, UnsupportedError
from oxibonsai.files.figures import save_losses
from oxibonsai.files.step_progress import StepProgress
from oxibonsai.finetune.examples import IGNORED, Example, PackedExample, pack_examples
from oxibonsai.finetune.settings import LearningSettings

_SAME_LOGITS = 0.02  # of the largest: more than bfloat16 rounds


def checkpoint_to_resume(checkpoints: Path, result: Path, what: str, *, resume: bool) -> str | None:
    """Return the newest checkpoint of a run; None: it begins anew.

    Args:
        checkpoints: The folder of them, in that of the run.
        result: The file that the run leaves at its end.
        what: The words for it.
        resume: Whether the user wants to go on with an earlier run.

    Raises:
        RequestError: There was an earlier run, which is not to be resumed.
    """
    find: Any = get_last_checkpoint
    newest: str | None = find(str(checkpoints)) if checkpoints.is_dir() else None
    if not resume and (newest is not None or result.exists()):
        raise RequestError(
            f"{checkpoints.parent} has {what} or checkpoints: go on with --resume, or name a new folder"
        )
    return newest


def train(trainer: Any, newest: str | None) -> None:
    """Train from a checkpoint on, or from the beginning, and measure the held-out examples at the end."""
    trainer.train(resume_from_checkpoint=newest)
    if trainer.eval_dataset is not None:
        trainer.evaluate()


def training_arguments(
    settings: LearningSettings, checkpoints: Path, *, measures: bool, **more: Any
) -> Any:
    """Return settings as the Trainer takes them.

    Args:
        settings: The settings.
        checkpoints: Folder of the checkpoints.
        measures: Whether held-out examples are measured at each of them.
        **more: Further ``transformers.TrainingArguments``.
    """
    return transformers.TrainingArguments(
        str(checkpoints),
        num_train_epochs=settings.epochs,
        max_steps=settings.steps or -1,
        per_device_train_batch_size=settings.batch,
        per_device_eval_batch_size=settings.batch,
        gradient_accumulation_steps=settings.accumulate,
        learning_rate=settings.learning_rate,
        warmup_steps=settings.warmup,
        weight_decay=settings.weight_decay,
        max_grad_norm=settings.clip,
        seed=settings.seed,
        save_steps=settings.save_every,
        save_total_limit=settings.keep,
        eval_strategy="steps" if measures else "no",
        eval_steps=settings.save_every,
        logging_steps=1,
        report_to=settings.names("report_to"),
        disable_tqdm=True,
        dataloader_pin_memory=torch.cuda.is_available(),
        **more,
    )


class Progress(transformers.TrainerCallback):
    """Shows updates, with their loss."""

    def __init__(self, progress: StepProgress) -> None:
        self._progress = progress

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **more: Any) -> None:
        """Show a row of the log."""
        if logs and "loss" in logs:
            self._progress(state.global_step, state.max_steps, f"loss {float(logs['loss']):.3f}")


def batch(examples: Sequence[Example]) -> dict[str, torch.Tensor]:
    """Return examples as tensors [examples, longest], filled up behind their ends.

    Of packed ones, positions say which tokens see each other, and there is no mask beside them.
    """
    longest = max(len(e.ids) for e in examples)

    def rows(lists: list[list[int]], fill: int) -> torch.Tensor:
        return torch.tensor([row + [fill] * (longest - len(row)) for row in lists])

    found = {
        "input_ids": rows([e.ids for e in examples], 0),
        "labels": rows([e.labels for e in examples], IGNORED),
    }
    packed = [e.positions for e in examples if isinstance(e, PackedExample)]
    if packed:  # what fills a row up is one more text
        found["position_ids"] = torch.tensor([[*p, *range(longest - len(p))] for p in packed])
    else:
        found["attention_mask"] = rows([[1] * len(e.ids) for e in examples], 0)
    return found


def check_packing(model: Any, where: str) -> None:
    """Check that packed texts don't see each other in transformers' model.

    Raises:
        UnsupportedError: They would.
        FormatError: The model computes something that is no number.
    """
    first, second = list(range(1, 9)), list(range(9, 17))
    both = [Example(first, first), Example(second, second)]
    packed = batch(pack_examples(both, 16))
    model.eval()  # nothing is dropped at random
    with torch.no_grad():
        beside = model(input_ids=packed["input_ids"], position_ids=packed["position_ids"]).logits
        alone = model(input_ids=torch.tensor([second])).logits
    if not alone.isfinite().all():
        raise FormatError(
            f"{where} computes logits that are no finite numbers: its file is damaged"
        )
    if not (beside[:, 8:] - alone).abs().max() <= _SAME_LOGITS * alone.abs().max():  # or it is NaN
        raise UnsupportedError(
            f"{where} can't learn from packed examples: in transformers' {type(model).__name__} they "
            "would see each other; leave out --packing"
        )


Losses = list[tuple[int, float]]  # updates, and the loss after so many, nats a token


def plot_losses(trainer: Any, out: Path) -> tuple[Losses, Losses]:
    """Write ``loss.png`` into the run's folder; return the losses of examples and of held-out ones."""

    def logged(key: str) -> Losses:
        return [(row["step"], row[key]) for row in trainer.state.log_history if key in row]

    learning, measuring = logged("loss"), logged("eval_loss")
    save_losses(out / "loss.png", learning, measuring, x="updates", y="loss, nats a token")
    return learning, measuring


@contextmanager
def refusals() -> Iterator[None]:
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
def quiet() -> Iterator[None]:
    """Keep the libraries from warning of each other's old names, and that a hub can't be asked.

    PEFT asks it whether the base has other embeddings. No base of ours has any. Nor do they show bars of
    their own beside ours.
    """
    shown: Any = logging  # which has no types
    bars = shown.is_progress_bar_enabled()
    shown.disable_progress_bar()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Could not find a config file", UserWarning)
        warnings.filterwarnings("ignore", ".*gradient_checkpointing", FutureWarning)
        try:
            yield
        finally:
            if bars:
                shown.enable_progress_bar()
