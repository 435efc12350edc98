"""What fuzzing found once in the readers written in Python stays found; and more of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("onnx", reason="needs the onnx package (extra: convert)")
from python_readers import READERS

from oxibonsai.errors import FormatError

HERE = Path(__file__).parent
CORPUS = HERE / "corpus"


@pytest.mark.parametrize("reader", READERS)
def test_the_corpus_has_no_findings(reader: str, tmp_path: Path) -> None:
    files = sorted((CORPUS / reader).iterdir())
    assert files
    read = READERS[reader](tmp_path)
    for file in files:
        read(file.read_bytes())


@pytest.mark.parametrize("text", ["a\nb", "a\r\nb", "a\x1b[2Jb", "a\u2028b", "a\udc80b"])
def test_no_file_can_break_the_line_of_an_error(text: str) -> None:
    said = str(FormatError(f"the tensor {text} is damaged"))
    assert said.isprintable()
    assert said.startswith("the tensor a\\")
    assert said.endswith("b is damaged")


@pytest.mark.fuzz
@pytest.mark.timeout(900)
@pytest.mark.parametrize("reader", READERS)
def test_three_minutes_of_fuzzing_have_no_findings(reader: str, tmp_path: Path) -> None:
    pytest.importorskip("atheris", reason="needs atheris (extra: fuzz)")
    for name in ("found", "folder"):
        (tmp_path / name).mkdir()
    limits = ["-max_total_time=180", "-max_len=4096", "-rss_limit_mb=1500", "-timeout=15"]
    corpora = ["found", str(CORPUS / reader)]
    done = subprocess.run(
        [sys.executable, str(HERE / "fuzz_python.py"), reader, "folder", *limits, *corpora],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-4000:]
