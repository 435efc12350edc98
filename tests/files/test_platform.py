"""What differs between systems stands in one module: no other one asks which system it runs on."""

from __future__ import annotations

import ast
import os
import re
import stat
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import mypy
import pytest

from oxibonsai.files import platform
from oxibonsai.files.watched_process import kept_within

PACKAGE = Path(__file__).resolve().parents[2] / "python" / "oxibonsai"
TYPESHED = Path(mypy.__file__).parent / "typeshed" / "stdlib"
OWNER = "files/platform.py"
# Run as scripts, with nothing of the package; each limits itself where the system can.
SCRIPTS = {"server/pdf/process.py", "structured/trial_process.py"}


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def holds_on_windows(test: ast.expr) -> bool | None:
    """Whether a condition of typeshed holds on Windows; None: it asks for something else."""
    if isinstance(test, ast.BoolOp):
        parts = [part for part in map(holds_on_windows, test.values) if part is not None]
        if not parts:
            return None
        return all(parts) if isinstance(test.op, ast.And) else any(parts)
    text = ast.unparse(test)
    if not text.startswith("sys.platform"):
        return None
    _, operator, name = text.split(" ", 2)
    return (ast.literal_eval(name) == "win32") == (operator == "==")


def names_on_windows(body: Iterable[ast.stmt]) -> Iterator[tuple[str, bool]]:
    """Each name that a stub defines, and whether Windows has it."""
    for node in body:
        if isinstance(node, ast.If):
            holds = holds_on_windows(node.test)
            for branch, there in (
                (node.body, holds is not False),
                (node.orelse, holds is not True),
            ):
                yield from ((name, has and there) for name, has in names_on_windows(branch))
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from ((t.id, True) for t in targets if isinstance(t, ast.Name))
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name, True
        elif isinstance(node, ast.ImportFrom):
            yield from ((a.asname or a.name, True) for a in node.names)


@cache
def lacked(module: str) -> frozenset[str]:
    """The names of a standard module that Windows lacks."""
    stub = TYPESHED / f"{module}.pyi"
    if not stub.exists():
        stub = TYPESHED / module / "__init__.pyi"
    found = list(names_on_windows(tree(stub).body)) if stub.exists() else []
    return frozenset(name for name, _ in found) - {name for name, has in found if has}


@cache
def is_lacked(module: str) -> bool:
    """Whether Windows lacks a whole module, such as fcntl: its stub defines no function there."""
    stub = TYPESHED / f"{module}.pyi"
    if not stub.exists():
        return False
    functions = {n.name for n in ast.walk(tree(stub)) if isinstance(n, ast.FunctionDef)}
    found = [has for name, has in names_on_windows(tree(stub).body) if name in functions]
    return bool(found) and not any(found)


@cache
def forking() -> dict[Path, str]:
    """The modules that need fork, and their names."""
    marked = (
        p for p in PACKAGE.rglob("*.py") if "assert HAS_FORK" in p.read_text(encoding="utf-8")
    )
    return {
        path: "oxibonsai." + path.relative_to(PACKAGE).with_suffix("").as_posix().replace("/", ".")
        for path in marked
        if any(ast.unparse(node) == "assert HAS_FORK" for node in tree(path).body)
    }


ASKED = {("sys", "platform"), ("os", "name")}


WORDS = re.compile(r"(?m)^ *from \w+ import|^ *import \w+(?: as)?|\b\w+\.\w+")


@cache
def suspicious() -> frozenset[str]:
    """Words that a module must have to be worth parsing."""
    stubs = [p for p in TYPESHED.glob("*.pyi") if "sys.platform" in p.read_text(encoding="utf-8")]
    modules = {p.stem for p in stubs} | {"os", "sys"}
    attributes = {f"{m}.{name}" for m in modules for name in lacked(m)}
    asked = {f"{m}.{name}" for m, name in ASKED}
    lines = {line for m in modules for line in (f"from {m} import", f"import {m} as")}
    return frozenset(attributes | asked | lines | {f"import {m}" for m in modules if is_lacked(m)})


def systems_named(path: Path) -> set[str]:
    """Names that Windows lacks, in a module, and places where it asks for the system."""
    words = WORDS.findall(path.read_text(encoding="utf-8"))
    if suspicious().isdisjoint(word.strip() for word in words):
        return set()
    nodes = list(ast.walk(tree(path)))
    found: set[str] = set()
    modules: dict[str, str] = {}
    for node in nodes:
        if isinstance(node, ast.Import):
            modules |= {a.asname or a.name: a.name for a in node.names}
            found |= {a.name for a in node.names if is_lacked(a.name)}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = {a.name for a in node.names}
            used = {n for n in names if n in lacked(node.module) or (node.module, n) in ASKED}
            found |= {f"{node.module}.{name}" for name in used}
            found |= {node.module} if is_lacked(node.module) else set()
    for node in nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module = modules.get(node.value.id, "")
            if (module, node.attr) in ASKED or node.attr in lacked(module):
                found.add(f"{module}.{node.attr}")
    return found


