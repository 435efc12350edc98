"""Request bodies of ``/slots/{id}``, ``/tokenize``, ``/detokenize`` and ``/models/load``."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from oxibonsai.server.schemas.fields import Fields


class SlotAction(Fields):
    """The query parameters of ``POST /slots/{id}``."""

    action: Literal["save", "restore", "erase"]


class SlotFile(Fields):
    """The body of ``POST /slots/{id}``; ``erase`` needs none."""

    filename: str = Field(
        pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$",
        description="File in the folder of --slot-save-path; letters, digits, dot, dash, underscore.",
    )


class TokenizeBody(BaseModel):
    """``POST /tokenize``."""

    model_config = ConfigDict(extra="ignore", strict=True)

    content: str
    add_special: bool = False
    parse_special: bool = True
    with_pieces: bool = False


class DetokenizeBody(BaseModel):
    """``POST /detokenize``."""

    model_config = ConfigDict(extra="ignore", strict=True)

    tokens: list[int]


class ModelName(Fields):
    """``POST /models/load`` and ``/models/unload``."""

    model: str
