"""An object in a process of its own, asked over pipes: one JSON line a request, one an answer.

Nothing here is imported but the standard library: a worker may run under another interpreter.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any, cast

_HWM = re.compile(r"^VmHWM:\s*(\d+) kB$", re.MULTILINE)


class WorkerError(Exception):
    """A worker that refused a request or ended before its answer."""


class Worker:
    """The asking side.

    Args:
        name: What messages call it.
        command: A program that ends in :func:`serve`.

    Raises:
        WorkerError: There is no such program.

    Attributes:
        waits: Times that it has waited for a request.
        idle_cpu_seconds: What its threads burned meanwhile, taken from whoever ran then.
    """

    def __init__(self, name: str, command: Sequence[str]) -> None:
        self.name = name
        self.waits = 0
        self.idle_cpu_seconds = 0.0
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
        except OSError as error:
            raise WorkerError(f"{name}: can't start {command[0]}: {error.strerror}") from error
        self._requests = cast(IO[str], self._process.stdin)
        self._answers = cast(IO[str], self._process.stdout)

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()  # closes its input, which ends serve()

    def ask(self, method: str, **arguments: Any) -> Any:
        """Calls a method of the worker's object; "make", the first call, makes the object.

        Raises:
            WorkerError: The method raised, or the process has ended.
        """
        try:
            print(json.dumps([method, arguments]), file=self._requests, flush=True)
            line = self._answers.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise WorkerError(f"{self.name}: the worker ended with status {self._process.wait()}")
        answer = json.loads(line)
        self.waits += 1
        self.idle_cpu_seconds += answer["idle_cpu_seconds"]
        if "error" in answer:
            raise WorkerError(f"{self.name}: {answer['error']}")
        return answer["result"]


def serve(make: Callable[..., Any]) -> None:
    """The answering side: makes one object and calls its methods until the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints must not end up among the answers
    made = None
    cpu = time.process_time()
    for line in sys.stdin:
        answer: dict[str, Any] = {"idle_cpu_seconds": time.process_time() - cpu}
        method, arguments = json.loads(line)
        try:
            if method == "make":
                made = make(**arguments)
                answer["result"] = None
            else:
                answer["result"] = getattr(made, method)(**arguments)
        except Exception as error:  # whatever it is, the asking side reports it
            answer["error"] = f"{type(error).__name__}: {error}"
        print(json.dumps(answer), file=answers, flush=True)
        cpu = time.process_time()


def peak_bytes() -> int:
    """Most memory this process has held at once, mapped files included."""
    status = Path("/proc/self/status")
    if status.exists():
        found = _HWM.search(status.read_text())
        if found:
            return int(found[1]) * 1024
    import resource

    # Bytes on macOS, which alone gets here. Linux counts the parent in; so it is not asked there.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
