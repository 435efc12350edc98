"""Python objects that native code keeps are given back with the GIL, whoever gives them back."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import textwrap
from pathlib import Path

import pytest

from native_build import ROOT, needs_compiler

pybind11 = pytest.importorskip("pybind11")

LET_GO = """
    import weakref

    import numpy as np
    from oxibonsai import _core
    from weight_keeper import Keeper

    blocks = np.zeros((2, 128), np.uint8)
    gone = weakref.ref(blocks)
    keeper = Keeper(_core.Weight.from_blocks("w", "F32", blocks, 32))
    del blocks
    assert gone() is not None
    keeper.let_go()
    assert gone() is None
"""


@needs_compiler
def test_a_thread_without_the_gil_may_give_a_weight_back(tmp_path: Path) -> None:
    module = tmp_path / ("weight_keeper" + sysconfig.get_config_var("EXT_SUFFIX"))
    includes = [sysconfig.get_path("include"), pybind11.get_include(), str(ROOT / "csrc")]
    source = Path(__file__).with_name("weight_keeper.cc")
    command = ["g++", "-std=c++17", "-shared", "-fPIC", "-fvisibility=hidden", str(source)]
    subprocess.run([*command, *(f"-I{i}" for i in includes), "-o", str(module)], check=True)
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(LET_GO)],
        # Python's own allocator then ends the process when it is used without the GIL.
        env={
            **os.environ,
            "PYTHONMALLOC": "debug",
            "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path]),
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
