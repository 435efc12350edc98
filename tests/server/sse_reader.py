"""Events of a stream that a test client has read to its end."""

from __future__ import annotations

import json
from typing import Any

from werkzeug.test import TestResponse


def events(answer: TestResponse) -> list[Any]:
    """The JSON of each event; the stream ends with ``[DONE]`` and nothing after it."""
    assert answer.mimetype == "text/event-stream"
    blocks = [b for b in answer.get_data(as_text=True).split("\n\n") if b and not b.startswith(":")]
    assert all(b.startswith("data: ") for b in blocks)
    assert blocks[-1] == "data: [DONE]"
    return [json.loads(b.removeprefix("data: ")) for b in blocks[:-1]]