def test_typeshed_says_what_windows_lacks() -> None:
    assert {"fchmod", "fork", "O_NOFOLLOW", "sysconf", "nice", "uname"} <= lacked("os")
    assert not {"open", "kill", "O_BINARY", "replace"} & lacked("os")
    assert {"SIGHUP", "SIGKILL", "setitimer"} <= lacked("signal")
    assert not {"SIGTERM", "SIGBREAK"} & lacked("signal")
    assert [m for m in ("fcntl", "resource", "termios", "pwd") if not is_lacked(m)] == []
    assert [m for m in ("os", "socket", "mmap", "signal", "select") if is_lacked(m)] == []


def test_one_module_knows_the_systems() -> None:
    found = {
        path.relative_to(PACKAGE).as_posix(): used
        for path in PACKAGE.rglob("*.py")
        if path not in forking() and (used := systems_named(path))
    }
    assert {"sys.platform", "fcntl", "resource", "os.fchmod", "signal.SIGHUP"} <= found.pop(OWNER)
    assert found.keys() == SCRIPTS


def test_what_needs_fork_is_imported_where_there_is_fork() -> None:
    names = set(forking().values())
    assert "oxibonsai.server.http.worker" in names
    for path in PACKAGE.rglob("*.py"):
        if path in forking() or not any(n in path.read_text(encoding="utf-8") for n in names):
            continue
        guarded = {
            inner
            for node in ast.walk(tree(path))
            if isinstance(node, ast.If) and ast.unparse(node.test) == "HAS_FORK"
            for statement in node.body
            for inner in ast.walk(statement)
        }
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ImportFrom) and node not in guarded:
                assert node.module not in names, path


def test_a_held_lock_refuses_others_until_it_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with path.open("w") as first, path.open("w") as second:
        platform.lock(first.fileno())
        with pytest.raises(BlockingIOError):
            platform.lock(second.fileno(), wait=False)
        first.close()
        platform.lock(second.fileno(), wait=False)


def test_a_link_is_opened_only_where_it_is_followed(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_bytes(b"x")
    link.symlink_to(target)
    os.close(platform.open_descriptor(link, os.O_RDONLY))
    with pytest.raises(OSError, match="link"):
        platform.open_descriptor(link, os.O_RDONLY, follow=False)


def test_what_is_opened_is_not_inherited(tmp_path: Path) -> None:
    descriptor = platform.open_descriptor(tmp_path / "file", os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        assert not os.get_inheritable(descriptor)
        assert stat.S_IMODE(os.fstat(descriptor).st_mode) == 0o600
        platform.copy_permissions(PACKAGE / "__init__.py", descriptor)
        wanted = stat.S_IMODE((PACKAGE / "__init__.py").stat().st_mode)
        assert stat.S_IMODE(os.fstat(descriptor).st_mode) == wanted
    finally:
        os.close(descriptor)


@pytest.mark.parametrize(
    "program",
    [
        "held = bytearray(300 << 20); import time; time.sleep(600)",  # memory
        "while True: pass",  # time
    ],
)
def test_a_child_that_cannot_limit_itself_is_killed(
    monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    monkeypatch.setattr(platform, "HAS_PROCESS_LIMITS", False)
    child = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE)
    with child, kept_within(child, 0.5, 200 << 20):
        assert child.wait(120) < 0


def test_a_child_within_its_limits_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "HAS_PROCESS_LIMITS", False)
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(0.2)"])
    with child, kept_within(child, 60, 1 << 30):
        assert child.wait(120) == 0


def test_files_are_written_where_open_ones_cannot_be_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on Windows: what is renamed or removed has been closed before."""
    from oxibonsai.files.scratch_folder import scratch_folder
    from oxibonsai.sources.partial_file import PartialFile

    opened: list[int] = []

    def open_descriptor(path: Path, flags: int, mode: int = 0o666, *, follow: bool = True) -> int:
        opened.append(real(path, flags, mode, follow=follow))
        return opened[-1]

    def all_closed() -> bool:
        return not any(Path(f"/proc/self/fd/{one}").exists() for one in opened)

    real, replace = platform.open_descriptor, Path.replace
    monkeypatch.setattr(platform, "open_descriptor", open_descriptor)
    monkeypatch.setattr(platform, "MOVES_OPEN_FILES", False)

    def checked(self: Path, target: Path) -> Path:
        assert all_closed()
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", checked)
    with PartialFile(tmp_path / "model.gguf") as file:
        file.reset()
        file.append(b"bytes")
        file.finish()
    assert (tmp_path / "model.gguf").read_bytes() == b"bytes"
    with scratch_folder(tmp_path / "cache"):
        pass
    assert list((tmp_path / "cache").iterdir()) == []
