"""The JSON-Schema-Test-Suite, from the source package of jsonschema, and how we do on it."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from oxibonsai.errors import OxiBonsaiError, RequestError
from oxibonsai.structured import Constraint, Structure, StructureCompiler

DRAFTS = {
    "draft7": "http://json-schema.org/draft-07/schema#",
    "draft2020-12": "https://json-schema.org/draft/2020-12/schema",
}


@dataclass
class Case:
    """One schema and its instances."""

    name: str
    schema: Any
    tests: list[dict[str, Any]]


@dataclass
class Coverage:
    """Schemas taken and refused; instances right and wrong under those that are taken."""

    taken: int = 0
    refused: int = 0
    right_accepts: int = 0
    false_refusals: int = 0
    right_refusals: int = 0


def fetch(folder: Path) -> Path:
    """The suite's folder of tests; skips where the package registry is out of reach."""
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
    done = subprocess.run(
        [*pip, "--dest", str(folder), "jsonschema==4.26.0"], capture_output=True, text=True
    )
    if done.returncode != 0:
        pytest.skip(f"jsonschema's source package can't be fetched: {done.stderr.strip()[-200:]}")
    with tarfile.open(folder / "jsonschema-4.26.0.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return folder / "jsonschema-4.26.0" / "json" / "tests"


def cases(tests: Path, draft: str, part: str) -> Iterator[Case]:
    """Cases of a draft: ``required``, ``optional`` or ``format``."""
    folder = tests / draft
    if part != "required":
        folder /= "optional" if part == "optional" else "optional/format"
    for path in sorted(folder.glob("*.json")):
        for group in json.loads(path.read_text(encoding="utf-8")):
            schema = group["schema"]
            if isinstance(schema, dict):
                schema = {"$schema": DRAFTS[draft], **schema}
            yield Case(f"{path.stem}: {group['description']}", schema, group["tests"])


def spellings(value: Any) -> list[str]:
    """A JSON value as different writers put it; the first is the compact one."""
    return [
        json.dumps(value, ensure_ascii=False, separators=(",", ":")),
        json.dumps(value, ensure_ascii=False),
        json.dumps(value, separators=(",", ":")),
        json.dumps(_reversed(value), ensure_ascii=False, separators=(",", ":")),
    ]


def _reversed(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _reversed(v) for k, v in reversed(value.items())}
    return [_reversed(v) for v in value] if isinstance(value, list) else value


def accepts(constraint: Constraint, text: str) -> bool:
    """Whether a text of bytes, each the token of its value, is complete under a constraint."""
    state = constraint.fork()
    try:
        for byte in text.encode("utf-8", "surrogatepass"):
            state.accept(byte)
    except OxiBonsaiError:
        return False
    return state.may_end


def judge(compiler: StructureCompiler, case: Case, coverage: Coverage) -> list[str]:
    """Counts a case in; returns instances that were accepted though they are invalid."""
    try:
        constraint = compiler.constraint(Structure.json_schema(case.schema))
    except RequestError:
        coverage.refused += 1
        return []
    coverage.taken += 1
    wrong = []
    for test in case.tests:
        texts = spellings(test["data"])
        if test["valid"]:
            right = accepts(constraint, texts[0])
            coverage.right_accepts += right
            coverage.false_refusals += not right
        elif any(accepts(constraint, text) for text in texts):
            wrong.append(f"{case.name}: {test['description']}: {texts[0]}")
        else:
            coverage.right_refusals += 1
    return wrong
