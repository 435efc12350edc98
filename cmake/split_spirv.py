"""Cut a SPIR-V module into one module for each of its kernels.

A driver compiles all that a module holds, which takes some of them minutes; a model launches a few
dozen kernels. The names are those of the SPIR-V specification.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

MAGIC = 0x07230203
HEADER = 5  # words, the second of which is the version
READ_VERSION = 0x00010400
# The oldest version that has shuffles in a subgroup: some drivers take no newer one.
WRITTEN_VERSION = 0x00010300

OP_SOURCE, OP_NAME, OP_DECORATE, OP_GROUP_DECORATE = 3, 5, 71, 74
OP_ENTRY_POINT, OP_EXECUTION_MODE = 15, 16
OP_VARIABLE, OP_LABEL = 59, 248
OP_FUNCTION, OP_FUNCTION_END, OP_FUNCTION_CALL = 54, 56, 57
INPUT, WORKGROUP = 1, 4  # storage classes
# What defines nothing in a function: its end, lines, stores, copies, barriers, merges, branches,
# switches, returns, lifetimes.
NO_RESULT = {56, 8, 317, 62, 63, 64, 224, 225, 246, 247, *range(249, 258)}

Words: TypeAlias = "array[int]"  # an instruction's first word has its length and its opcode


@dataclass
class _Function:
    """A function: its instructions, the ids that they define, and the functions that it calls."""

    code: list[Words] = field(default_factory=list)
    defined: set[int] = field(default_factory=set)
    calls: set[int] = field(default_factory=set)


@dataclass
class _Module:
    """A module's instructions in the order of its sections.

    Attributes:
        head: What comes before the entry points.
        entries, modes: Entry points, and the execution modes of each by its function.
        decorations: By the id that they are of.
        globals: Types, constants, and variables outside of functions.
        functions: By id.
    """

    head: list[Words] = field(default_factory=list)
    entries: list[Words] = field(default_factory=list)
    modes: dict[int, list[Words]] = field(default_factory=dict)
    decorations: dict[int, list[Words]] = field(default_factory=dict)
    globals: list[Words] = field(default_factory=list)
    functions: dict[int, _Function] = field(default_factory=dict)


def split(module: bytes) -> dict[str, bytes]:
    """Return a module for each kernel, by its name.

    Args:
        module: Of version 1.4, whose entry points list all variables outside of functions that they
            use.

    Raises:
        ValueError: It is of another version, or groups its decorations.
    """
    words = array("I", module)
    if words[:2] != array("I", [MAGIC, READ_VERSION]):
        raise ValueError("this is no SPIR-V module of version 1.4")
    whole = _sections(words)
    header = array("I", [MAGIC, WRITTEN_VERSION]) + words[2:HEADER]
    local = {i for function in whole.functions.values() for i in function.defined}
    storage = {code[2]: code[3] for code in whole.globals if opcode(code) == OP_VARIABLE}
    local |= {variable for variable, where in storage.items() if where in (INPUT, WORKGROUP)}
    shared = [i for i in whole.decorations if i not in local]
    kernels = {}
    for entry in whole.entries:
        name, interface = _entry_point(entry)
        kept = _reachable(whole.functions, entry[2])
        own = local.intersection(interface).union(*(f.defined for f in kept))
        inputs = array("I", [v for v in interface if storage[v] == INPUT])
        first = entry[: len(entry) - len(interface)] + inputs
        first[0] = len(first) << 16 | OP_ENTRY_POINT
        kernels[name] = _joined(
            [header, *whole.head, first, *whole.modes.get(entry[2], [])],
            [d for i in shared for d in whole.decorations[i]],
            [d for i in sorted(own & whole.decorations.keys()) for d in whole.decorations[i]],
            [
                c
                for c in whole.globals
                if opcode(c) != OP_VARIABLE or c[2] in own or c[2] not in local
            ],
            [code for function in kept for code in function.code],
        )
    return kernels


def instructions(words: Words) -> Iterator[Words]:
    """Yield each instruction of a module as its words.

    Raises:
        ValueError: One has no words.
    """
    at = HEADER
    while at < len(words):
        count = words[at] >> 16
        if count == 0:
            raise ValueError("an instruction of no words")
        yield words[at : at + count]
        at += count


def opcode(code: Words) -> int:
    """Return what an instruction does."""
    return code[0] & 0xFFFF


def _sections(words: Words) -> _Module:
    whole = _Module()
    inside: _Function | None = None
    for code in instructions(words):
        op = opcode(code)
        if op == OP_FUNCTION:
            inside = whole.functions[code[2]] = _Function()
        if inside is not None:
            inside.code.append(code)
            if op not in NO_RESULT:
                inside.defined.add(code[1 if op == OP_LABEL else 2])
            if op == OP_FUNCTION_CALL:
                inside.calls.add(code[3])
            if op == OP_FUNCTION_END:
                inside = None
        elif op == OP_ENTRY_POINT:
            whole.entries.append(code)
        elif op == OP_EXECUTION_MODE:
            whole.modes.setdefault(code[1], []).append(code)
        elif op == OP_DECORATE:
            whole.decorations.setdefault(code[1], []).append(code)
        elif op == OP_GROUP_DECORATE:
            raise ValueError("the module groups its decorations")
        elif op not in (OP_SOURCE, OP_NAME):  # for people
            (whole.globals if whole.entries else whole.head).append(code)
    return whole


def _entry_point(code: Words) -> tuple[str, list[int]]:
    """Return the name of an entry point and the variables that it uses."""
    text = code[3:].tobytes()
    name = text[: text.index(0)]
    return name.decode(), list(code[3 + len(name) // 4 + 1 :])


def _reachable(functions: dict[int, _Function], first: int) -> list[_Function]:
    """Return a function and all that it calls, in the module's order."""
    found, waiting = {first}, [first]
    while waiting:
        new = functions[waiting.pop()].calls - found
        found |= new
        waiting.extend(new)
    return [function for i, function in functions.items() if i in found]


def _joined(*parts: list[Words]) -> bytes:
    return b"".join(code.tobytes() for part in parts for code in part)
