"""Events of a stream, as clients read them."""

from __future__ import annotations

import json
from typing import Any


def read_events(text: str) -> list[tuple[str | None, Any]]:
    """Name and data of each event; data that is no JSON stays text; comments are left out."""
    events = []
    for block in text.split("\n\n"):
        lines = [line for line in block.split("\n") if line and not line.startswith(":")]
        fields = dict(line.split(": ", 1) for line in lines)
        if fields:
            data = fields["data"]
            value = json.loads(data) if data.startswith("{") else data
            events.append((fields.get("event"), value))
    return events
