"""A key or tensor that an architecture does not use is refused by name: it would change the text."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import remote_models

import gguf_copy
from oxibonsai.architectures.families import BY_NAME
from oxibonsai.checkpoint import Checkpoint
from oxibonsai.errors import UnsupportedError
from oxibonsai.models import read_config


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("qwen3.attention.sliding_window", (4096, "u32")),
        ("qwen3.attn_logit_softcapping", (50.0, "f32")),
        ("qwen3.final_logit_softcapping", (30.0, "f32")),
        ("qwen3.rope.freq_base_swa", (10000.0, "f32")),
        ("qwen3.expert_count", (8, "u32")),
        ("qwen3.attention.clamp_kqv", (1.0, "f32")),
    ],
)
def test_a_key_of_another_architecture_is_refused(
    key: str, value: tuple[Any, str], tiny_path: Path, tmp_path: Path
) -> None:
    gguf_copy.copy(tiny_path, tmp_path / "m.gguf", keys={key: value})
    with pytest.raises(UnsupportedError, match=f"{key}, which this version does not know for"):
        read_config(Checkpoint(tmp_path / "m.gguf"))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("qwen3.attention.sliding_window", (0, "u32")),
        ("qwen3.expert_count", (0, "u32")),
        ("qwen3.vocab_size", (300, "u32")),
        ("llama.attention.sliding_window", (4096, "u32")),
    ],
)
def test_what_says_nothing_is_taken(
    key: str, value: tuple[Any, str], tiny_path: Path, tmp_path: Path
) -> None:
    gguf_copy.copy(tiny_path, tmp_path / "m.gguf", keys={key: value})
    assert read_config(Checkpoint(tmp_path / "m.gguf")) == read_config(Checkpoint(tiny_path))


def test_an_unknown_architecture_is_told_which_there_are(tiny_path: Path, tmp_path: Path) -> None:
    gguf_copy.copy(tiny_path, tmp_path / "m.gguf", keys={"general.architecture": ("bonsai", "str")})
    with pytest.raises(UnsupportedError, match=f"bonsai; supported are {', '.join(BY_NAME)}"):
        read_config(Checkpoint(tmp_path / "m.gguf"))


def test_the_docs_list_every_architecture_with_its_distance() -> None:
    page = Path(__file__).resolve().parents[2] / "docs" / "architectures.md"
    rows = re.findall(
        r"^\| `(\S+)` \| \d+ \| ([^|]+) \| (\S+) \| [^|]+ \|[^|]*\|$",
        page.read_text(),
        re.MULTILINE,
    )
    # Other tests register toys.
    known = {name for name in BY_NAME if not name.startswith("toy")}
    assert {name for name, _, _ in rows} == known
    # Where the reference itself is a coarser one, its cases say so.
    allowed = {c.architecture: c.distance for c in remote_models.CASES}
    limits = {n: 1e-3 if "GELU" in source else allowed.get(n, 1e-4) for n, source, _ in rows}
    assert all(float(distance) <= limits[name] for name, _, distance in rows)
