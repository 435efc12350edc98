"""What all clients are asked: a question, a tool, an answer of a given shape."""

# Clients read the hints of weather() as they stand: they are no strings here.

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from running_server import RunningServer

MODEL = "served"
QUESTION = "What is the weather in Rome?"
CITIES = ("Paris", "Rome")
PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string", "enum": list(CITIES)}},
    "required": ["city"],
    "additionalProperties": False,  # else a model of random weights makes up names without end
}


class Place(BaseModel):
    """A city."""

    model_config = ConfigDict(extra="forbid")

    city: Literal["Paris", "Rome"]


class Report(Place):
    """The weather of a city."""

    degrees: int = Field(ge=0, le=9)


def weather(city: Literal["Paris", "Rome"]) -> str:
    """Says the weather of a city.

    Args:
        city: Its name.
    """
    return f"21 degrees in {city}"


def address(server: RunningServer) -> str:
    """Of the APIs that have no version in their base."""
    return f"http://127.0.0.1:{server.port}"


def openai_url(server: RunningServer) -> str:
    """What clients of OpenAI's API call the base."""
    return f"{address(server)}/v1"
