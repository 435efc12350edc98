"""Distill: from a model to one of few bits that says the same, as a GGUF file."""

from __future__ import annotations

import gc
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oxibonsai.checkpoint import Checkpoint
from oxibonsai.convert.language_model import plan_language_model
from oxibonsai.devices import default_threads
from oxibonsai.distill.settings import MUON, DistillSettings
from oxibonsai.errors import RequestError, UnsupportedError, needs_extra
from oxibonsai.export import save_model
from oxibonsai.export.config_json import inverse_of
from oxibonsai.files.step_progress import step_progress
from oxibonsai.files.whole_file import make_folder
from oxibonsai.finetune.examples import Example, read_examples
from oxibonsai.hf.tokenizer import AutoTokenizer
from oxibonsai.loading import open_model
from oxibonsai.quantize import TypeRules, find_mix, make_plan, write

with needs_extra("finetune"):
    import torch
    import transformers

    from oxibonsai.distill.optimization import torch_schedule
    from oxibonsai.distill.rounding import Rounding, plan_rounding
    from oxibonsai.distill.stored_logits import taught_batch, with_logits
    from oxibonsai.distill.trainer import DistillTrainer, perplexity
    from oxibonsai.finetune.trainer import (
        Progress,
        checkpoint_to_resume,
        plot_losses,
        quiet,
        refusals,
        train,
        training_arguments,
    )
    from oxibonsai.hf.trainable import filled_model

_LOGITS = "teacher_logits.bin"  # while the run lasts


@dataclass(frozen=True)
class Perplexities:
    """Perplexities of held-out examples.

    Attributes:
        teacher: Of the teacher.
        rounded: Of the student before the first update: the teacher's weights, rounded.
        distilled: Of the student after the last one.
    """

    teacher: float
    rounded: float
    distilled: float


@dataclass(frozen=True)
class Result:
    """The result of a run.

    Attributes:
        gguf: The file.
        steps: Updates.
        examples: That it learnt from, none longer than the context.
        loss: Of the last update, for each token.
        held_out: Perplexities; None without held-out examples.
        warnings: What the user should know of the types.
    """

    gguf: Path
    steps: int
    examples: int
    loss: float
    held_out: Perplexities | None
    warnings: list[str]


def distill(
    source: str | os.PathLike[str] | None,
    data: str | os.PathLike[str],
    out: str | os.PathLike[str],
    settings: DistillSettings,
    *,
    held_out: str | os.PathLike[str] | None = None,
    resume: bool = False,
) -> Result:
    """Teach a model's weights to be of another type, and write them.

    Args:
        source: The model, as of :func:`oxibonsai.load`: the teacher, and where the student begins.
        data: JSON lines; see :func:`oxibonsai.finetune.examples.read_examples`. What is longer than the
            context becomes several examples.
        out: Folder that gets the GGUF file, ``checkpoints`` and ``loss.png``. Made where it is missing.
        settings: The types, what is learnt, and how.
        held_out: Examples that are measured at each checkpoint; not learnt from.
        resume: Go on from the folder's newest checkpoint; the rest as before.

    Raises:
        RequestError: An argument makes no run, or the data holds nothing to learn.
        FormatError: A file is broken.
        UnsupportedError: A package of the extra is missing, or the model can't be trained.
    """
    out = Path(out)
    checkpoints, gguf = out / "checkpoints", out / f"{out.resolve().name}.gguf"
    newest = checkpoint_to_resume(checkpoints, gguf, "a model", resume=resume)
    if torch.cuda.device_count() > 1:
        raise UnsupportedError(
            "distill runs on one device: choose one with the variable CUDA_VISIBLE_DEVICES"
        )
    rules = _rules(settings)
    checkpoint, tokenizer = open_model(source), AutoTokenizer.from_pretrained(source)
    learnt = _examples(Path(data), tokenizer, settings.context)
    measured = _examples(Path(held_out), tokenizer, settings.context) if held_out else None
    inverse = inverse_of(checkpoint, "float32")
    rounding = plan_rounding(checkpoint, inverse, rules)
    transformers.set_seed(settings.seed)
    where = str(checkpoint.path)
    with quiet(), step_progress("Distilling", "steps") as progress:
        with refusals():
            teacher, student = (
                filled_model(inverse, torch.float32, where, packed=False) for _ in range(2)
            )
            teacher.requires_grad_(False).eval()
            _own_values(student)
            make_folder(out)
            trainer = DistillTrainer(
                student,
                teacher,
                rounding,
                settings,
                _arguments(settings, checkpoints, measured is not None),
                data_collator=taught_batch,
                train_dataset=learnt,
                eval_dataset=measured,
                callbacks=[Progress(progress)],
            )
            trainer.remove_callback(transformers.PrinterCallback)
        with _stored_logits(trainer, learnt, settings, out):
            train(trainer, newest)
    _write(checkpoint, rounding, trainer.model, rules, gguf)
    learning, measuring = plot_losses(trainer, out)
    found = None
    if measured is not None:
        entropies = trainer.teacher_cross_entropy(), measuring[0][1], measuring[-1][1]
        found = Perplexities(*map(perplexity, entropies))
    return Result(
        gguf=gguf,
        steps=trainer.state.global_step,
        examples=len(learnt),
        loss=learning[-1][1],
        held_out=found,
        warnings=rounding.warnings,
    )


