"""Weights that torch has pickled: they are not read, since opening a pickle can run code of the file."""

from __future__ import annotations

import re
from collections.abc import Iterable

_PICKLED = re.compile(r"pytorch_model(-\d+-of-\d+)?\.bin")


def pickle_advice(names: Iterable[str]) -> str:
    """Return what an error says of pickled weights after what it lacks; empty: there are none.

    Args:
        names: The files that there are.
    """
    found = min((n for n in names if _PICKLED.fullmatch(n)), default=None)
    if found is None:
        return ""
    return (
        f"; its weights are pickled ({found}), and pickles are never read: write the tensors once with "
        f"safetensors.torch.save_file(torch.load({found!r}, weights_only=True), 'model.safetensors')"
    )
