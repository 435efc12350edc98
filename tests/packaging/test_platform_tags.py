"""A wheel gets the tag that was asked for only if it runs wherever wheels of that tag do."""

from __future__ import annotations

import pytest

build_wheels = pytest.importorskip(
    "build_wheels", reason="packaging/requirements.txt", exc_type=ImportError
)


@pytest.mark.parametrize(
    ("found", "promised", "runs"),
    [
        ("manylinux_2_24_aarch64", "manylinux_2_28_aarch64", True),
        ("manylinux_2_28_x86_64", "manylinux_2_28_x86_64", True),
        ("manylinux_2_31_x86_64", "manylinux_2_28_x86_64", False),
        ("manylinux_2_4_x86_64", "manylinux_2_28_x86_64", True),
        ("manylinux_2_24_x86_64", "manylinux_2_28_aarch64", False),
        ("musllinux_1_1_x86_64", "manylinux_2_28_x86_64", False),
        ("manylinux2014_x86_64", "manylinux_2_28_x86_64", False),
        ("linux_x86_64", "manylinux_2_28_x86_64", False),
    ],
)
def test_a_tag_keeps_the_promise_of_another(found: str, promised: str, runs: bool) -> None:
    assert build_wheels.runs_where(found, promised) is runs
