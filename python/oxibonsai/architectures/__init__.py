"""Families of models, one file each."""

from __future__ import annotations

from typing import Any

from oxibonsai.architectures import (
    arcee,
    ernie4_5,
    gemma,
    glm,
    llama,
    nemotron,
    olmo,
    phi2,
    qwen2,
    qwen3,
    seed_oss,
    starcoder2,
)
from oxibonsai.architectures.schema.family import Family

FAMILIES: tuple[Family[Any], ...] = (
    arcee.FAMILY,
    ernie4_5.FAMILY,
    gemma.FAMILY,
    glm.GLM,
    glm.GLM4,
    llama.FAMILY,
    nemotron.FAMILY,
    olmo.FAMILY,
    phi2.FAMILY,
    qwen2.FAMILY,
    qwen3.FAMILY,
    seed_oss.FAMILY,
    starcoder2.FAMILY,
)
