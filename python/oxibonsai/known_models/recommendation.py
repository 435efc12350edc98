"""Which settings suit a model: what its file states, and what its family's makers recommend."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from oxibonsai.errors import FormatError, RequestError
from oxibonsai.known_models.families import CONTEXT_BY_GIB, NO_EFFORT, ModelFamily, find_family
from oxibonsai.sampling import PARAMETERS, SamplingParams

# GGUF's names (general.sampling.*) of the fields of SamplingParams.
_STATED = {
    "temp": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "penalty_repeat": "repetition_penalty",
    "penalty_last_n": "repetition_window",
    "xtc_probability": "xtc_probability",
    "xtc_threshold": "xtc_threshold",
    "mirostat": "mirostat",
    "mirostat_tau": "mirostat_tau",
    "mirostat_eta": "mirostat_eta",
}


class Metadata(Protocol):
    """A file's metadata, as of ``checkpoint.reader.Reader``."""

    def keys(self) -> list[str]:
        """Return all keys."""

    def get(self, key: str, default: Any = None) -> Any:
        """Return a key's value."""


class Setting(NamedTuple):
    """A value and who gives it."""

    value: float
    source: str


@dataclass(frozen=True)
class Recommendation:
    """Settings that suit a model.

    Attributes:
        family: The model's; None: no record fits.
        stated: Sampling parameters that the file states, by fields of ``SamplingParams``.
    """

    family: ModelFamily | None = None
    stated: Mapping[str, Setting] = field(default_factory=dict)

    def settings(self, thinks: bool | None) -> dict[str, Setting]:
        """Return sampling parameters with their sources: the file's, then the family's.

        A file states one set, that of the mode in which the model answers by itself. Where the family
        has another set for answers without reasoning, that one goes first there.

        Args:
            thinks: Whether the model reasons before it answers; None: its own default.
        """
        if self.family is None:
            return dict(self.stated)
        family = self.family.plain if thinks is False else self.family.thinking
        own = {name: Setting(value, self.family.name) for name, value in family.items()}
        if family != self.family.thinking:
            return {**self.stated, **own}
        return {**own, **self.stated}

    def values(self, thinks: bool | None) -> dict[str, Any]:
        """Return the parameters of :meth:`settings` without their sources."""
        return {name: setting.value for name, setting in self.settings(thinks).items()}

    def params(self, thinks: bool | None, given: Mapping[str, Any] | None = None) -> SamplingParams:
        """Return complete parameters: those given, else the recommended, else general defaults."""
        return SamplingParams(**{**self.values(thinks), **(given or {})})

    def effort(self, word: str) -> str | None:
        """Return the word that the model's chat template takes for an effort; None: better none."""
        if self.family is None or not self.family.efforts:
            return word
        return None if word in NO_EFFORT else self.family.effort_for.get(word, word)

    def budget(self, word: str) -> int | None:
        """Return the tokens of reasoning that an effort means; None: it sets no bound."""
        return None if self.family is None else self.family.budgets.get(word)

    def context(self, gib: float) -> int:
        """Return the largest default context on a machine with so much memory."""
        bounds = CONTEXT_BY_GIB if self.family is None else self.family.context_by_gib
        return next(size for limit, size in bounds if gib <= limit)


def recommend(file: Metadata, path: str | os.PathLike[str]) -> Recommendation:
    """Return what is recommended for a model.

    Args:
        file: Its metadata.
        path: Where it lies; names of file and folder tell the family.

    Raises:
        FormatError: The file states a value out of range.
    """
    rotated = any(key.startswith("prism.hadamard.") for key in file.keys())  # noqa: SIM118 - not a dict
    architecture = str(file.get("general.architecture"))
    family = find_family(architecture, size_of(file), names_of(file, Path(path)), rotated=rotated)
    return Recommendation(family, _stated(file, Path(path)))


def size_of(file: Metadata) -> tuple[int, int]:
    """Return layers, those that draft left out, and hidden size; zeros where the file lacks them."""
    architecture = file.get("general.architecture")
    keys = ("block_count", "embedding_length", "nextn_predict_layers")
    found = (file.get(f"{architecture}.{key}", 0) for key in keys)
    layers, hidden, drafting = (size if isinstance(size, int) else 0 for size in found)
    return layers - drafting, hidden


def names_of(file: Metadata, path: Path) -> tuple[str, ...]:
    """Return the names of file, folder and model, which may tell the family."""
    name = file.get("general.name")
    return path.name, path.parent.name, name if isinstance(name, str) else ""


def _stated(file: Metadata, path: Path) -> dict[str, Setting]:
    found = {}
    for name, parameter in _STATED.items():
        key = f"general.sampling.{name}"
        value = file.get(key)
        if value is None:
            continue
        if isinstance(value, float):
            value = float(f"{value:.7g}")  # float32: 0.95 and not 0.949999988
        try:
            found[parameter] = Setting(PARAMETERS[parameter].check(parameter, value), key)
        except RequestError as e:
            raise FormatError(f"{path}: {key}: {e}") from e
    return found
