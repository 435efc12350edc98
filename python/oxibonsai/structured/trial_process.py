"""Compiles a grammar, or checks a document, in this process, which may be killed for it; see `trial.py`.

Run as a script, with nothing of oxibonsai: ``trial_process.py FOLDER`` where FOLDER holds the
package llguidance, or jsonschema. Reads a request as JSON from standard input, writes the outcome to
standard output.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any


class ByteTokens:
    """A vocabulary of 256 bytes and the special tokens of the real one, under their own ids."""

    def __init__(self, request: dict[str, Any]) -> None:
        special = {int(i): text for i, text in request["special"].items()}
        rows = max([request["vocab_size"], *(i + 1 for i in special)]) + 256
        self.tokens = [b""] * rows
        for i, text in special.items():
            self.tokens[i] = text.encode("utf-8", "surrogateescape")
        for byte in range(256):
            self.tokens[rows - 256 + byte] = bytes([byte])
        self.special_token_ids = list(special)
        self.eos_token_id = request["ends"][0]
        self.bos_token_id = None

    def __call__(self, text: bytes) -> list[int]:
        # As in bridge.py: every grammar says `no_forcing`, so this is never called.
        raise RuntimeError("llguidance asked to tokenize a text")


def limit(request: dict[str, Any]) -> None:
    """Limit the process, which dies from here on when it takes too long or too much.

    Windows has no such limits: there the parent watches it, and has lowered its priority.
    """
    if sys.platform == "win32":
        return
    import resource
    import signal

    resource.setrlimit(resource.RLIMIT_DATA, (request["memory"], request["memory"]))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.setitimer(signal.ITIMER_PROF, request["seconds"])


def outcome(request: dict[str, Any]) -> dict[str, str]:
    """Return the grammar as Lark, or what is wrong with it."""
    import llguidance
    from llguidance.gbnf_to_lark import gbnf_to_lark

    source = llguidance.TokenizerWrapper(ByteTokens(request))
    tokenizer = llguidance.LLTokenizer(source, eos_token=request["ends"])
    limit(request)
    lark = request["grammar"]
    if request["kind"] == "gbnf":
        try:
            lark = gbnf_to_lark(lark)
        except Exception as e:
            return {"error": f"{e}"}
    limits = llguidance.LLParserLimits(**request["limits"])
    matcher = llguidance.LLMatcher(
        tokenizer,
        llguidance.LLMatcher.grammar_from_lark(lark + request["options"]),
        log_level=0,
        limits=limits,
    )
    if not matcher.is_error():
        matcher.compute_bitmask()
    return {"error": matcher.get_error()} if matcher.is_error() else {"lark": lark}


def problem(request: dict[str, Any]) -> dict[str, str]:
    """Return where a document breaks its schema; empty: nowhere."""
    import jsonschema
    import referencing

    limit(request)
    schema = request["schema"]
    kind = jsonschema.validators.validator_for(schema)
    # A registry of nothing: no reference is fetched from anywhere.
    validator = kind(schema, registry=referencing.Registry())
    try:
        error = jsonschema.exceptions.best_match(validator.iter_errors(request["document"]))
    except Exception as e:
        return {"problem": f"it can't be checked: {e}"}
    if error is None:
        return {"problem": ""}
    place = "".join(f"/{part}" for part in error.absolute_path)
    return {"problem": f"{error.message[:300]} ({error.validator} at {place or 'its root'})"}


if __name__ == "__main__":
    if sys.platform != "win32":
        os.nice(5)
    sys.path.insert(0, sys.argv[1])
    asked = json.load(sys.stdin)
    print(json.dumps(problem(asked) if asked["kind"] == "document" else outcome(asked)))
