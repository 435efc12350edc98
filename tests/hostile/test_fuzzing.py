"""What fuzzing found once stays found: the corpus, and mutations of it, under sanitizers."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from native_build import build, build_windows, needs_compiler, wine_environment

CORPUS = Path(__file__).parent / "corpus"
MUTATIONS = {"gguf": 2000, "weights": 100}  # of each file, before a release
SAMPLE = 40  # of so many mutations one is tried for every change


@pytest.mark.long("compiles all native code with sanitizers")
@needs_compiler
@pytest.mark.timeout(2400)
@pytest.mark.parametrize(
    "share",
    [pytest.param(SAMPLE, marks=pytest.mark.slow), pytest.param(1, marks=pytest.mark.release)],
    ids=["sample", "all"],
)
@pytest.mark.parametrize("target", MUTATIONS)
def test_the_corpus_and_mutations_of_it_have_no_findings(target: str, share: int) -> None:
    folder = build("sanitized", "-DOXIBONSAI_SANITIZE=address,undefined", "-DOXIBONSAI_FUZZERS=ON")
    files = sorted((CORPUS / target).iterdir())
    assert files
    program = folder / "tests" / "native" / f"fuzz_{target}"
    done = subprocess.run(
        [str(program), str(MUTATIONS[target] // share), "1", *map(str, files)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.mark.release
@pytest.mark.long("compiles the core for Windows")
@needs_compiler
@pytest.mark.timeout(2400)
@pytest.mark.parametrize("target", MUTATIONS)
def test_the_corpus_has_no_findings_on_windows(target: str) -> None:
    wine, environment = wine_environment()
    program = build_windows() / "tests" / "native" / f"fuzz_{target}.exe"
    files = sorted((CORPUS / target).iterdir())
    done = subprocess.run(
        [wine, str(program), str(MUTATIONS[target] // SAMPLE), "1", *(f.name for f in files)],
        cwd=CORPUS / target,
        env=os.environ | environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.mark.fuzz
@pytest.mark.long("is a search of ten minutes")
@needs_compiler
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("target", MUTATIONS)
def test_ten_minutes_of_fuzzing_have_no_findings(target: str, tmp_path: Path) -> None:
    if shutil.which("clang++") is None:
        pytest.skip("needs clang++ with libFuzzer")
    folder = build(
        "fuzz",
        "-DCMAKE_CXX_COMPILER=clang++",
        "-DOXIBONSAI_SANITIZE=address,undefined,fuzzer-no-link",
        "-DOXIBONSAI_FUZZERS=ON",
    )
    found = tmp_path / "found"
    found.mkdir()
    limits = ["-max_total_time=600", "-max_len=4096", "-rss_limit_mb=1500", "-timeout=15"]
    program = folder / "tests" / "native" / f"fuzz_{target}"
    done = subprocess.run(
        [str(program), *limits, str(found), str(CORPUS / target)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-4000:]
