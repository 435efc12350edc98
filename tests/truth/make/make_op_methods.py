"""Writes what follows from the fields that the ops list in C++ (csrc/graph/op.h).

    python tests/truth/make make_op_methods

That is the part of ``_core.pyi`` that declares the ops as methods of ``Graph``, and
``graph/op_methods.py``: the methods of the builder that are an op and nothing more.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

PACKAGE = Path(__file__).resolve().parents[3] / "python" / "oxibonsai"
STUB = PACKAGE / "_core.pyi"
METHODS = PACKAGE / "graph" / "op_methods.py"

_BEGIN = "    # The ops; written by tests/truth/make/make_op_methods.py.\n"
_END = "    # End of the ops.\n"
_WIDTH = 100

_HEADER = '''"""The builder's methods that are an op and nothing more.

Written by tests/truth/make/make_op_methods.py from the fields that each op lists in csrc/graph.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from oxibonsai import _core

Vector = npt.NDArray[np.float32]
Value = _core.Value


class OpMethods:
    """Ops that a pass calls as they are; see the comments of their structs in csrc/graph.

    Attributes:
        graph: What has been described so far.
    """

    graph: _core.Graph
'''


class Argument(NamedTuple):
    """An argument of an op's method."""

    name: str
    type: str
    optional: bool
    default: Any

    def __str__(self) -> str:
        default = [] if self.default == () else self.default
        text = f'"{default}"' if isinstance(default, str) else repr(default)
        return f"{self.name}: {self.type}" + f" = {text}" * self.optional


class Op(NamedTuple):
    """An op as a method of ``Graph``."""

    name: str
    doc: str
    arguments: list[Argument]
    returns: str

    def signature(self, end: str = "") -> str:
        """Return the method's first lines, as the formatter would break them."""
        told = ["self", *map(str, self.arguments)]
        tail = f") -> {self.returns}:{end}"
        one_line = f"    def {self.name}({', '.join(told)}{tail}"
        if len(one_line) <= _WIDTH:
            return one_line
        inner = f"        {', '.join(told)}"
        if len(inner) > _WIDTH:
            inner = "".join(f"        {line},\n" for line in told).rstrip("\n")
        return f"    def {self.name}(\n{inner}\n    {tail}"


def read_ops() -> Iterator[Op]:
    """Yield the ops of the compiled core."""
    from oxibonsai import _core

    for name, doc, fields, made in _core.graph_ops():
        returns = made[0] if len(made) == 1 else f"tuple[{', '.join(made)}]" if made else "None"
        yield Op(name, doc, [Argument(*field) for field in fields], returns)


def stub_text() -> str:
    """Return ``_core.pyi`` with the ops of the compiled core."""
    before, rest = STUB.read_text(encoding="utf-8").split(_BEGIN)
    _, after = rest.split(_END)
    ops = "".join(f"{op.signature(' ...')}\n" for op in read_ops())
    return before + _BEGIN + ops + _END + after


def methods_text() -> str:
    """Return ``graph/op_methods.py``: the ops for which the builder has no method of its own."""
    from oxibonsai.graph import Builder
    from oxibonsai.graph.op_methods import OpMethods

    by_hand = {n for kind in Builder.__mro__ if kind is not OpMethods for n in vars(kind)}
    methods = []
    for op in read_ops():
        if op.name in by_hand:
            continue
        call = f"self.graph.{op.name}({', '.join(a.name for a in op.arguments)})"
        body = call if op.returns == "None" else f"return {call}"
        if len(body) + 8 > _WIDTH:
            names = ", ".join(a.name for a in op.arguments)
            if len(names) + 12 > _WIDTH:  # one a line
                names = names.replace(", ", ",\n            ") + ","
            body = f"return self.graph.{op.name}(\n            {names}\n        )"
        doc = "\n".join(f"        {line}".rstrip() for line in op.doc.split("\n")).lstrip()
        end = "\n        " * ("\n" in doc)
        signature = op.signature().replace("_Floats", "Vector").replace(" Weight", " _core.Weight")
        signature = signature.replace("InputSums", "_core.InputSums")
        methods.append(f'{signature}\n        """{doc}{end}"""\n        {body}\n')
    return _HEADER + "\n" + "\n".join(methods)


if __name__ == "__main__":
    STUB.write_text(stub_text(), encoding="utf-8")
    METHODS.write_text(methods_text(), encoding="utf-8")
