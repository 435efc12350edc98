"""Run the tests that failed once more, alone.

usage: rerun.py STATUS CACHE [argument of pytest ...]

STATUS is the exit status of the pytest run before, CACHE its `cache_dir`, the arguments those that
selected its tests. A test that passes now is noted in CACHE as flaky; `rerun.py report CACHE` prints
these. The exit status is 0 if all failed tests passed now and no more than three are flaky.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

MOST_FLAKY = 3
TESTS_FAILED = (
    1  # pytest's other statuses are interruptions, internal errors, wrong usage, no tests
)


def failed_tests(cache: Path) -> list[str]:
    """Return the ids that pytest's cache has as failed, files that could not be collected among them."""
    path = cache / "v" / "cache" / "lastfailed"
    return sorted(json.loads(path.read_text())) if path.exists() else []


def flaky_tests(cache: Path) -> list[str]:
    """Return the ids of the tests that have failed and then passed."""
    path = cache / "flaky.txt"
    return path.read_text().splitlines() if path.exists() else []


def rerun(status: int, cache: Path, arguments: list[str]) -> int:
    """Run the failed tests again; return 0 if the run before may count as passed."""
    failed = failed_tests(cache)
    if status != TESTS_FAILED or not failed:
        print(f"pytest ended with status {status}: nothing to run again", file=sys.stderr)
        return status or 1
    flaky = [*flaky_tests(cache), *failed]
    if len(flaky) > MOST_FLAKY:
        print(f"{len(flaky)} tests failed, and {MOST_FLAKY} may be flaky", file=sys.stderr)
        return status
    # With no failed test at hand pytest would run all of them.
    again = ["-o", f"cache_dir={cache}", "--last-failed", "--last-failed-no-failures", "none"]
    results = cache / "again.xml"
    command = [sys.executable, "-m", "pytest", *arguments, *again, f"--junitxml={results}"]
    status = subprocess.run(command).returncode
    # pytest takes a test that is skipped now off its list, but it has not passed.
    if status == 0 and results.exists() and "<skipped" in results.read_text():
        status = TESTS_FAILED
    still_failed = failed_tests(cache)
    if status == 0 and not still_failed:
        (cache / "flaky.txt").write_text("".join(f"{name}\n" for name in flaky))
        return 0
    print("failed twice:", *still_failed, sep="\n  ", file=sys.stderr)
    return status or 1


def report(cache: Path) -> None:
    """Print the tests that passed only when they ran alone."""
    flaky = flaky_tests(cache)
    if flaky:
        print("FLAKY", *flaky, sep="\n  ")


def main() -> int:
    """Run the failed tests again or print the flaky ones."""
    first, cache, *arguments = sys.argv[1:]
    if first == "report":
        report(Path(cache))
        return 0
    return rerun(int(first), Path(cache), arguments)


if __name__ == "__main__":
    sys.exit(main())