def _rules(settings: DistillSettings) -> TypeRules:
    return TypeRules(
        find_mix(settings.weight_type),
        pure=settings.pure,
        token_embedding=settings.token_embedding_type or None,
        output=settings.output_tensor_type or None,
    )


def _examples(file: Path, tokenizer: Any, context: int) -> list[Example]:
    """Return the examples of a file, in pieces that are no longer than the context."""
    whole = read_examples(file, tokenizer, sys.maxsize)
    return [piece for example in whole.items for piece in _pieces(example, context)]


def _pieces(example: Example, context: int) -> Iterator[Example]:
    """Yield the parts of an example that have something to learn."""
    for first in range(0, len(example.ids), context):
        ids, labels = (part[first : first + context] for part in (example.ids, example.labels))
        piece = Example(ids, labels)
        if piece.predicted:
            yield piece


@contextmanager
def _stored_logits(
    trainer: DistillTrainer, examples: list[Example], settings: DistillSettings, out: Path
) -> Iterator[None]:
    """Train on the teacher's likeliest tokens, if they are wanted, from a file of the run's folder."""
    if not settings.top_k:
        yield
        return
    file = out / _LOGITS
    try:
        with refusals(), step_progress("Asking the teacher", "examples") as progress:
            trainer.train_dataset = with_logits(
                examples, trainer.teach, settings.top_k, settings.batch, file, progress
            )
        yield
    finally:
        trainer.train_dataset = examples
        gc.collect()  # the file is mapped, and Windows removes none that is
        with suppress(OSError):
            file.unlink(missing_ok=True)


def _own_values(student: Any) -> None:
    """Give a model values of its own, which may be those of a mapped file, and let it learn."""
    for parameter in student.parameters():
        parameter.data = parameter.data.clone()
    student.requires_grad_(True)


def _arguments(settings: DistillSettings, checkpoints: Path, measures: bool) -> Any:
    own = torch_schedule(settings.schedule) is not None
    if own and settings.warmup:
        raise RequestError(
            f"warmup is of transformers' schedules: {settings.schedule} takes schedule_options alone"
        )
    half = settings.dtype == "bfloat16"
    return training_arguments(
        settings,
        checkpoints,
        measures=measures,
        optim="adamw_torch" if settings.optimizer == MUON else settings.optimizer,
        optim_args=settings.optimizer_options or None,
        lr_scheduler_type="constant" if own else settings.schedule,
        lr_scheduler_kwargs={} if own else settings.schedule_arguments(),
        eval_on_start=measures,
        bf16=half,
        use_cpu=not torch.accelerator.is_available(),
    )


def _write(
    checkpoint: Checkpoint, rounding: Rounding, student: Any, rules: TypeRules, gguf: Path
) -> None:
    """Write the student as a file, through the folder that ``oxibonsai convert`` would read."""
    stored = {name: values.cpu().numpy() for name, values in rounding.stored(student).items()}
    with tempfile.TemporaryDirectory(dir=gguf.parent, suffix=".part") as temporary:
        save_model(checkpoint, temporary, learnt=stored)
        planned = plan_language_model(temporary, dtype="f32", name=gguf.stem)
        write(make_plan(planned.reader(), rules, None), gguf, threads=default_threads())
