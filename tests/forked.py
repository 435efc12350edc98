"""Commands, and processes to be killed, forked from one that has imported the package and opened nothing.

A hundred of them cost as much as a few that start from nothing.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from multiprocessing.connection import Connection
from pathlib import Path

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(
    [
        "pytest",
        "oxibonsai.chat",
        "oxibonsai.cli.convert",
        "oxibonsai.cli.main",
        "oxibonsai.cli.quantize",
        "oxibonsai.engine",
        "oxibonsai.server.stores",
        "oxibonsai.sources.download",
        "sqlalchemy.dialects.sqlite.pysqlite",
        "sqlalchemy.dialects.postgresql.psycopg",
    ]
)


def run_command_line(arguments: list[str], pipe: Connection) -> None:
    """Runs the command line, and says through the pipe that it is about to start."""
    from oxibonsai.cli.main import main

    sys.argv = ["oxibonsai", *arguments]
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
    pipe.send("ready")
    main()


def run_oxibonsai(
    *arguments: object, stdin: str | bytes | Path = "", cwd: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Runs a command line to its end, as a shell would; variables are added to the environment.

    Its stdin is a text, bytes, or what a path names, such as a terminal.
    """
    line = list(map(str, arguments))
    with tempfile.TemporaryDirectory() as folder:
        streams = [Path(folder, name) for name in ("stdin", "stdout", "stderr")]
        if isinstance(stdin, Path):
            streams[0] = stdin
        else:
            streams[0].write_bytes(stdin.encode() if isinstance(stdin, str) else stdin)
        process = PROCESSES.Process(
            target=_run_between,
            args=(line, streams, cwd or Path.cwd(), {**os.environ, **environment}),
        )
        process.start()
        process.join()
        code = process.exitcode
        assert code is not None
        out, err = (path.read_bytes().decode() for path in streams[1:])
    return subprocess.CompletedProcess(line, code, out, err)


def _run_between(
    arguments: list[str], streams: list[Path], cwd: Path, environment: Mapping[str, str]
) -> None:
    from oxibonsai.cli.main import main

    os.environ.clear()
    os.environ.update(environment)
    os.chdir(cwd)
    for number, path in enumerate(streams):
        opened = os.open(
            path, os.O_RDONLY | os.O_NOCTTY if number == 0 else os.O_WRONLY | os.O_CREAT
        )
        os.dup2(opened, number)
        os.close(opened)
    sys.stdin, sys.stdout, sys.stderr = (
        open(number, "r" if number == 0 else "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        for number in range(3)
    )
    sys.argv = ["oxibonsai", *arguments]
    main()
