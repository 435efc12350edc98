"""Families of models, one file each."""

from __future__ import annotations

from typing import Any

from oxibonsai.architectures import (
    arcee,
    ernie4_5,
    exaone,
    falcon,
    gemma,
    gemma2,
    glm,
    gpt2,
    gptj,
    gptneox,
    jais2,
    llama,
    nemotron,
    olmo,
    phi2,
    qwen2,
    qwen3,
    seed_oss,
    smollm3,
    stablelm,
    starcoder2,
    xverse,
)
from oxibonsai.architectures.schema.family import Family

FAMILIES: tuple[Family[Any], ...] = (
    arcee.FAMILY,
    ernie4_5.FAMILY,
    exaone.FAMILY,
    falcon.FAMILY,
    gemma.FAMILY,
    gemma2.FAMILY,
    glm.GLM,
    glm.GLM4,
    gpt2.GPT2,
    gpt2.STARCODER,
    gptj.FAMILY,
    gptneox.FAMILY,
    jais2.FAMILY,
    llama.FAMILY,
    nemotron.FAMILY,
    olmo.FAMILY,
    phi2.FAMILY,
    qwen2.FAMILY,
    qwen3.FAMILY,
    seed_oss.FAMILY,
    smollm3.FAMILY,
    stablelm.FAMILY,
    starcoder2.FAMILY,
    xverse.FAMILY,
)
