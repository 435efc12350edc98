"""Check every process against every other before a run: the secret, the version, the file.

Each sends a random number, then proves with all of these numbers that it knows the secret, so that an
answer recorded earlier is of no use. What is sent later is neither encrypted nor signed: the network
between the machines has to be one's own.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import astuple, dataclass, fields

from oxibonsai.distributed.group import Group
from oxibonsai.errors import RequestError

_NUMBER_BYTES = 32


@dataclass(frozen=True)
class Identity:
    """Properties that must be the same in all processes.

    Attributes:
        version: Of oxibonsai.
        model: Fingerprint of the model's files and its adapters.
        layout: Tensor and pipeline parallelism.
        ctx_size: As the user gave it; it chooses LongRoPE's factors.
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
