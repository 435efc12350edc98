"""The start-up check: does this machine's tier give the bytes that the definition gives?"""

from __future__ import annotations

from typing import Literal

import numpy as np

from oxibonsai import _core
from oxibonsai.errors import ParityError
from oxibonsai.models.base import Model

Parity = Literal["quick", "full", "off"]
DEFINITION = "scalar"

_PROMPT_TOKENS = 8
_GREEDY_TOKENS = 8


def check_parity(model: Model, level: Parity, kv_type: str) -> None:
    """Compares the tier in use with the scalar one, byte for byte.

    Args:
        model: With its weights packed.
        level: ``quick``: every kind of kernel that the model uses, on slices of its weights.
            ``full``: besides, a greedy decode of 8 tokens after a prompt of 8, which takes as long
            as the scalar tier does. ``off``: nothing.
        kv_type: Of the decode.

    Raises:
        ParityError: A kernel gives other bytes; it is named.
    """
    if level == "off" or _core.cpu.name() == DEFINITION:
        return
    different = model.program.compare_kernels(DEFINITION)
    if different:
        raise ParityError(_sentence(", ".join(sorted(set(different)))))
    if level == "full":
        _compare_decoding(model, kv_type)


def _sentence(what: str) -> str:
    return (
        f"the tier {_core.cpu.name()} gives other results than the definition on this machine: "
        f"{what}. Set OXIBONSAI_ISA=scalar to run without it, and please report it"
    )


def _compare_decoding(model: Model, kv_type: str) -> None:
    programs = [model.program, model.recording.program(model.pool, DEFINITION)]
    caches = [model.new_pages(kv_type, 1) for _ in programs]
    tokens = [i * 7919 % model.config.vocab_size for i in range(_PROMPT_TOKENS)]
    position = 0
    for step in range(_GREEDY_TOKENS + 1):
        count = len(tokens)
        batch = _core.Batch(
            tokens, list(range(position, position + count)), [0] * count, [[0]], [count - 1]
        )
        results = [p.run(batch, [c]) for p, c in zip(programs, caches, strict=True)]
        if not np.array_equal(results[0].view(np.uint32), results[1].view(np.uint32)):
            raise ParityError(_sentence(f"the logits of step {step} of a greedy decode"))
        position += count
        tokens = [int(_core.argmax(results[0][0]))]
