"""Folders for a while: gone afterwards, and gone at the next use where a process was killed."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from oxibonsai.files.scratch_folder import scratch_folder

HOLD = """
import sys, time
from pathlib import Path
from oxibonsai.files.scratch_folder import scratch_folder
with scratch_folder(Path(sys.argv[1])) as folder:
    (folder / "file").write_bytes(b"x")
    print(folder, flush=True)
    time.sleep(600)
"""


def test_it_is_removed_with_what_it_holds(tmp_path: Path) -> None:
    with scratch_folder(tmp_path / "cache") as folder:
        (folder / "file").write_bytes(b"x")
        assert folder.parent == tmp_path / "cache"
    assert list((tmp_path / "cache").iterdir()) == []


def test_an_error_removes_it_too(tmp_path: Path) -> None:
    with pytest.raises(KeyError), scratch_folder(tmp_path):
        raise KeyError
    assert list(tmp_path.iterdir()) == []


def test_the_folder_of_a_running_process_stays_and_that_of_a_killed_one_goes(
    tmp_path: Path,
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        theirs = Path(other.stdout.readline().strip())
        with scratch_folder(tmp_path) as ours:
            assert theirs.is_dir()
            assert ours != theirs
        assert (theirs / "file").read_bytes() == b"x"
        other.send_signal(signal.SIGKILL)
        other.wait()
    assert theirs.is_dir()
    with scratch_folder(tmp_path):
        assert not theirs.exists()
    assert list(tmp_path.iterdir()) == []
