"""Our rows are as near to transformers' as those of llama.cpp's mtmd, whose distances are recorded."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs transformers and torch")
pytest.importorskip("transformers", reason="needs transformers and torch")
from mtmd_distances import TOWERS, Measured, make_files, recorded

pytestmark = [pytest.mark.hf, pytest.mark.slow]
ALLOWED = 1.3  # of mtmd's own distance


@pytest.mark.parametrize("measured", TOWERS, ids=lambda m: m.name)
def test_rows_are_as_near_to_transformers_as_those_of_mtmd(
    measured: Measured, tmp_path: Path
) -> None:
    files = make_files(measured, tmp_path)
    for kind in measured.types:
        assert files.own_distance(kind) <= ALLOWED * recorded()[measured.name][kind], kind
