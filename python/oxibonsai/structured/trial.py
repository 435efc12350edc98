"""Compiles a grammar first, or checks a document, in a separate, short-lived process with hard limits.

No check of the text of a grammar bounds what its compilation costs: patterns are intersected,
references multiplied, rules followed by recursion down a stack. What comes through the trial costs
the same once more in our own process, and that is then known to be little. The process gives way to
others, so that it takes the time that a running model leaves.
"""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

from oxibonsai.errors import CapacityError, RequestError, UnsupportedError
from oxibonsai.files.platform import BACKGROUND_PROCESS
from oxibonsai.files.watched_process import kept_within
from oxibonsai.serial_queue import LOOK_SECONDS

SECONDS = 0.8  # of processor time, so that a loaded machine refuses nothing else than an idle one
MEMORY = 224 << 20  # bytes of data, the interpreter's 20 MB among them
_PATIENCE = 300  # seconds until a process that gets no processor is given up

# A line of a grammar that llguidance shows, or the mark under the place in it.
_IMAGE = re.compile(r"\s*(\d+ \|.*|\^+)")

# What a grammar may cost, at compilation and at every token: llguidance's defaults, lowered where
# they stand for more time and memory than a request is worth.
COSTS: dict[str, Any] = {
    "max_grammar_size": 200_000,
    "max_lexer_states": 50_000,
    # Of one mask. An ambiguous grammar takes time in proportion to their square: with these 0.1 s.
    "step_max_items": 25_000,
    "verbose_errors": False,
}


def compile_elsewhere(
    kind: str,
    grammar: str,
    *,
    options: str,
    special: Mapping[int, str],
    ends: frozenset[int],
    vocab_size: int,
    look: Callable[[], None] | None = None,
) -> str:
    """Return the grammar as Lark, once it is known to compile within the limits.

    Args:
        kind: ``gbnf`` for a grammar of that dialect; anything else is Lark.
        grammar: Its text.
        options: Put behind the grammar.
        special: Texts of the tokens that a grammar may name.
        ends: Tokens that end a text.
        vocab_size: Rows of the model's logits.
        look: Called some times in a second; what it raises ends the process.

    Raises:
        RequestError: It is wrong, nothing fits it, or it takes too much time or memory.
        CapacityError: The machine left the process no time.
        UnsupportedError: There is no Python interpreter to start.
    """
    request = {
        "kind": kind,
        "grammar": grammar,
        "options": options,
        "special": dict(special),
        "ends": sorted(ends),
        "vocab_size": vocab_size,
        "limits": COSTS,
        "seconds": SECONDS,
        "memory": MEMORY,
    }
    done = _run("llguidance", request, look)
    if done.returncode != 0:
        raise RequestError(
            f"{kind} is too complex: it does not compile within {SECONDS} s and {MEMORY >> 20} MB"
        )
    outcome = json.loads(done.stdout)
    if "error" in outcome:
        raise RequestError(f"{kind} can't be compiled: {readable(outcome['error'])}")
    lark: str = outcome["lark"]
    return lark


def problem_elsewhere(schema: Any, text: str, look: Callable[[], None] | None = None) -> str:
    """Return where a whole text breaks a JSON schema; empty: nowhere.

    Patterns and recursive schemas can take any time to check, so it has the limits of a trial.

    Args:
        schema: With any keywords of its draft; references to elsewhere are not followed.
        text: A JSON document.
        look: As for :func:`compile_elsewhere`.

    Raises:
        CapacityError, UnsupportedError: As for :func:`compile_elsewhere`.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return "it is not a whole JSON document, or nested too deep"
    request = {
        "kind": "document",
        "schema": schema,
        "document": document,
        "seconds": SECONDS,
        "memory": MEMORY,
    }
    done = _run("jsonschema", request, look)
    if done.returncode != 0:
        return f"it can't be checked within {SECONDS} s and {MEMORY >> 20} MB"
    problem: str = json.loads(done.stdout)["problem"]
    return problem


def _run(
    package: str, request: Mapping[str, Any], look: Callable[[], None] | None
) -> subprocess.CompletedProcess[str]:
    """Run the script with a package; return its output once it has ended."""
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None or not sys.executable:
        raise UnsupportedError(f"structured output needs the package {package} and an interpreter")
    folder = Path(found.origin).parents[1]
    script = Path(__file__).with_name("trial_process.py")
    # -I and -S: a start takes 60 ms, not 200, and no user settings apply.
    command = [sys.executable, "-I", "-S", "-X", "utf8", str(script), str(folder)]
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        command, stdin=pipe, stdout=pipe, stderr=pipe, encoding="utf-8",
        creationflags=BACKGROUND_PROCESS,
    )  # fmt: skip
    with process, kept_within(process, request["seconds"], request["memory"]):
        output, errors = _answer(process, json.dumps(request), look)
    return subprocess.CompletedProcess(command, process.returncode, output, errors)


def _answer(
    process: subprocess.Popen[str], request: str, look: Callable[[], None] | None
) -> tuple[str, str]:
    deadline = time.monotonic() + _PATIENCE
    # In a thread of its own: communicate() with a timeout may be called again, but then no longer
    # sends what is left of a long request.
    with ThreadPoolExecutor(1, thread_name_prefix="oxibonsai-trial") as thread:
        answer = thread.submit(process.communicate, request)
        try:
            while not wait([answer], LOOK_SECONDS).done:
                if time.monotonic() > deadline:
                    raise CapacityError(
                        f"the structure did not compile within {_PATIENCE} s: the machine is too busy"
                    )
                if look is not None:
                    look()
        except BaseException:
            process.kill()
            raise
        return answer.result()


def readable(message: str) -> str:
    """Return what is wrong and where, without llguidance's drawings of the grammar and its own state."""
    message = message.split("\n<state>")[0]
    if message.startswith("panic"):
        return "it is too large"
    if "lexer_fuel" in message or "too many expressions" in message:
        return "it is too complex"
    if not message or message.startswith("NoExtension"):
        return "no text fits it"
    _, found, of_regex = message.rpartition("\nerror: ")
    if found:
        return of_regex.partition("\n")[0]
    message = "\n".join(line for line in message.split("\n") if not _IMAGE.fullmatch(line))
    _, found, of_schema = message.rpartition("failed to compile JSON schema: ")
    kept = of_schema.partition("\n")[0] if found else message.strip()
    return kept if len(kept) <= 300 else f"{kept[:300]} ..."
