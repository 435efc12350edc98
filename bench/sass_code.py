"""Read nvdisasm's text of kernels: instructions, basic blocks, loops, and what a round of a loop costs.

The disassembly is cut into basic blocks at labels and branches. An edge to a block that dominates its
source is a back edge; it makes a natural loop. Both sides of a predicate count, and so do lanes that
are switched off. Slow paths are left out: targets of calls and of BRA.DIV.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Instruction:
    opcode: str
    guarded: bool  # by a predicate
    operands: str


@dataclass
class Block:
    """Instructions that are executed one after the other, and the blocks that can follow."""

    instructions: list[Instruction] = field(default_factory=list)
    next: set[int] = field(default_factory=set)


_SECTION = re.compile(r"^\s*\.section\s+\.text\.(\w+),")
_LABEL = re.compile(r"^\s*([.$][\w$.]+):\s*$")
_INSTRUCTION = re.compile(
    r"^\s*/\*[0-9a-f]{4,}\*/\s+(@!?U?P\w+\s+)?([A-Z][\w.]*)\s*([^;]*);", re.ASCII
)
_TARGET = re.compile(r"`\(([^)]+)\)")


def functions_of(disassembly: str) -> dict[str, list[str | Instruction]]:
    """Return the labels and instructions of each kernel in the text that nvdisasm prints."""
    functions: dict[str, list[str | Instruction]] = {}
    lines: list[str | Instruction] = []
    for line in disassembly.splitlines():
        if line.lstrip().startswith(".section\t"):
            section = _SECTION.match(line)
            lines = functions.setdefault(section[1], []) if section else []
        elif label := _LABEL.match(line):
            lines.append(label[1])
        elif found := _INSTRUCTION.match(line):
            lines.append(Instruction(found[2], found[1] is not None, found[3].strip()))
    return functions


def blocks_of(lines: Sequence[str | Instruction]) -> list[Block]:
    """Return the basic blocks of a function; the first is its entry."""
    blocks, starts, jumps = [Block()], {}, list[tuple[int, str]]()
    falls = True  # does the last block go on to the next one?
    for line in lines:
        if isinstance(line, str):
            if blocks[-1].instructions:
                if falls:
                    blocks[-1].next.add(len(blocks))
                blocks.append(Block())
                falls = True
            starts[line] = len(blocks) - 1
            continue
        here = len(blocks) - 1
        blocks[here].instructions.append(line)
        name = line.opcode.split(".")[0]
        if name in ("BRX", "BRXU", "JMP", "JMX", "JMXU"):
            raise ValueError(f"{line.opcode} {line.operands}: its targets are not known here")
        target = _TARGET.search(line.operands)
        # ptxas also leaves loops by a call of a label of the kernel: nothing returns from there.
        jumps_to = target[1] if target and name in ("BRA", "CALL") else ""
        if name not in ("BRA", "EXIT", "RET") and not jumps_to.startswith(".L"):
            continue
        conditional = line.guarded
        if name == "BRA" and target is None:
            raise ValueError(f"BRA {line.operands}: no label")
        if ".DIV" in line.opcode:
            conditional = True
        elif target is not None and jumps_to:
            conditional |= name == "BRA" and target.start() > 0  # a predicate among the operands
            jumps.append((here, jumps_to))
        if conditional:
            blocks[here].next.add(len(blocks))
        blocks.append(Block())
        falls = True
    for source, label in jumps:
        blocks[source].next.add(starts[label])
    for block in blocks:
        block.next = {n for n in block.next if n < len(blocks)}
    return blocks


@dataclass(frozen=True)
class Loop:
    header: int
    blocks: frozenset[int]
    latches: frozenset[int]  # the blocks from which it begins again


def loops_of(blocks: Sequence[Block]) -> list[Loop]:
    """Return the natural loops, one for each header."""
    order = _postorder(blocks)
    before: dict[int, set[int]] = {b: set() for b in order}
    for b in order:
        for n in blocks[b].next:
            before[n].add(b)
    dominators = _dominators(order[::-1], before)
    position = {b: i for i, b in enumerate(order)}
    latches: dict[int, set[int]] = {}
    for b in order:
        for n in blocks[b].next:
            if n in dominators[b]:
                latches.setdefault(n, set()).add(b)
            elif position[n] >= position[b]:
                raise ValueError("a loop with two entries: its rounds can't be told apart")
    loops = []
    for header, ends in latches.items():
        members, todo = {header}, list(ends)
        while todo:
            b = todo.pop()
            if b not in members:
                members.add(b)
                todo.extend(before[b])
        loops.append(Loop(header, frozenset(members), frozenset(ends)))
    return loops


def _postorder(blocks: Sequence[Block]) -> list[int]:
    seen, order = {0}, list[int]()
    stack = [(0, iter(sorted(blocks[0].next)))]
    while stack:
        block, following = stack[-1]
        step = next((n for n in following if n not in seen), None)
        if step is None:
            order.append(block)
            stack.pop()
        else:
            seen.add(step)
            stack.append((step, iter(sorted(blocks[step].next))))
    return order


def _dominators(order: Sequence[int], before: dict[int, set[int]]) -> dict[int, set[int]]:
    everything = set(order)
    dominators = {b: everything if b != order[0] else {b} for b in order}
    changed = True
    while changed:
        changed = False
        for b in order[1:]:
            found = set.intersection(*(dominators[p] for p in before[b])) | {b}
            if found != dominators[b]:
                dominators[b], changed = found, True
    return dominators


@dataclass(frozen=True)
class Round:
    """What one round of a loop executes, without its inner loops."""

    markers: int
    cheapest: int
    dearest: int  # instructions of the paths that meet all these markers


def round_of(blocks: Sequence[Block], loops: Iterable[Loop], loop: Loop, marker: str) -> Round:
    """Return the cost of a path once round `loop`; `marker` matches the opcodes of its work."""
    # Each block is itself, or the header of the outermost loop inside of this one.
    stands_for = {b: b for b in loop.blocks}
    inside = [other for other in loops if other.blocks < loop.blocks]
    for other in sorted(inside, key=lambda one: len(one.blocks)):
        for b in other.blocks:
            stands_for[b] = other.header
    following: dict[int, set[int]] = {n: set() for n in stands_for.values()}
    cost = dict.fromkeys(following, (0, 0))
    for b in loop.blocks:
        node = stands_for[b]
        ahead = {n for n in blocks[b].next if n in loop.blocks and n != loop.header}
        following[node] |= {stands_for[n] for n in ahead} - {node}
        if not any(b in other.blocks for other in inside):
            opcodes = [i.opcode for i in blocks[b].instructions]
            cost[node] = (sum(re.match(marker, o) is not None for o in opcodes), len(opcodes))
    ends = {stands_for[b] for b in loop.latches}
    # From each node to the end of the round: markers, fewest and most instructions.
    best: dict[int, Round | None] = {}

    def ahead_of(node: int) -> Round | None:
        if node not in best:
            options = [found for n in following[node] if (found := ahead_of(n)) is not None]
            if node in ends:
                options.append(Round(0, 0, 0))
            if not options:
                best[node] = None
            else:
                most = max(o.markers for o in options)
                options = [o for o in options if o.markers == most]
                markers, own = cost[node]
                best[node] = Round(
                    most + markers,
                    min(o.cheapest for o in options) + own,
                    max(o.dearest for o in options) + own,
                )
        return best[node]

    found = ahead_of(stands_for[loop.header])
    assert found is not None, "a loop without a way round"
    return found
