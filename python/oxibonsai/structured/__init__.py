"""Text held to a structure: a JSON schema, a regular expression, a choice or a grammar."""

from __future__ import annotations

from oxibonsai.structured.compiler import StructureCompiler
from oxibonsai.structured.constraint import Constraint
from oxibonsai.structured.structure import DescribedJson, Structure

__all__ = ["Constraint", "DescribedJson", "Structure", "StructureCompiler"]
