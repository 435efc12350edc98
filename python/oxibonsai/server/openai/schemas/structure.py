"""Structured output fields, under the names of OpenAI, llama-server and vLLM."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from pydantic import ConfigDict, Field

from oxibonsai.errors import RequestError
from oxibonsai.server.described_json import described_json
from oxibonsai.server.schemas.fields import Checked
from oxibonsai.structured import Structure

Schema = dict[str, Any] | bool


class NamedSchema(Checked):
    """``response_format.json_schema``."""

    model_config = ConfigDict(extra="ignore", strict=True, populate_by_name=True)

    name: str | None = Field(None, max_length=256)
    description: str | None = None
    schema_: Schema | None = Field(None, alias="schema")
    strict: bool | None = None


class ResponseFormat(Checked):
    """``response_format``."""

    model_config = ConfigDict(extra="ignore", strict=True, populate_by_name=True)

    type: Literal["text", "json_object", "json_schema"]
    json_schema: NamedSchema | None = None
    schema_: Schema | None = Field(
        None, alias="schema", description="llama-server's place for the schema of a json_object."
    )

    def structure(self) -> Structure | None:
        """Return the structure; None for plain text."""
        if self.type == "text":
            return None
        schema = self.schema_
        if self.json_schema is not None and self.json_schema.schema_ is not None:
            schema = self.json_schema.schema_
        if schema is not None:
            strict = self.json_schema.strict if self.json_schema is not None else None
            return described_json(schema, strict=strict)
        if self.type == "json_schema":
            raise RequestError("response_format.json_schema.schema is missing")
        return Structure.json_object()


class StructuredOutputs(Checked):
    """vLLM's ``structured_outputs``; one of these fields."""

    model_config = ConfigDict(extra="ignore", strict=True)

    json_: Schema | str | None = Field(None, alias="json")
    json_object: bool | None = None
    regex: str | None = None
    choice: list[str] | None = Field(None, min_length=1)
    grammar: str | None = Field(None, description="GBNF.")


class StructureFields(Checked):
    """Structured output; at most one of these fields."""

    model_config = ConfigDict(extra="ignore", strict=True)

    response_format: ResponseFormat | None = None
    json_schema: Schema | None = Field(None, description="As llama-server takes it.")
    grammar: str | None = Field(None, description="GBNF, as llama-server takes it; empty: none.")
    guided_json: Schema | str | None = None
    guided_regex: str | None = None
    guided_choice: list[str] | None = Field(None, min_length=1)
    guided_grammar: str | None = None
    regex: str | None = None
    choice: list[str] | None = Field(None, min_length=1)
    structured_outputs: StructuredOutputs | None = None

    def structure(self) -> Structure | None:
        """Return the requested structure.

        Raises:
            RequestError: More than one field is given, or a schema or grammar is invalid.
        """
        asked: dict[str, Structure] = {}

        def ask(name: str, make: Callable[[Any], Structure], value: Any) -> None:
            if value is not None:
                asked[name] = make(value)

        plain = self.response_format
        if plain is not None and (structure := plain.structure()) is not None:
            asked["response_format"] = structure
        ask("json_schema", described_json, self.json_schema)
        ask("grammar", Structure.gbnf, self.grammar or None)
        ask("guided_json", described_json, self.guided_json)
        ask("guided_regex", Structure.regex, self.guided_regex)
        ask("guided_choice", Structure.choice, self.guided_choice)
        ask("guided_grammar", Structure.gbnf, self.guided_grammar)
        ask("regex", Structure.regex, self.regex)
        ask("choice", Structure.choice, self.choice)
        if (more := self.structured_outputs) is not None:
            ask("structured_outputs.json", described_json, more.json_)
            ask("structured_outputs.json_object", _any_object, more.json_object or None)
            ask("structured_outputs.regex", Structure.regex, more.regex)
            ask("structured_outputs.choice", Structure.choice, more.choice)
            ask("structured_outputs.grammar", Structure.gbnf, more.grammar)
        if len(asked) > 1:
            raise RequestError(f"{' and '.join(asked)} exclude each other: send one of them")
        return next(iter(asked.values()), None)


def _any_object(_: bool) -> Structure:
    return Structure.json_object()
