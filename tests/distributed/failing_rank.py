"""A process of ``oxibonsai.distributed`` that fails inside a step, by an exception or killed.

Usage under torchrun: failing_rank.py RANK raise|kill ARGUMENTS...
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
from typing import Any

from oxibonsai.distributed import Group
from oxibonsai.distributed.__main__ import main
from oxibonsai.distributed.passes import RankPass

STEPS = 20  # that go well
ERROR = "the test's own"


def fail(how: str) -> None:
    print("\nfailing", file=sys.stderr, flush=True)
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    raise LookupError(ERROR)


def plant(how: str) -> None:
    """Let this process fail at the first message of a step."""
    steps = itertools.count()
    is_due = False
    begin = RankPass.begin

    def counted(self: RankPass, *arguments: Any) -> Any:
        nonlocal is_due
        is_due = next(steps) >= STEPS
        return begin(self, *arguments)

    def failing(method: Any) -> Any:
        def call(*arguments: Any) -> Any:
            if is_due:
                fail(how)
            return method(*arguments)

        return call

    RankPass.begin = counted  # type: ignore[method-assign]
    for name in ("all_gather", "send"):
        setattr(Group, name, failing(getattr(Group, name)))


if __name__ == "__main__":
    rank, how, *arguments = sys.argv[1:]
    if os.environ["RANK"] == rank:
        plant(how)
    sys.argv[1:] = arguments
    main()
