"""Rotary embeddings of models that see: their pairs turn by the axes of an image's positions (M-RoPE)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from oxibonsai.architectures.rotary import PARTIAL, Rope
from oxibonsai.architectures.schema.fields import GgufKeys, Known
from oxibonsai.architectures.schema.sources import ConfigJson, Keys
from oxibonsai.graph import RopeConfig, section_axes


@dataclass(frozen=True)
class Sections:
    """How many pairs turn by each axis of an image's positions; none: all turn by that in the text.

    Attributes:
        usual: The four counts that ``config.json`` leaves to transformers' defaults; empty: there are
            none; None: it must say them.
    """

    usual: tuple[int, ...] | None = None

    def read_config_json(self, config: ConfigJson, known: Known) -> tuple[int, ...]:
        """Return the four counts that ``config.json`` says."""
        rope = config.get("rope_parameters", "rope_scaling")
        stated = rope.get("mrope_section") if isinstance(rope, dict) else None
        sections = stated or self.usual
        if sections is None:
            raise config.fail("it has no mrope_section")
        whole = isinstance(sections, list | tuple) and all(
            type(n) is int and n >= 0 for n in sections
        )
        if not whole or (sections and not 3 <= len(sections) <= 4):
            raise config.fail(f"mrope_section is {sections!r}, no 3 or 4 counts")
        return (*sections, 0)[:4] if sections else ()

    def write_config_json(self, value: tuple[int, ...], c: Any) -> dict[str, Any]:
        """Return the sections, unless they are the usual ones."""
        told = value and value != self.usual
        return {"rope_parameters": {"mrope_section": list(value[:3])}} if told else {}

    def read_gguf(self, keys: Keys, known: Known) -> tuple[int, ...]:
        """Return the counts that a file says, which the rotary embedding has checked."""
        stated = keys.get("rope.dimension_sections")
        return () if stated is None else (*(int(n) for n in stated), 0, 0, 0)[:4]

    def write_gguf(self, value: tuple[int, ...], c: Any) -> GgufKeys:
        """Return the key, if there are sections."""
        return {"rope.dimension_sections": (list(value), "arr[i32]")} if value else {}


@dataclass(frozen=True)
class SectionedRope(Rope):
    """A rotary embedding whose pairs turn by the axes of a position, in sections of their own field.

    Attributes:
        sections: Describes them.
        taking_turns: Whether the axes take turns; else the pairs of each lie side by side.
    """

    sections: Sections = Sections(())
    taking_turns: bool = True
    also: tuple[str, ...] = ("mrope_section", "mrope_interleaved")

    def read_config_json(self, config: ConfigJson, known: Known) -> RopeConfig:
        """Return the embedding that ``config.json`` describes."""
        rope = super().read_config_json(config, known)
        if not (counts := self.sections.read_config_json(config, known)):
            return rope
        axes = section_axes(counts[:3], rope.rotary_dim // 2, interleaved=self.taking_turns)
        return replace(rope, axes=axes)

    def write_config_json(self, value: RopeConfig, c: Any) -> dict[str, Any]:
        """Return the object of ``config.json`` that describes the embedding."""
        rope = {"rope_type": "default", "rope_theta": value.theta}
        if self.share != 1.0 or value.rotary_dim != c.head_dim:
            rope[PARTIAL] = value.rotary_dim / c.head_dim
        return {"rope_parameters": rope}

    def read_gguf(self, keys: Keys, known: Known) -> RopeConfig:
        """Return the embedding that a file's keys describe."""
        return keys.multimodal_rope(known["head_dim"], interleaved_sections=self.taking_turns)
