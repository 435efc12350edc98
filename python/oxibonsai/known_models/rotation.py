"""Recognises rotated weights whose keys are missing, as far as a file's facts tell."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from oxibonsai.errors import FormatError
from oxibonsai.known_models.families import FAMILIES, find_family
from oxibonsai.known_models.recommendation import Metadata, names_of, size_of

# Without the rotation nobody has published such weights in the families' shapes.
_TERNARY = frozenset({"Q2_0_g64", "Q2_0_g128", "PTQ1_0"})


def missing_rotation(
    file: Metadata, path: str | os.PathLike[str], quant_types: Collection[str]
) -> str | None:
    """Return why a file's text would probably be gibberish; None: nothing says so.

    Statistics of the codes don't tell rotated weights from others. What tells is that the file has ternary
    weights and the shape of a model of which only rotated files are published.

    Args:
        file: Its metadata.
        path: Where it lies.
        quant_types: Types of its matrices.

    Raises:
        FormatError: The name, the shape and the types all say that the weights are rotated.
    """
    rotated = any(key.startswith("prism.hadamard.") for key in file.keys())  # noqa: SIM118 - not a dict
    if rotated or not _TERNARY.intersection(quant_types):
        return None
    architecture, size = str(file.get("general.architecture")), size_of(file)
    named = find_family(architecture, size, names_of(file, Path(path)), rotated=False)
    if named is not None:
        if not named.always_rotated:
            return None
        raise FormatError(
            f"{path} is a {named.name} by name, shape and types, but lacks the keys prism.hadamard.*, "
            "without which its rotated weights give gibberish: fetch the file again from its makers"
        )
    likely = [
        f.name
        for f in FAMILIES
        if f.always_rotated and f.fits(architecture, size, (), rotated=True)
    ]
    if not likely:
        return None
    return (
        f"{path} has ternary weights in the shape of {likely[0]}, whose weights are rotated, but no keys "
        "prism.hadamard.*: if its text is gibberish, they are missing"
    )
