"""The log: one JSON object a line, with the same members from every logger."""

from __future__ import annotations

import json
import logging
import re
import sys
from typing import Any

from oxibonsai.server.admin.logs import MAX_LINE, JsonFormatter


def line(message: str, *arguments: object, **members: Any) -> dict[str, Any]:
    """What is written for one call of a logger."""
    logger = logging.getLogger("oxibonsai.test")
    error = members.pop("exc_info", None)
    record = logger.makeRecord(
        "oxibonsai.test", logging.WARNING, __file__, 1, message, arguments, error, extra=members
    )
    text = JsonFormatter().format(record)
    assert "\n" not in text
    found: dict[str, Any] = json.loads(text)
    return found


def test_a_line_says_when_how_bad_from_whom_and_what() -> None:
    found = line("%d requests, é", 3)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", found.pop("time"))
    assert found == {"level": "warning", "logger": "oxibonsai.test", "message": "3 requests, é"}


def test_what_is_given_beside_the_message_becomes_members() -> None:
    found = line("x", models=["a"], seconds=0.5, error=ValueError("why"))
    assert found["models"] == ["a"]
    assert found["seconds"] == 0.5
    assert found["error"] == "why"


def test_the_id_of_the_request_stands_on_each_line_that_is_written_for_it(
    monkeypatch: Any,
) -> None:
    monkeypatch.setattr(JsonFormatter, "request_id", staticmethod(lambda: "r1"))
    assert line("x")["request_id"] == "r1"
    assert line("x", request_id="r2")["request_id"] == "r2"


def test_a_long_message_is_cut_at_its_end_and_a_traceback_at_its_beginning() -> None:
    try:
        raise ValueError("y" * 2 * MAX_LINE + "end")
    except ValueError:
        found = line("a" + "x" * MAX_LINE, exc_info=sys.exc_info())
    assert found["message"] == "a" + "x" * (MAX_LINE - 1)
    assert len(found["exception"]) == MAX_LINE
    assert found["exception"].endswith("yend")
