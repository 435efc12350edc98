"""A teacher's likeliest tokens, computed once and kept in a file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from oxibonsai.distill.objective import Stored
from oxibonsai.files.step_progress import StepProgress
from oxibonsai.finetune.examples import Example
from oxibonsai.finetune.trainer import batch


@dataclass(frozen=True)
class TaughtExample(Example):
    """An example with what the teacher makes of it.

    Attributes:
        taught: The likeliest tokens where one is learnt, [learnt, k] of ``TOKEN``.
    """

    taught: npt.NDArray[np.void]


# A token and its log-probability at the run's temperature.
TOKEN = np.dtype([("id", np.int32), ("log_probability", np.float32)])


def with_logits(
    examples: Sequence[Example],
    teach: Callable[[dict[str, torch.Tensor]], Stored],
    k: int,
    size: int,
    file: Path,
    progress: StepProgress,
) -> list[TaughtExample]:
    """Return examples with the teacher's likeliest tokens, which lie in a file.

    Args:
        examples: The examples.
        teach: Returns those of a batch, at the tokens that are learnt.
        k: Tokens to keep of each.
        size: Examples of a batch.
        file: Is made anew; it is mapped, so that it may be larger than the memory.
        progress: Told after each batch.
    """
    counts = [example.predicted for example in examples]
    table = np.memmap(file, TOKEN, "w+", shape=(sum(counts), k))
    done = 0
    for first in range(0, len(examples), size):
        found = teach(batch(examples[first : first + size]))
        rows = table[done : done + len(found.ids)]
        rows["id"] = found.ids.cpu().numpy()
        rows["log_probability"] = found.log_probabilities.cpu().numpy()
        done += len(rows)
        progress(min(first + size, len(examples)), len(examples), "")
    ends = np.cumsum(counts)
    return [
        TaughtExample(e.ids, e.labels, table[end - count : end])
        for e, count, end in zip(examples, counts, ends, strict=True)
    ]


def taught_batch(examples: Sequence[Example]) -> dict[str, torch.Tensor]:
    """Return a batch, with what the teacher makes of the tokens that are learnt where it is known."""
    tensors = batch(examples)
    taught = [e.taught for e in examples if isinstance(e, TaughtExample)]
    if taught:
        rows = np.concatenate(taught)
        tensors["taught_ids"] = torch.from_numpy(rows["id"].astype(np.int64))
        tensors["taught_log_probabilities"] = torch.from_numpy(rows["log_probability"].copy())
    return tensors
