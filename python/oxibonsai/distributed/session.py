"""From the flags of a process to its part of a running model."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field

from oxibonsai import __version__
from oxibonsai.checkpoint import Checkpoint
from oxibonsai.distributed.device import RankPlan
from oxibonsai.distributed.follower import follow
from oxibonsai.distributed.group import Group, Link, join
from oxibonsai.distributed.handshake import Identity, verify
from oxibonsai.errors import RequestError
from oxibonsai.loading import LoraChoice, open_adapters, open_model
from oxibonsai.lora import Adapter
from oxibonsai.models import Parity, check_parity, load_model

_SECRET = "OXIBONSAI_GROUP_SECRET"


@dataclass(frozen=True)
class Choice:
    """A process's task in a group.

    Attributes:
        model: As of :func:`oxibonsai.load`.
        tensor: Processes that share the rows of every matrix.
        pipeline: Stages that share the layers.
        link: How the processes reach each other.
        threads, parity, quant_type, lora, ctx_size: As of :func:`oxibonsai.load`; parity is not
            ``full``.
    """

    model: str | None
    tensor: int = 1
    pipeline: int = 1
    link: Link = field(default_factory=Link)
    threads: int | None = None
    parity: Parity = "quick"
    quant_type: str = ""
    lora: LoraChoice | None = None
    ctx_size: int | None = None


def start(choice: Choice) -> tuple[Group, RankPlan]:
    """Join the group and check that all processes have the same model, version and secret.

    Raises:
        RequestError: They have not, or a flag makes no sense.
        DeviceError: Not all came in time.
        OxiBonsaiError: The model cannot be opened.
    """
    if choice.parity == "full":
        raise RequestError(
            "--parity full needs the whole model in one process: choose quick or off"
        )
    secret = os.environ.get(_SECRET, "")
    if not secret:
        raise RequestError(f"set {_SECRET} to the same secret in all processes")
    checkpoint = open_model(choice.model, choice.quant_type)
    adapters = open_adapters(choice.lora, checkpoint)
    group = join(choice.tensor, choice.pipeline, choice.link)
    layout, fingerprint = f"{choice.tensor} x {choice.pipeline}", _fingerprint(checkpoint, adapters)
    verify(group, Identity(__version__, fingerprint, layout, str(choice.ctx_size)), secret)
    return group, RankPlan(group, choice.threads)


def serve_rank(choice: Choice, group: Group, plan: RankPlan) -> None:
    """Run this process's part of the model until rank 0 stops; not on rank 0.

    Raises:
        DeviceError: Another process was lost.
    """
    checkpoint = open_model(choice.model, choice.quant_type)
    adapters = open_adapters(choice.lora, checkpoint)
    model = load_model(checkpoint, plan, adapters=adapters, ctx_size=choice.ctx_size)
    check_parity(model, choice.parity, "f32")
    follow(group, model)


def _fingerprint(checkpoint: Checkpoint, adapters: Sequence[Adapter]) -> str:
    used = [(a.fingerprint, a.scale) for a in adapters]
    return f"{checkpoint.fingerprint()} {used}"
