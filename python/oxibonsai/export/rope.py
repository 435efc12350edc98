"""Rotary embeddings: a file's keys and tables to the fields of ``config.json``."""

from __future__ import annotations

from typing import Any

from oxibonsai.architectures.rotary import scaling_fields
from oxibonsai.checkpoint import Checkpoint
from oxibonsai.errors import UnsupportedError
from oxibonsai.export.numbers import rounded, short
from oxibonsai.graph import RopeConfig
from oxibonsai.models.config import ModelConfig

_SHORT, _LONG = "rope_factors_short.weight", "rope_factors_long.weight"


def rope_fields(checkpoint: Checkpoint, c: ModelConfig, *, by_kind: bool) -> dict[str, Any]:
    """Return the rotary embedding, of the layers that have one."""
    rope = c.rope if c.rope.rotary_dim > 0 or c.rope_local is None else c.rope_local
    if rope.rotary_dim == 0:
        return {}
    scaling = rope_scaling(checkpoint, rope)
    found: dict[str, Any] = {"rope_theta": rope.theta, "rope_scaling": scaling}
    if rope.rotary_dim != c.head_dim:
        found["partial_rotary_factor"] = rope.rotary_dim / c.head_dim
    if by_kind and c.rope_local is not None:
        plain = {"rope_type": "default", "rope_theta": short(rope.theta)}
        local = {**plain, "rope_theta": short(c.rope_local.theta)}
        kinds = {"full_attention": {**plain, **(scaling or {})}, "sliding_attention": local}
        found["rope_parameters"] = kinds
    return found


def rope_scaling(checkpoint: Checkpoint, rope: RopeConfig) -> dict[str, Any] | None:
    """Return what stretches the positions, under Hugging Face's names; None: nothing does.

    Raises:
        UnsupportedError: No field has a place for it.
    """
    if checkpoint.has(_LONG):
        return _longrope(checkpoint)
    try:
        return scaling_fields(rope)
    except UnsupportedError as e:
        raise UnsupportedError(f"{checkpoint.path}: {e}") from e


def _longrope(checkpoint: Checkpoint) -> dict[str, Any]:
    """LongRoPE's two tables; its magnitude is what the context makes it, or the architecture's own."""
    return {
        "rope_type": "longrope",
        "short_factor": [short(value) for value in checkpoint.vector(_SHORT)],
        "long_factor": [short(value) for value in checkpoint.vector(_LONG)],
        "original_max_position_embeddings": original_context(checkpoint),
    }


def original_context(checkpoint: Checkpoint) -> int:
    """Positions of the model before its context was extended; 0: the file does not say."""
    file = checkpoint.file
    a = file.get("general.architecture")
    return int(file.get(f"{a}.rope.scaling.original_context_length") or 0)


def yarn_rope(checkpoint: Checkpoint, c: ModelConfig, scores: float) -> dict[str, Any]:
    """Return a rotary embedding with YaRN's factor of the scores, and growth of queries.

    Args:
        checkpoint: Of the model.
        c: Its configuration.
        scores: How many times the file's multiplier of logarithms the configuration's is.
    """
    file, a = checkpoint.file, c.architecture
    found: dict[str, Any] = {"rope_type": "default", "rope_theta": c.rope.theta}
    if c.rope.scaling == "yarn":
        found |= {
            "rope_type": "yarn",
            "factor": c.rope.factor,
            "original_max_position_embeddings": c.rope.original_context,
            "beta_fast": c.rope.beta_fast,
            "beta_slow": c.rope.beta_slow,
        }
        multiplier = file.get(f"{a}.rope.scaling.yarn_log_multiplier")
        if multiplier is not None:
            scale = rounded(scores * float(multiplier))
            found |= {"mscale": scale, "mscale_all_dim": scale}
    if (growth := file.get(f"{a}.attention.temperature_scale")) is not None:
        found["llama_4_scaling_beta"] = growth
    return {"rope_theta": c.rope.theta, "rope_parameters": found}
