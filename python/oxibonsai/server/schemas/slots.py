"""What ``POST /slots/{id}`` takes."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from oxibonsai.server.schemas.fields import Fields


class SlotAction(Fields):
    """The query."""

    action: Literal["save", "restore", "erase"]


class SlotFile(Fields):
    """The body; ``erase`` reads none."""

    filename: str = Field(
        pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$",
        description="In the folder of --slot-save-path; letters, digits, dot, dash, underscore.",
    )
