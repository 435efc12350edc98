"""Records what a pass asks the graph for, constants included, and compares it with what it was.

``Graph.ops`` has the names of ops alone: another window, epsilon or base of frequencies would go
unnoticed. So each call of the graph is one line here: its name and all arguments, values by their
numbers, weights by their names and shapes, arrays by their shapes and a hash.

    python tests/architectures/builder_calls.py              records all cases
    python tests/architectures/builder_calls.py NAME ...     prints the calls of some
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from oxibonsai import _core
from oxibonsai.architectures.layers import blocks, pooled
from oxibonsai.checkpoint import Checkpoint
from oxibonsai.graph import Builder
from oxibonsai.models import ModelConfig, Weights, read_config

RECORDED = Path(__file__).with_name("builder_calls.json")


class LoggedGraph:
    """A graph that notes its calls.

    Attributes:
        calls: One line for each.
    """

    def __init__(self, graph: _core.Graph) -> None:
        self._graph = graph
        self._numbers: dict[_core.Value, int] = {}
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        held = getattr(self._graph, name)
        if not callable(held):
            return held

        def call(*arguments: Any, **named: Any) -> Any:
            told = [self._told(a) for a in arguments]
            told += [f"{key}={self._told(a)}" for key, a in sorted(named.items())]
            made = held(*arguments, **named)
            self.calls.append(f"{name}({', '.join(told)}) -> {self._told(made)}")
            return made

        return call

    def _told(self, value: Any) -> str:
        if isinstance(value, _core.Value):
            return f"%{self._numbers.setdefault(value, len(self._numbers))}"
        if isinstance(value, _core.Weight):
            shape = [value.experts, value.rows, value.cols]
            return f"{value.name}{shape}+{value.first_row}"
        if isinstance(value, np.ndarray):
            digest = hashlib.blake2b(np.ascontiguousarray(value).tobytes(), digest_size=6)
            return f"{value.dtype}{list(value.shape)} {digest.hexdigest()}"
        if isinstance(value, list) and value and all(v is None for v in value):
            return "[]"  # no bias, said for each matrix
        if isinstance(value, list | tuple):
            return f"[{', '.join(map(self._told, value))}]"
        if isinstance(value, _core.PagedLayer):
            return f"PagedLayer({value.kv_heads}, {value.key_dim}, {value.value_dim})"
        return repr(value)


class LoggedBuilder(Builder):
    """A builder whose graph is a :class:`LoggedGraph`."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.log = LoggedGraph(self.graph)
        self.graph = self.log  # type: ignore[assignment]


def calls(path: Path) -> list[str]:
    """Return the calls of all passes of a file: the output matrix and heads over pooled states included."""
    checkpoint = Checkpoint(path)
    config, weights = read_config(checkpoint), Weights(checkpoint)
    made: list[str] = []
    for describe in passes(config, weights):
        g = LoggedBuilder(config.hadamard)
        describe(g)
        made += g.log.calls
    weights.refuse_unused()
    return made


def passes(c: ModelConfig, w: Weights) -> Iterator[Callable[[Builder], object]]:
    family, own = c.family, c.of_family
    if family.encode is not None:
        encode = family.encode
        yield lambda g: encode(g, own, w)
    if c.causal:
        yield lambda g: blocks.logits(
            g, own, w, family.final_norm(g, own, w, family.hidden_states(g, own, w))
        )
    else:
        yield lambda g: family.hidden_states(g, own, w)
    if c.classifier is not None:
        yield lambda g: pooled.scores(g, c, w, g.input(pooled.POOLED, c.hidden_size))


def digest(lines: list[str]) -> str:
    """Return a short hash of all calls."""
    return hashlib.blake2b("\n".join(lines).encode(), digest_size=8).hexdigest()


def main(names: list[str]) -> None:
    import cases

    found = {}
    with tempfile.TemporaryDirectory() as scratch:
        for case in cases.ALL:
            if names and case.name not in names:
                continue
            lines = calls(case.file(Path(scratch) / case.name))
            found[case.name] = digest(lines)
            if names:
                print(case.name, *lines, sep="\n")
    if not names:
        RECORDED.write_text(json.dumps(found, indent=0) + "\n")


if __name__ == "__main__":
    tests = Path(__file__).resolve().parents[1]
    sys.path += [str(tests), str(tests / "models")]
    main(sys.argv[1:])
