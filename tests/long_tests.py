"""The end of pytest's summary: tests that take long and have no marker `long` that says why."""

from __future__ import annotations

import pytest

SECONDS = 20


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name the tests that take long without saying why."""
    unexplained = [
        f"{report.duration:.0f} s {report.nodeid}"
        for report in terminalreporter.getreports("passed")
        if report.duration > SECONDS and "long" not in report.keywords
    ]
    if unexplained:
        terminalreporter.section("long, and no marker says why")
        terminalreporter.write_line("\n".join(unexplained))
