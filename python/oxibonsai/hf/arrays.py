"""numpy or torch in, the same kind out; torch is only imported for a caller who uses it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from oxibonsai.errors import RequestError


def is_torch(value: Any) -> bool:
    return type(value).__module__.split(".")[0] == "torch"


def as_rows(ids: Any) -> list[list[int]]:
    """Token ids as one list a sequence, from [n] or [batch, n] of any kind."""
    array = np.asarray(ids.cpu() if is_torch(ids) else ids)
    if array.size == 0:
        raise RequestError("input_ids is empty: there is nothing to continue")
    if array.ndim not in (1, 2) or not np.issubdtype(array.dtype, np.integer):
        raise RequestError(
            f"input_ids has shape {array.shape} and type {array.dtype}; it must be integers [n] or "
            "[batch, n]"
        )
    rows: list[list[int]] = np.atleast_2d(array).tolist()
    return rows


def like(values: npt.NDArray[Any], example: Any) -> Any:
    if not is_torch(example):
        return values
    import torch

    return torch.from_numpy(values).to(example.device)


def tensor(rows: list[list[int]], kind: str) -> Any:
    if len({len(r) for r in rows}) > 1:
        raise RequestError("texts of different lengths make no tensor; pass padding=True")
    array = np.array(rows, dtype=np.int64)
    if kind == "np":
        return array
    if kind == "pt":
        import torch

        return torch.from_numpy(array)
    raise RequestError(f"return_tensors is {kind!r}; it must be 'np' or 'pt'")
