"""What Windows lacks is imported in few modules; those that lock can be imported without locks."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from oxibonsai.files.file_lock import lock

PACKAGE = Path(__file__).resolve().parents[2] / "python" / "oxibonsai"
# Which modules import what Windows lacks; the scripts run without the package.
OWNERS = {
    "files/file_lock.py": {"fcntl"},
    "files/machine.py": {"resource"},
    "server/pdf/process.py": {"resource"},
    "structured/trial_process.py": {"resource"},
}
LACKED = {"fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty"}

WITHOUT_LOCKS = """
import sys
sys.modules["fcntl"] = None
import tempfile
from pathlib import Path
from oxibonsai.errors import SourceError
from oxibonsai.files import scratch_folder
from oxibonsai.sources.partial_file import PartialFile
with tempfile.TemporaryDirectory() as folder:
    try:
        PartialFile(Path(folder) / "model.gguf")
    except SourceError as e:
        print(e)
"""


def imported(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
    return names


def test_few_modules_import_what_windows_lacks() -> None:
    found = {
        path.relative_to(PACKAGE).as_posix(): lacked
        for path in PACKAGE.rglob("*.py")
        if (lacked := imported(path) & LACKED)
    }
    assert found == OWNERS


def test_a_held_lock_refuses_others_until_it_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with path.open("w") as first, path.open("w") as second:
        lock(first.fileno())
        with pytest.raises(BlockingIOError):
            lock(second.fileno(), wait=False)
        first.close()
        lock(second.fileno(), wait=False)


def test_without_locks_modules_load_and_a_download_is_refused() -> None:
    said = subprocess.run(
        [sys.executable, "-c", WITHOUT_LOCKS], capture_output=True, text=True, check=True
    )
    assert "files can't be locked on this operating system yet" in said.stdout
