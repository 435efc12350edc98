"""The passes of decoders ask the graph for what they always asked for, constants included."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("transformers", reason="needs transformers and torch (extra: test)")
import builder_calls
import cases

pytestmark = pytest.mark.hf

RECORDED = json.loads(builder_calls.RECORDED.read_text())


@pytest.mark.parametrize("case", cases.ALL, ids=lambda c: c.name)
def test_a_pass_makes_the_calls_that_were_recorded(case: cases.Decoder, tmp_path: Path) -> None:
    lines = builder_calls.calls(case.file(tmp_path / "model"))
    assert builder_calls.digest(lines) == RECORDED[case.name], "\n".join(lines)


def test_a_call_is_noted_with_its_constants(tmp_path: Path) -> None:
    case = next(c for c in cases.DECODERS if c.name == "gemma2")
    lines = builder_calls.calls(case.file(tmp_path / "model"))
    attends = [line for line in lines if line.startswith("attend(")]
    assert len(attends) == 2
    assert ", 24, 50.0," in attends[0]  # the window and the cap of the first layer
    assert ", 0, 50.0," in attends[1]
