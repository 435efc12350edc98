"""Families of models, one file each; the order is that in which they are told to users."""

from __future__ import annotations

from typing import Any

from oxibonsai.architectures import llama, qwen2, qwen3
from oxibonsai.architectures.schema.family import Family

FAMILIES: tuple[Family[Any], ...] = (llama.FAMILY, qwen2.FAMILY, qwen3.FAMILY)
