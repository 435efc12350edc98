"""A request on its way from a front to the replica that answers it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from oxibonsai.ray_app.prefix_affinity import Block

Headers = list[tuple[bytes, bytes]]


@dataclass(frozen=True)
class ForwardedRequest:
    """The ASGI scope of a request, with its body.

    Attributes:
        scope: The members of the ASGI scope that are plain data.
        body: All of it.
        blocks: Of its prompt, for the router; not sent to the replica.
    """

    scope: dict[str, Any]
    body: bytes
    blocks: Sequence[Block] = ()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "blocks": ()}


@dataclass(frozen=True)
class AnswerHead:
    """The first piece of an answer; the others are bytes of its body."""

    status: int
    headers: Headers
