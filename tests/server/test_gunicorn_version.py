"""The server's worker overrides inner parts of gunicorn: which versions it may meet."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import gunicorn
import pytest
from gunicorn.arbiter import Arbiter
from gunicorn.workers.gthread import ThreadWorker

from oxibonsai.errors import OxiBonsaiError
from oxibonsai.server.http.arbiter import FIRST, LAST_TESTED, OneWorkerArbiter, check_gunicorn
from oxibonsai.server.http.worker import DeadlineWorker

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "python" / "oxibonsai"


def test_the_installed_gunicorn_is_a_tested_one() -> None:
    assert FIRST <= gunicorn.version_info <= LAST_TESTED, (
        f"The worker in server/http has not been tested with gunicorn {gunicorn.__version__}. Read "
        "what changed in its arbiter.py, workers/base.py, workers/gthread.py and http/ since "
        f"{'.'.join(map(str, LAST_TESTED))}, run test_raw_http.py, test_signals.py, "
        "test_disconnect.py, test_stream_writer.py and test_load.py with it, and then set "
        "LAST_TESTED in server/http/arbiter.py."
    )


@pytest.mark.parametrize("version", [(26, 2, 0), (27, 0, 0), (28, 0, 0), (28, 1), (100, 0, 0)])
def test_a_gunicorn_of_another_kind_is_refused_with_the_command_that_helps(
    version: tuple[int, ...],
) -> None:
    found = ".".join(map(str, version))
    with pytest.raises(OxiBonsaiError, match=rf"^gunicorn {found} is installed.*pip install 'gun"):
        check_gunicorn(version)


@pytest.mark.parametrize("version", [(27, 0, 1), (27, 0, 2), (27, 3, 0)])
def test_releases_that_only_mend_are_let_through(version: tuple[int, ...]) -> None:
    check_gunicorn(version)


def test_the_package_requires_what_the_check_lets_through() -> None:
    found = re.search(r'"gunicorn>=([\d.]+),<(\d+);', (ROOT / "pyproject.toml").read_text())
    assert found is not None
    assert tuple(int(part) for part in found[1].split(".")) == FIRST
    assert int(found[2]) == LAST_TESTED[0] + 1


def test_gunicorns_inner_parts_are_used_in_one_folder() -> None:
    for path in PACKAGE.rglob("*.py"):
        used = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                used.add(node.module or "")
            elif isinstance(node, ast.Import):
                used |= {alias.name for alias in node.names}
        found = {name for name in used if name.split(".")[0] == "gunicorn"}
        if path.parent != PACKAGE / "server" / "http":
            # The class for applications that bring their own settings is documented.
            assert found <= {"gunicorn.app.base"}, path


@pytest.mark.parametrize(
    ("ours", "theirs", "added"),
    [(DeadlineWorker, ThreadWorker, set()), (OneWorkerArbiter, Arbiter, {"give_up"})],
)
def test_what_is_overridden_is_there(ours: type, theirs: type, added: set[str]) -> None:
    """A method that gunicorn renamed would never be called again, and nobody would be told."""
    public = {name for name in vars(ours) if not name.startswith("_")}
    assert public - added <= set(dir(theirs))
