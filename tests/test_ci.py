"""What CI runs, and that a test which fails beside others gets one run alone (.ci/run, .ci/rerun.py)."""

from __future__ import annotations

import configparser
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TESTS = str(ROOT / "tests")
RERUN = ROOT / ".ci" / "rerun.py"

# Passes only in a process of its own, as a test does that other load disturbs.
FLAKY = """
import os

def test_{name}():
    assert "PYTEST_XDIST_WORKER" not in os.environ
"""
BROKEN = "def test_broken(): assert False\n"
SOUND = "def test_sound(): pass\n"
CRASHING = "import os\ndef test_crashing(): os._exit(3)\n"


class Project:
    """A folder of tests, run side by side as CI does it, then again by the script."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._cache = folder / "cache"
        # pytest would read no settings but these, whatever folder is above.
        (folder / "pytest.ini").write_text("[pytest]\n")

    def add(self, name: str, text: str) -> None:
        (self._folder / name).write_text(text)

    def run(self) -> subprocess.CompletedProcess[str]:
        """Run all tests, and those that fail once more if any does."""
        first = self._python("-m", "pytest", "-n", "2", "-o", f"cache_dir={self._cache}")
        if first.returncode == 0:
            return first
        return self.rerun(first.returncode)

    def rerun(self, status: int) -> subprocess.CompletedProcess[str]:
        return self._python(str(RERUN), str(status), str(self._cache))

    def report(self) -> str:
        return self._python(str(RERUN), "report", str(self._cache)).stdout

    def _python(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        clean = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
        command = [sys.executable, *arguments]
        plugins = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": "xdist.plugin"}
        environment = {**clean, **plugins}
        return subprocess.run(
            command, cwd=self._folder, env=environment, capture_output=True, text=True
        )


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def test_a_test_that_passes_alone_is_named_as_flaky(project: Project) -> None:
    project.add("test_one.py", FLAKY.format(name="one") + SOUND)
    done = project.run()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout  # the sound test did not run again
    assert project.report() == "FLAKY\n  test_one.py::test_one\n"


def test_nothing_is_reported_where_all_passed_at_once(project: Project) -> None:
    project.add("test_one.py", SOUND)
    assert project.run().returncode == 0
    assert project.report() == ""


def test_a_test_that_fails_twice_fails_the_run(project: Project) -> None:
    project.add("test_one.py", FLAKY.format(name="one") + BROKEN)
    done = project.run()
    assert done.returncode == 1
    assert "failed twice:\n  test_one.py::test_broken\n" in done.stderr


def test_three_tests_may_be_flaky_and_four_fail_the_run(project: Project) -> None:
    for name in ("one", "two", "three"):
        project.add(f"test_{name}.py", FLAKY.format(name=name))
    assert project.run().returncode == 0
    assert project.report().count("\n") == 4
    # The count goes on over the runs of one pass of CI: here comes a second, of another test.
    for path in ("one", "two", "three"):
        project.add(f"test_{path}.py", SOUND)
    project.add("test_four.py", FLAKY.format(name="four"))
    done = project.run()
    assert done.returncode == 1
    assert "4 tests failed, and 3 may be flaky" in done.stderr


def test_a_file_that_cannot_be_collected_fails_the_run(project: Project) -> None:
    project.add("test_one.py", SOUND)
    project.add("test_two.py", "import no_such_module\n")
    assert project.run().returncode == 2  # collection is interrupted the second time, too


def test_a_test_that_ends_its_process_twice_fails_the_run(project: Project) -> None:
    project.add("test_one.py", SOUND + CRASHING)
    assert project.run().returncode == 3


def test_a_test_that_ended_only_its_worker_is_flaky(project: Project) -> None:
    condition = "if 'PYTEST_XDIST_WORKER' in os.environ: os._exit(3)"
    project.add("test_one.py", f"import os\ndef test_one():\n    {condition}\n")
    assert project.run().returncode == 0
    assert project.report() == "FLAKY\n  test_one.py::test_one\n"


@pytest.mark.parametrize("status", [1, 2, 3, 4, 5, 127])
def test_a_run_that_ended_without_a_failed_test_is_not_excused(
    project: Project, status: int
) -> None:
    project.add("test_one.py", SOUND)
    assert project.rerun(status).returncode == status


def test_ci_runs_the_command_of_the_readme_word_for_word() -> None:
    command = "pip install '.[test]' && pytest -n auto"
    assert f"\n    {command}\n" in (ROOT / "README.md").read_text()
    assert f"\n{command} || rerun $?\n" in (ROOT / ".ci" / "run").read_text()


def test_ci_runs_what_is_slow_and_leaves_the_whole_of_it_to_releases() -> None:
    settings = configparser.ConfigParser()
    settings.read(ROOT / "setup.cfg")
    pytest_settings = settings["tool:pytest"]
    for marker in ("slow", "release", "suite", "fuzz", "gpu"):
        assert f"\n{marker}: " in pytest_settings["markers"]
        assert f"not {marker}" in pytest_settings["addopts"]
    assert 'slow="slow and not release"' in (ROOT / ".ci" / "run").read_text()


def test_a_test_that_takes_long_says_why(project: Project) -> None:
    limit = "import long_tests\nlong_tests.SECONDS = -1\n"
    hook = "from long_tests import pytest_terminal_summary\n"
    project.add("conftest.py", f"import sys\nsys.path.append({TESTS!r})\n{limit}{hook}")
    project.add("pytest.ini", "[pytest]\nmarkers =\n    long(reason): why\n")
    explained = "import pytest\n@pytest.mark.long('it waits')\ndef test_explained(): pass\n"
    project.add("test_one.py", explained + SOUND)
    _, _, listed = project.run().stdout.partition("long, and no marker says why")
    assert "test_sound" in listed
    assert "test_explained" not in listed


def test_a_test_that_fails_and_is_then_skipped_has_not_passed(project: Project) -> None:
    condition = "assert 'PYTEST_XDIST_WORKER' not in os.environ"
    project.add(
        "test_one.py", f"import os, pytest\ndef test_one():\n    {condition}\n    pytest.skip()\n"
    )
    assert project.run().returncode == 1
    assert project.report() == ""
