"""The JSON-Schema-Test-Suite is the truth: nothing it calls invalid is ever accepted."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from schema_suite import Coverage, cases, judge
from vocabularies import byte_level

from oxibonsai.structured import StructureCompiler

_DOCS = Path(__file__).resolve().parents[2] / "docs" / "structured.md"


@pytest.fixture(scope="module")
def compiler() -> StructureCompiler:
    tokenizer = byte_level()
    return StructureCompiler(tokenizer, tokenizer.vocab_size)


@pytest.mark.parametrize("part", ["required", "optional", "format"])
@pytest.mark.parametrize(
    "draft",
    [
        pytest.param("draft7", marks=pytest.mark.release),
        pytest.param("draft2020-12", marks=pytest.mark.slow),
    ],
)
def test_nothing_invalid_is_accepted(
    suite: Path, compiler: StructureCompiler, draft: str, part: str, record_property: Callable
) -> None:
    coverage = Coverage()
    wrong = [line for case in cases(suite, draft, part) for line in judge(compiler, case, coverage)]
    record_property("coverage", str(coverage))
    assert wrong == []
    assert _published(draft, part) == (
        coverage.taken,
        coverage.refused,
        coverage.right_accepts,
        coverage.false_refusals,
        coverage.right_refusals,
    )


def _published(draft: str, part: str) -> tuple[int, ...]:
    """The row of the table in the documentation."""
    row = re.search(rf"^\| {draft} {part} \|(.*)\|$", _DOCS.read_text(), re.MULTILINE)
    assert row is not None
    return tuple(int(cell) for cell in row[1].split("|"))
