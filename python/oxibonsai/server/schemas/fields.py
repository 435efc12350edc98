"""Base class and types that request schemas share."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints


class Fields(BaseModel):
    """A part of a request: JSON types are checked strictly, unknown fields are ignored."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True, allow_inf_nan=False)


MOST_MESSAGES = 4096  # of a request, and parts of one of them
MOST_TOOLS = 128

_Key = Annotated[str, StringConstraints(min_length=1, max_length=64)]
_Value = Annotated[str, StringConstraints(max_length=512)]


# Up to 16 key-value pairs that the client chooses.
Metadata = Annotated[dict[_Key, _Value], Field(max_length=16)]


class LoraScale(Fields):
    """An item of ``lora``: an adapter by its number in ``/lora-adapters``."""

    id: int
    scale: float


# Reasoning effort.
Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
