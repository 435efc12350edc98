"""A wheel is tried on the Debian that has its Python; what it generates there is what the checkout does."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import try_wheel

DIST = Path(__file__).resolve().parents[2] / "dist"


@pytest.mark.parametrize(
    ("tags", "target"),
    [
        ("cp311-cp311-manylinux_2_28_x86_64", ("x86_64", "bookworm")),
        ("cp313-cp313-manylinux_2_28_aarch64", ("aarch64", "trixie")),
    ],
)
def test_a_wheel_is_tried_on_the_debian_of_its_python(tags: str, target: tuple[str, str]) -> None:
    assert try_wheel.wheel_target(Path(f"oxibonsai-0.1.0-{tags}.whl")) == target


@pytest.mark.parametrize(
    ("tags", "reason"),
    [
        ("cp312-cp312-manylinux_2_28_x86_64", "no release of Debian has this Python"),
        ("cp311-cp311-musllinux_1_2_x86_64", "not a wheel for Linux with glibc 2.28"),
        ("cp311-cp311-win_amd64", "not a wheel for Linux with glibc 2.28"),
    ],
)
def test_a_wheel_that_no_debian_installs_is_refused(tags: str, reason: str) -> None:
    with pytest.raises(SystemExit, match=reason):
        try_wheel.wheel_target(Path(f"oxibonsai-0.1.0-{tags}.whl"))


@pytest.mark.release
@pytest.mark.long("unpacks Debian and installs a wheel there, also for an emulated processor")
@pytest.mark.timeout(2400)
@pytest.mark.parametrize("processor", try_wheel.ARCHITECTURES)
def test_the_first_text_without_a_compiler_is_that_of_the_checkout(processor: str) -> None:
    wheel = next(DIST.glob(f"oxibonsai-*-cp311-manylinux_2_28_{processor}.whl"), None)
    if wheel is None:
        pytest.skip("needs a wheel in dist/, which packaging/build_wheels.py writes")
    if os.geteuid() != 0 or shutil.which("debootstrap") is None:
        pytest.skip("needs debootstrap and the rights of root")
    here = subprocess.run(
        [sys.executable, "-m", "oxibonsai", *try_wheel.FIRST_TEXT],
        check=True,
        capture_output=True,
        text=True,
    )
    with tempfile.TemporaryDirectory() as root:
        assert try_wheel.try_wheel(wheel, Path(root)) == here.stdout
