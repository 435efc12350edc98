"""Processes to be killed, forked from one that has imported the package and opened nothing.

A hundred of them cost as much as a few that start from nothing.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from multiprocessing.connection import Connection

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(
    [
        "pytest",
        "oxibonsai.cli.convert",
        "oxibonsai.cli.main",
        "oxibonsai.cli.quantize",
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
