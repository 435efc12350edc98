"""Base class and types that request schemas share."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    StringConstraints,
    model_validator,
)
from pydantic_core import core_schema

_MOST_FIELDS = 1024  # of one object that is checked


def _checked_count(value: Any) -> Any:
    if isinstance(value, dict) and len(value) > _MOST_FIELDS:
        raise ValueError(f"it has {len(value)} fields; at most {_MOST_FIELDS} are accepted")
    return value


def _end_at_the_first_error(schema: Any) -> None:
    """Change the lists in a core schema so, and bounds the objects whose values are checked."""
    if isinstance(schema, list):
        for part in schema:
            _end_at_the_first_error(part)
    elif isinstance(schema, dict):
        for part in list(schema.values()):
            _end_at_the_first_error(part)
        if schema.get("type") == "list":
            schema["fail_fast"] = True
        elif schema.get("type") == "dict" and schema["values_schema"]["type"] != "any":
            inner = dict(schema)
            schema.clear()
            schema.update(core_schema.no_info_before_validator_function(_checked_count, inner))


class Checked(BaseModel):
    """The base of every part of a request: a check ends at the first mistake.

    By itself pydantic collects an error for each wrong item, which takes a hundred times the memory
    of a body that is made of them.
    """

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        schema = handler(source)
        _end_at_the_first_error(schema)
        return schema

    @model_validator(mode="before")
    @classmethod
    def _of_few_fields(cls, value: Any) -> Any:
        return _checked_count(value)


class Fields(Checked):
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
