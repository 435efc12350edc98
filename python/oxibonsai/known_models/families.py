"""Families of models whose makers recommend settings: one record each, one table of all.

A value is one that the makers publish on the model's card or in their demo; where they publish none,
the record has none, and general defaults apply.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

# Words of a request's reasoning effort.
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
# Those that ask for no reasoning at all.
NO_EFFORT = ("none", "minimal")
# Largest default context by GiB of memory: a model's own maximum would fill a small machine.
CONTEXT_BY_GIB = ((11, 8192), (23, 16384), (35, 32768), (71, 65536), (2**31, 131072))


@dataclass(frozen=True)
class ModelFamily:
    """Models that their makers recommend the same settings for.

    Attributes:
        name: Shown beside each setting as its source.
        pattern: Matched against the file's name, its folder's and the model's, whatever the case.
        architecture: ``general.architecture``.
        sizes: Layers and hidden size of each published model; empty: any.
        always_rotated: Files of ``architecture`` with Hadamard-rotated weights belong to the family
            whatever their name is: it has published all such files.
        thinking: Sampling parameters, by fields of ``SamplingParams``, where the model reasons first.
        plain: The same where it does not.
        efforts: Words that the chat template takes as ``reasoning_effort``; empty: it knows none.
        effort_for: Of other words, the one that stands for it.
        budgets: Tokens of reasoning for a word, where the template knows none.
        context_by_gib: Default context by GiB of memory, upper bounds first.
    """

    name: str
    pattern: str
    architecture: str
    sizes: frozenset[tuple[int, int]] = frozenset()
    always_rotated: bool = False
    thinking: Mapping[str, float] = field(default_factory=dict, hash=False)
    plain: Mapping[str, float] = field(default_factory=dict, hash=False)
    efforts: tuple[str, ...] = ()
    effort_for: Mapping[str, str] = field(default_factory=dict, hash=False)
    budgets: Mapping[str, int] = field(default_factory=dict, hash=False)
    context_by_gib: tuple[tuple[int, int], ...] = CONTEXT_BY_GIB

    def fits(
        self, architecture: str, size: tuple[int, int], names: tuple[str, ...], *, rotated: bool
    ) -> bool:
        """Return whether a model of these facts is of the family."""
        if architecture != self.architecture or (self.sizes and size not in self.sizes):
            return False
        if self.always_rotated and rotated:
            return True
        return any(re.search(self.pattern, name, re.IGNORECASE) for name in names)


# Of Qwen3.8's template, which Bonsai 2 has: another word raises an exception there.
_QWEN38_EFFORTS = ("low", "medium", "xhigh")
_QWEN38_EFFORT_FOR = MappingProxyType({"high": "xhigh", "max": "xhigh"})
_SMALL = {"temperature": 0.5, "top_p": 0.85, "top_k": 20, "min_p": 0.0}

# The first that fits is the one.
FAMILIES = (
    ModelFamily(
        name="Bonsai 2",
        pattern=r"bonsai-?2-\d",
        architecture="qwen35",
        sizes=frozenset({(24, 2048), (32, 2560), (32, 4096), (64, 5120)}),
        always_rotated=True,
        thinking={"temperature": 1.0, "top_p": 0.95, "top_k": 20, "min_p": 0.0},
        plain={
            "temperature": 0.7, "top_p": 0.8, "top_k": 20, "min_p": 0.0, "presence_penalty": 1.5,
        },
        efforts=_QWEN38_EFFORTS,
        effort_for=_QWEN38_EFFORT_FOR,
    ),
    ModelFamily(
        name="Bonsai 27B",
        pattern=r"bonsai-27b",
        architecture="qwen35",
        sizes=frozenset({(64, 5120)}),
        thinking={"temperature": 0.7, "top_p": 0.95, "top_k": 20, "min_p": 0.0},
        plain={"temperature": 0.7, "top_p": 0.95, "top_k": 20, "min_p": 0.0},
        budgets={"low": 512, "medium": 2048, "high": 8192},
    ),
    ModelFamily(
        name="Bonsai",
        pattern=r"bonsai-(1\.7b|4b|8b)",
        architecture="qwen3",
        sizes=frozenset({(28, 2048), (36, 2560), (36, 4096)}),
        thinking=_SMALL,
        plain=_SMALL,
        context_by_gib=(*CONTEXT_BY_GIB[:3], (2**31, 65536)),
    ),
    ModelFamily(
        name="Qwen3.8",
        pattern=r"qwen3\.8",
        architecture="qwen35",
        efforts=_QWEN38_EFFORTS,
        effort_for=_QWEN38_EFFORT_FOR,
    ),
)  # fmt: skip


def find_family(
    architecture: str, size: tuple[int, int], names: tuple[str, ...], *, rotated: bool
) -> ModelFamily | None:
    """Return the family of a model; None: no record fits.

    Args:
        architecture: ``general.architecture``.
        size: Layers and hidden size.
        names: Of the file, its folder and the model.
        rotated: Whether weights are Hadamard-rotated.
    """
    found = (f for f in FAMILIES if f.fits(architecture, size, names, rotated=rotated))
    return next(found, None)
