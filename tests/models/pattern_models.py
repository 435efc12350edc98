"""Random models whose heads see windows with gaps or strides, with a tokenizer, as files."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import dense_models as dm
from hf_folders import VOCABULARY, write_tokenizer

from oxibonsai.convert.language_model import convert

NAMES = ("phi3small", "phi3small-strides", "phi3small-alike", "dilated", "dilated-global")


def write(name: str, path: Path) -> Any:
    """Write the file of a case of ``dense_models``, and return the model that computes in torch."""
    case = next(c for c in dm.CASES if c.name == name)
    folder = path.with_suffix(".folder")
    options = {**case.options, "vocab_size": VOCABULARY}
    model = dm.save(dataclasses.replace(case, options=options), folder)
    write_tokenizer(folder, spm=False)
    convert(folder, path, dtype="f32")
    return model
