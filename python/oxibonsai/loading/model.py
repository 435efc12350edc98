"""From a model's name to an opened checkpoint, whatever its files are."""

from __future__ import annotations

import os
import warnings
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from oxibonsai.checkpoint import Checkpoint
from oxibonsai.checkpoint.folder import ModelFolder
from oxibonsai.sources.model_source import Kind, find_model

if TYPE_CHECKING:
    from oxibonsai.convert.writing import PlannedModel
    from oxibonsai.models.drafting import TargetModel


def open_model(
    source: str | os.PathLike[str] | None,
    quant_type: str = "",
    *,
    vocabulary_only: bool = False,
    drafts_for: TargetModel | None = None,
) -> Checkpoint:
    """Open what ``source`` names. No file is written, but for what is fetched from elsewhere.

    Args:
        source: What :func:`oxibonsai.sources.model_source.find_model` takes.
        quant_type: Layout of the tensors of type id 42, where a GGUF file leaves it open.
        vocabulary_only: Leave out a folder's weights.
        drafts_for: The model for which a folder may hold a drafter; None: a drafter is refused.

    Raises:
        SourceError: There is no such model.
        RequestError: The source is neither a string nor a path.
        FormatError, UnsupportedError: As :class:`Checkpoint` and
            :func:`oxibonsai.convert.language_model.convert`.
    """
    with ExitStack() as stack:
        found = stack.enter_context(find_model(source))
        if found.kind is Kind.GGUF:
            return Checkpoint(found.path, quant_type)
        checkpoint = open_folder(
            found.path, name=found.name, weights=not vocabulary_only, drafts_for=drafts_for
        )
        checkpoint.keep(stack.pop_all())
        return checkpoint


def open_folder(
    folder: Path, *, name: str = "", weights: bool = True, drafts_for: TargetModel | None = None
) -> Checkpoint:
    """Return a folder of a language model, or an ONNX file, as the GGUF file that it converts to.

    Args:
        folder: Names the model in errors.
        name: The model's; empty: the folder's.
        weights: False leaves the tensors out.
        drafts_for: As of :func:`open_model`.
    """
    from oxibonsai.convert.eagle3 import is_drafter, plan_drafter
    from oxibonsai.convert.language_model import plan_language_model

    if drafts_for is not None and is_drafter(ModelFolder(folder)):
        return opened(plan_drafter(folder, drafts_for, name=name, vocabulary=False), folder)
    return opened(plan_language_model(folder, name=name, weights=weights), folder)


def opened(planned: PlannedModel, path: Path) -> Checkpoint:
    """Return a planned model as the file that would be written, with a warning for each note.

    Args:
        planned: The model.
        path: Names it in errors.
    """
    for note in planned.notes:
        warnings.warn(note, stacklevel=4)
    return Checkpoint(path, reader=planned.reader())
