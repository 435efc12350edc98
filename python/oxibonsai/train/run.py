"""A run: from texts and settings to a folder with log, checkpoints and the exported model."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.optim import Optimizer, lr_scheduler
from transformers import Qwen3ForCausalLM

from oxibonsai.errors import OxiBonsaiError, RequestError
from oxibonsai.files.whole_file import make_folder
from oxibonsai.train import checkpoints, export
from oxibonsai.train.data import TrainTokenizer, Windows, in_order
from oxibonsai.train.log import Log, Row, plot, read_rows
from oxibonsai.train.network import (
    new_network,
    quantize,
    read_network,
    read_teacher,
    shape_of,
)
from oxibonsai.train.optimization import Objective, optimizers, schedule
from oxibonsai.train.settings import NetworkShape, TrainSettings


@dataclass(frozen=True, init=False)
class Sources:
    """Where a run reads from.

    Attributes:
        texts: JSON lines with ``text`` to learn from.
        tokenizer: Folder with ``tokenizer.json`` and ``tokenizer_config.json``.
        held_out: Texts that are measured at each checkpoint, and never learnt from.
        init: Weights to begin with: a model folder or a checkpoint; None: random ones.
        teacher: Network whose logits are learnt too: a model folder or a checkpoint.
    """

    texts: Path
    tokenizer: Path
    held_out: Path | None
    init: Path | None
    teacher: Path | None

    def __init__(
        self,
        texts: str | os.PathLike[str],
        tokenizer: str | os.PathLike[str],
        held_out: str | os.PathLike[str] | None = None,
        init: str | os.PathLike[str] | None = None,
        teacher: str | os.PathLike[str] | None = None,
    ) -> None:
        given = {"texts": texts, "tokenizer": tokenizer}
        given_or_none = {"held_out": held_out, "init": init, "teacher": teacher}
        for name, path in {**given, **given_or_none}.items():
            object.__setattr__(self, name, None if path is None else Path(path))


@dataclass(frozen=True)
class Result:
    """The result of a run.

    Attributes:
        model: Folder of safetensors.
        gguf: The same as one file.
        perplexity: Of the held-out texts, None without them.
    """

    model: Path
    gguf: Path
    perplexity: float | None


def train(
    out: str | os.PathLike[str],
    sources: Sources,
    settings: TrainSettings,
    shape: NetworkShape | None = None,
    *,
    resume: bool = False,
) -> Result:
    """Train a network and write it.

    Args:
        out: Folder of the run: ``log.csv``, ``loss.png``, ``step-N.pt``, ``model/`` and, by the
            folder's name, ``NAME.gguf``. Made where it is missing.
        sources: What to read.
        settings: How to learn.
        shape: Of a network of random weights; not with ``sources.init``, which has its own.
        resume: Go on from the folder's newest checkpoint, where it has one, with its network;
            ``sources.init`` is then not read.

    Raises:
        RequestError: An argument, or a pair of them, makes no run.
        FormatError, UnsupportedError: A file is broken, or of a kind that is not known.
    """
    out = Path(out)
    tokenizer = TrainTokenizer(sources.tokenizer)
    newest = _newest(out, resume)
    network = _network(sources, settings, shape, tokenizer, newest)
    export.check_tokenizer(network, sources.tokenizer)
    teacher = _teacher(sources, settings, network)
    tokens = tokenizer.tokens(sources.texts)
    windows = Windows(tokens, settings.context, settings.batch, settings.seed)
    held_out = _held_out(sources, settings, tokenizer)
    quantize(network, settings.weight_format)
    make_folder(out)
    run = _Run(out, settings, network, teacher, held_out)
    if newest is not None:
        run.restore(newest)
    run.learn(windows)
    plot(out)
    folder = out / "model"
    export.write_folder(network, settings.weight_format, sources.tokenizer, folder)
    gguf = export.write_gguf(folder, settings.weight_format, out.resolve().name)
    entropy = read_rows(out / "log.csv")[-1].held_out
    return Result(folder, gguf, None if entropy is None else math.exp(entropy))


def _network(
    sources: Sources,
    settings: TrainSettings,
    shape: NetworkShape | None,
    tokenizer: TrainTokenizer,
    newest: Path | None,
) -> Qwen3ForCausalLM:
    if newest is not None:
        network = read_network(newest)
        if shape not in (None, shape_of(network)):
            raise RequestError(f"{newest} holds {shape_of(network)}, not {shape}")
        return network
    if sources.init is None:
        shape = shape or NetworkShape()
        shape.check(settings.weight_format)
        return new_network(
            shape, tokenizer.vocab_size, settings.context, settings.seed, tokenizer.eos
        )
    if shape is not None:
        raise RequestError(f"the network's sizes are those of {sources.init}: state none")
    network = read_network(sources.init)
    rows = network.config.vocab_size
    if rows < tokenizer.vocab_size:
        raise RequestError(
            f"{sources.init} has a vocabulary of {rows} tokens, the tokenizer {tokenizer.vocab_size}"
        )
    if settings.context > network.config.max_position_embeddings:
        raise RequestError(
            f"context is {settings.context}; {sources.init} is made for "
            f"{network.config.max_position_embeddings}"
        )
    return network


def _teacher(
    sources: Sources, settings: TrainSettings, network: Qwen3ForCausalLM
) -> Qwen3ForCausalLM | None:
    if sources.teacher is None:
        if settings.distill:
            raise RequestError(f"distill is {settings.distill} but there is no teacher")
        return None
    if not settings.distill:
        raise RequestError("there is a teacher but distill is 0: it would teach nothing")
    teacher = read_teacher(sources.teacher)
    own, taught = network.config.vocab_size, teacher.config.vocab_size
    if own != taught:
        raise RequestError(
            f"{sources.teacher} has a vocabulary of {taught} tokens, the network {own}"
        )
    return teacher


def _held_out(
    sources: Sources, settings: TrainSettings, tokenizer: TrainTokenizer
) -> list[torch.Tensor]:
    if sources.held_out is None:
        return []
    tokens = tokenizer.tokens(sources.held_out)
    return in_order(tokens, settings.context, settings.batch // settings.accumulate)


def _newest(out: Path, resume: bool) -> Path | None:
    """Return the checkpoint to go on from."""
    if out.exists() and not out.is_dir():
        raise RequestError(f"{out} is a file; name a folder for the run")
    if resume:
        found = checkpoints.found(out)
        return found[-1] if found else None
    if out.exists() and any(out.iterdir()):
        raise RequestError(f"{out} is not empty: name another folder, or go on with --resume")
    return None


def _device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def _bfloat16(settings: TrainSettings, device: torch.device) -> bool:
    if settings.precision != "auto":
        return settings.precision == "bfloat16"
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported())
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


class _Run:
    """The state of a run."""

    def __init__(
        self,
        out: Path,
        settings: TrainSettings,
        network: Qwen3ForCausalLM,
        teacher: Qwen3ForCausalLM | None,
        held_out: list[torch.Tensor],
    ) -> None:
        self.out, self.settings, self.network, self.held_out = out, settings, network, held_out
        self.device = _device()
        self.autocast = torch.autocast(
            self.device.type, torch.bfloat16, enabled=_bfloat16(settings, self.device)
        )
        objective = Objective(network, teacher, settings.distill, settings.temperature)
        objective.to(self.device)
        plain = Objective(network)
        self.loss: Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]] = objective
        self.measure: Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]] = plain
        if settings.compile:
            self.loss = torch.compile(objective)
        self.optimizers: list[Optimizer] = optimizers(network, settings)
        self.schedules: list[lr_scheduler.LRScheduler] = [
            schedule(optimizer, settings) for optimizer in self.optimizers
        ]
        self.step = 0

    def restore(self, checkpoint: Path) -> None:
        """Go back to a checkpoint."""
        self.step = checkpoints.restore(
            checkpoint, self.network, self.settings, self.optimizers, self.schedules
        )

    def learn(self, windows: Windows) -> None:
        """Do all steps that are left."""
        settings = self.settings
        with Log(self.out, settings.steps, self.step) as log:
            began = time.perf_counter()
            while self.step < settings.steps:
                rate = float(self.schedules[0].get_last_lr()[0])
                loss, entropy, norm = self.update(windows.batch(self.step))
                self.step += 1
                saves = self.step % settings.save_every == 0 or self.step == settings.steps
                ended = time.perf_counter()
                row = Row(
                    self.step,
                    self.step * settings.tokens_per_step,
                    loss,
                    entropy,
                    self.held_out_entropy() if saves else None,
                    rate,
                    norm,
                    settings.tokens_per_step / (ended - began),
                )
                log.add(row)
                if saves:
                    checkpoints.save(
                        self.out, self.step, self.network, settings, self.optimizers, self.schedules
                    )
                began = time.perf_counter()

    def update(self, batch: torch.Tensor) -> tuple[float, float, float]:
        """Do one step; return its loss, its cross-entropy and the norm of its gradient.

        Raises:
            OxiBonsaiError: The loss is no number any more.
        """
        settings = self.settings
        parts = batch.to(self.device).chunk(settings.accumulate)
        losses = torch.zeros(2)
        for part in parts:
            with self.autocast:
                loss, entropy = self.loss(part)
            torch.autograd.backward(loss / len(parts))
            losses += torch.stack([loss.detach(), entropy.detach()]).cpu() / len(parts)
        if not torch.isfinite(losses).all():
            raise OxiBonsaiError(
                f"the loss is {losses[0]} at step {self.step + 1}: lower the learning rate"
            )
        parameters = list(self.network.parameters())
        norm = torch.nn.utils.clip_grad_norm_(parameters, settings.clip or math.inf)
        for optimizer, plan in zip(self.optimizers, self.schedules, strict=True):
            optimizer.step()
            plan.step()
            optimizer.zero_grad(set_to_none=True)
        return float(losses[0]), float(losses[1]), float(norm)

    def held_out_entropy(self) -> float | None:
        """Return cross-entropy of the held-out texts, nats a token, in float32."""
        if not self.held_out:
            return None
        total, count = 0.0, 0
        with torch.no_grad():
            for batch in self.held_out:
                targets = batch[:, 1:].numel()
                total += float(self.measure(batch.to(self.device))[1]) * targets
                count += targets
        return total / count
