"""A server whose engines have no room, so that what comes next waits."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from oxibonsai.sampling import SamplingParams
from oxibonsai.server.server import Server


@contextlib.contextmanager
def engines_busy(app: Server) -> Iterator[None]:
    """Holds every permit for as long as the block takes."""
    with contextlib.ExitStack() as stack:
        for _ in range(app.submitter.pool.permits):
            stack.enter_context(app.submitter.text([1], SamplingParams(max_tokens=1)))
        yield
