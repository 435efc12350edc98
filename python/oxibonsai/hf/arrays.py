"""numpy or torch in, the same kind out; torch is only imported for a caller who uses it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from oxibonsai.errors import RequestError, needs_extra

Ids = npt.NDArray[np.int64]


def is_torch(value: Any) -> bool:
    return type(value).__module__.split(".")[0] == "torch"


def as_ids(ids: Any, name: str = "input_ids") -> Ids:
    """Return token ids [batch, n], from [n] or [batch, n] of any kind."""
    try:
        array = np.asarray(ids.cpu() if is_torch(ids) else ids)
    except ValueError as e:
        raise RequestError(f"{name} has rows of different lengths: pad them (padding=True)") from e
    if array.size == 0:
        raise RequestError(f"{name} is empty: there is nothing to read")
    if array.ndim not in (1, 2) or not np.issubdtype(array.dtype, np.integer):
        raise RequestError(
            f"{name} has shape {array.shape} and type {array.dtype}; it must be integers [n] or "
            "[batch, n]"
        )
    return np.atleast_2d(array).astype(np.int64)


def as_rows(ids: Any) -> list[list[int]]:
    """Return token ids as one list a sequence, from [n] or [batch, n] of any kind."""
    rows: list[list[int]] = as_ids(ids).tolist()
    return rows


def as_columns(input_ids: Any, attention_mask: Any, past: int) -> tuple[Ids, npt.NDArray[np.bool_]]:
    """Return new ids [batch, new], and which of them the attention mask shows.

    Args:
        input_ids: [batch, new].
        attention_mask: [batch, past and new], as transformers has it; None: all.
        past: Columns before the new ones.
    """
    ids = as_ids(input_ids)
    if attention_mask is None:
        return ids, np.ones(ids.shape, dtype=bool)
    mask = np.asarray(attention_mask.cpu() if is_torch(attention_mask) else attention_mask)
    mask = np.atleast_2d(mask).astype(bool)
    if mask.shape != (len(ids), past + ids.shape[1]):
        raise RequestError(
            f"attention_mask has shape {mask.shape}; it must be {(len(ids), past + ids.shape[1])}: "
            "that of the texts with what the cache holds of them"
        )
    return ids, mask[:, past:]


def as_embeds(inputs_embeds: Any) -> npt.NDArray[Any]:
    """Return embeddings [batch, n, hidden], from [n, hidden] or [batch, n, hidden] of any kind."""
    given = inputs_embeds.detach().cpu() if is_torch(inputs_embeds) else inputs_embeds
    try:
        array = np.asarray(given)
    except (TypeError, ValueError) as e:  # numpy has no bfloat16
        raise RequestError(f"inputs_embeds is no array of float32 or float16: {e}") from e
    if array.ndim not in (2, 3) or array.size == 0:
        raise RequestError(
            f"inputs_embeds has shape {array.shape}; it must be [n, hidden] or [batch, n, hidden]"
        )
    return array[None] if array.ndim == 2 else array


def like(values: npt.NDArray[Any], example: Any) -> Any:
    if not is_torch(example):
        return values
    with needs_extra("hf"):
        import torch

    return torch.from_numpy(values).to(example.device)


def tensor(rows: list[Any], kind: str) -> Any:
    """Return a numpy or torch array of integers from rows of equal lengths."""
    if kind not in ("np", "pt"):
        raise RequestError(f"return_tensors is {kind!r}; it must be 'np' or 'pt'")
    try:
        array = np.array(rows, dtype=np.int64)
    except ValueError as e:
        raise RequestError("texts of different lengths make no tensor; pass padding=True") from e
    if kind == "np":
        return array
    with needs_extra("hf"):
        import torch

    return torch.from_numpy(array)
