"""Computes an importance matrix: a model reads texts, and squares of its layers' inputs are summed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from oxibonsai.engine.windows import read_windows
from oxibonsai.errors import FormatError, RequestError, UnsupportedError
from oxibonsai.imatrix.matrix import Entry, Imatrix

if TYPE_CHECKING:
    from oxibonsai.engine import Engine
    from oxibonsai.models import ImatrixCollection


def collect(
    engine: Engine,
    windows: Sequence[Sequence[int]],
    *,
    datasets: Sequence[str] = (),
    process_output: bool = False,
) -> Iterator[Imatrix]:
    """Run a model over windows of a text, each from an empty context.

    The sums depend on the model, the windows and their order, and the type of cached keys and
    values; not on threads, kernels or steps.

    Args:
        engine: A decoder whose context holds a window; its own texts and cache are left alone.
        windows: Token ids, all windows of one length.
        datasets: Names of the texts, for the file.
        process_output: Have an entry for the output matrix too (``output.weight``, or
            ``token_embd.weight`` where that is both).

    Yields:
        After each window, what has been found so far: an entry for every weight of a linear layer.

    Raises:
        RequestError: There are no windows, or one is no prompt for the model.
        UnsupportedError: The model is an encoder.
        FormatError: The model computes something that is no number.
    """
    if not engine.model.config.generates:
        raise UnsupportedError(
            f"{engine.model.weights.checkpoint.path} is an encoder: importance matrices are computed over "
            "windows of a text that goes on, which a decoder reads"
        )
    checked = [engine.check_prompt(window) for window in windows]
    if len({len(window) for window in checked}) != 1:
        raise RequestError("an importance matrix needs windows, at least one and all of one length")
    return _run(engine, checked, tuple(datasets), process_output)


def _run(
    engine: Engine, windows: list[list[int]], datasets: tuple[str, ...], process_output: bool
) -> Iterator[Imatrix]:
    collection = engine.model.observed(head=process_output)
    read = read_windows(
        engine.model, engine.kv_type, windows, collection.run, outputs=process_output
    )
    for done, _ in enumerate(read, 1):
        yield Imatrix(_entries(collection), datasets, chunk_count=done, chunk_size=len(windows[0]))


def _entries(collection: ImatrixCollection) -> dict[str, Entry]:
    found: dict[str, Entry] = {}
    entry_of: dict[int, Entry] = {}  # weights that share an input share an entry
    for name, sums in collection.sums.items():
        if id(sums) not in entry_of:
            with np.errstate(over="ignore"):
                squares = sums.squares.astype(np.float32)
            if not np.isfinite(squares).all():
                raise FormatError(
                    f"the inputs of {name} are no finite numbers: the model's file is damaged"
                )
            entry_of[id(sums)] = Entry(squares[None, :], np.array([sums.rows], np.float32))
        found[name] = entry_of[id(sums)]
    return found
