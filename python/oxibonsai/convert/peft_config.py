"""``adapter_config.json`` of PEFT: what scales an adapter's products, and what no plain LoRA has."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oxibonsai.errors import FormatError, UnsupportedError

PEFT_CONFIG = "adapter_config.json"

# How it was trained and where it came from: the tensors say what there is.
_IDLE = frozenset(
    {
        "auto_mapping",
        "base_model_name_or_path",
        "ensure_weight_tying",
        "eva_config",
        "exclude_modules",
        "fan_in_fan_out",
        "inference_mode",
        "layers_pattern",
        "layers_to_transform",
        "loftq_config",
        "lora_dropout",
        "megatron_core",
        "parent_library",
        "peft_version",
        "qalora_group_size",
        "revision",
        "target_modules",
        "task_type",
    }
)
_READ = frozenset(
    {
        "alpha_pattern",
        "bias",
        "init_lora_weights",
        "lora_alpha",
        "peft_type",
        "r",
        "rank_pattern",
        "use_rslora",
    }
)
# Ways to begin training that leave the model's own weights alone.
_PLAIN_STARTS = (None, True, False, "gaussian", "eva", "orthogonal")
_MODULE = re.compile(r"\^?[A-Za-z0-9_]+(\.[A-Za-z0-9_]+)*")
_LARGEST = 1e6


@dataclass(frozen=True)
class PeftConfig:
    """Scales of an adapter's products.

    Attributes:
        path: Of the file.
        rank, alpha: Of modules that no pattern names.
        ranks, alphas: By names of modules, or their last parts; ``^`` before a whole name.
        stabilised: The scale is alpha / sqrt(rank) instead of alpha / rank (rsLoRA, arXiv 2312.03732).
    """

    path: Path
    rank: int
    alpha: float
    ranks: dict[str, int]
    alphas: dict[str, float]
    stabilised: bool

    def rank_of(self, module: str) -> int:
        """Rank of a module's two matrices."""
        return next((r for name, r in self.ranks.items() if _names(name, module)), self.rank)

    def full_alpha(self, module: str | None = None) -> float:
        """Return the factor of a module's product times its rank; None if there is no pattern."""
        rank, alpha = self.rank, self.alpha
        if module is not None:
            rank = self.rank_of(module)
            found = (a for name, a in self.alphas.items() if _names(name, module))
            alpha = next(found, self.alpha)
        return alpha * math.sqrt(rank) if self.stabilised else alpha


def read_peft_config(folder: Path) -> PeftConfig:
    """Read the file and refuse what is no plain LoRA.

    Raises:
        FormatError: The file is missing or damaged.
        UnsupportedError: It asks for more; the field is named.
    """
    path = folder / PEFT_CONFIG
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as e:
        raise FormatError(f"cannot read {path}: {e}") from e
    if not isinstance(values, dict):
        raise FormatError(f"{path} is no JSON object")
    _refuse_others(path, values)
    ranks, alphas = _pattern(path, values, "rank_pattern"), _pattern(path, values, "alpha_pattern")
    stabilised = values.get("use_rslora", False)
    if stabilised not in (None, True, False):
        raise FormatError(f"{path}: use_rslora is {stabilised!r}, not true or false")
    return PeftConfig(
        path,
        _rank(path, "r", values.get("r")),
        _alpha(path, "lora_alpha", values.get("lora_alpha")),
        {name: _rank(path, f"rank_pattern of {name}", v) for name, v in ranks.items()},
        {name: _alpha(path, f"alpha_pattern of {name}", v) for name, v in alphas.items()},
        stabilised is True,
    )


def _refuse_others(path: Path, values: dict[str, Any]) -> None:
    if values.get("peft_type") != "LORA":
        raise UnsupportedError(f"{path}: peft_type is {values.get('peft_type')!r}; known is 'LORA'")
    if (bias := values.get("bias", "none")) not in ("none", None):
        raise UnsupportedError(f"{path}: bias is {bias!r}; only linear layers' weights can change")
    start = values.get("init_lora_weights", True)
    if not any(start is known or start == known for known in _PLAIN_STARTS):
        raise UnsupportedError(
            f"{path}: init_lora_weights is {start!r}, which may change the model's own weights too; have "
            "PEFT save it as a plain LoRA (path_initial_model_for_weight_conversion)"
        )
    for key, value in values.items():
        if key not in _IDLE and key not in _READ and value not in (None, False, 0, "", [], {}):
            raise UnsupportedError(f"{path}: {key} is {value!r}; only plain LoRA is supported")


def _pattern(path: Path, values: dict[str, Any], key: str) -> dict[str, Any]:
    """Return values by name of a module: PEFT allows regular expressions, its own tools write names."""
    found = values.get(key) or {}
    if not isinstance(found, dict):
        raise FormatError(f"{path}: {key} is no object")
    for name in found:
        if not _MODULE.fullmatch(name):
            raise UnsupportedError(f"{path}: {key} has {name!r}, which is no name of a module")
    return found


def _names(pattern: str, module: str) -> bool:
    if pattern.startswith("^"):
        return module == pattern[1:]
    return module == pattern or module.endswith(f".{pattern}")


def _rank(path: Path, key: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 2**31:
        raise FormatError(f"{path}: {key} is {value!r}, not a positive count")
    return value


def _alpha(path: Path, key: str, value: Any) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0.0 < value <= _LARGEST:
        raise FormatError(
            f"{path}: {key} is {value!r}, not a number above 0 and up to {_LARGEST:g}"
        )
    return float(value)
