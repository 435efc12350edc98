"""From the flags of a process to its part of a running model, once all processes agree."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from collections.abc import Sequence
from dataclasses import astuple, dataclass, field, fields

from oxibonsai import __version__
from oxibonsai.checkpoint import Checkpoint
from oxibonsai.devices import CPU, chosen_device
from oxibonsai.distributed.device import RankPlan
from oxibonsai.distributed.follower import follow
from oxibonsai.distributed.group import Group, Link, join
from oxibonsai.errors import RequestError
from oxibonsai.loading import LoraChoice, open_adapters, open_model
from oxibonsai.lora import Adapter
from oxibonsai.models import Parity, check_parity, load_model

_NUMBER_BYTES = 32


@dataclass(frozen=True)
class Identity:
    """Properties that must be the same in all processes.

    Attributes:
        version: Of oxibonsai.
        model: Fingerprint of the model's files and its adapters.
        layout: Tensor and pipeline parallelism.
        ctx_size: As the user gave it; it chooses LongRoPE's factors and dynamic NTK's base.
    """

    version: str
    model: str
    layout: str
    ctx_size: str


# What a difference in each field of an identity is called.
_DIFFERENCES = {
    "version": "runs another version of oxibonsai",
    "model": "has another model file, or other adapters",
    "layout": "was started with another --tensor-parallel or --pipeline-parallel",
    "ctx_size": "was started with another --ctx-size",
}


def verify(group: Group, identity: Identity, secret: str) -> None:
    """Check that all processes know the secret and have the same identity.

    Each sends a random number, then proves with all of these numbers that it knows the secret, so that
    an answer recorded earlier is of no use. What is sent later is neither encrypted nor signed: the
    network between the machines has to be one's own.

    Args:
        group: All processes; each calls this.
        identity: Of this process.
        secret: Known to all of them.

    Raises:
        RequestError: One does not; the message names it.
    """
    numbers = group.all_gather_bytes(secrets.token_bytes(_NUMBER_BYTES))
    digests = [hashlib.sha256(text.encode()).digest() for text in astuple(identity)]
    own = b"".join(digests)

    def proof(rank: int, record: bytes) -> bytes:
        message = b"".join([*numbers, rank.to_bytes(4, "big"), record])
        return hmac.new(secret.encode(), message, hashlib.sha256).digest()

    answers = group.all_gather_bytes(own + proof(group.rank, own))
    problems = []
    for rank, answer in enumerate(answers):
        record, given = answer[: len(own)], answer[len(own) :]
        if not hmac.compare_digest(given, proof(rank, record)):
            problems.append(f"rank {rank} has another secret (OXIBONSAI_GROUP_SECRET)")
            continue
        for i, f in enumerate(fields(Identity)):
            there = record[32 * i : 32 * (i + 1)]
            if there != digests[i]:
                problems.append(f"rank {rank} {_DIFFERENCES[f.name]} than rank {group.rank}")
    if problems:
        raise RequestError(f"these processes cannot run one model: {'; '.join(problems)}")


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
        device: Of this process; ``cuda`` is the card whose number is the process's on its machine.
            None: the CPU.
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
    device: str | None = None

    def own_device(self) -> str:
        """Return the name of this process's device.

        Raises:
            RequestError: It is no name of one device.
        """
        if self.device is None:
            return CPU
        if self.device == "cuda":
            return f"cuda:{os.environ.get('LOCAL_RANK', '0')}"
        if self.device == "auto" or "," in self.device:
            raise RequestError(
                f"--device {self.device} chooses devices for one process: start a process for each card, "
                "with --device cuda"
            )
        return chosen_device(self.device)


def start(choice: Choice) -> tuple[Group, RankPlan]:
    """Join the group and check that all processes have the same model, version and secret.

    Raises:
        RequestError: They have not, or a flag makes no sense.
        DeviceError: Not all came in time.
        OxiBonsaiError: The model cannot be opened.
    """
    device = choice.own_device()
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
    return group, RankPlan(group, choice.threads, device)


def serve_rank(choice: Choice, group: Group, plan: RankPlan) -> None:
    """Run this process's part of the model until rank 0 stops; not on rank 0.

    Raises:
        DeviceError: Another process was lost.
    """
    with group.shared_work():
        checkpoint = open_model(choice.model, choice.quant_type)
        adapters = open_adapters(choice.lora, checkpoint)
        model = load_model(checkpoint, plan, adapters=adapters, ctx_size=choice.ctx_size)
        check_parity(model, choice.parity, "f32")
        follow(group, model)


def _fingerprint(checkpoint: Checkpoint, adapters: Sequence[Adapter]) -> str:
    used = [(a.fingerprint, a.scale) for a in adapters]
    return f"{checkpoint.fingerprint()} {used}"
