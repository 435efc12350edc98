"""Wheels of a package that carries files."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from pathlib import Path


def make_wheel(
    folder: Path,
    files: dict[str, bytes],
    *,
    version: str = "1.0",
    recorded: dict[str, bytes] | None = None,
    compression: int = zipfile.ZIP_DEFLATED,
) -> Path:
    """A wheel of the package `carrier` that records its files, or other ones."""
    path = folder / f"carrier-{version}-py3-none-any.whl"
    about = f"carrier-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: carrier\nVersion: {version}\n"
    tags = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
        archive.writestr(f"{about}/METADATA", metadata)
        archive.writestr(f"{about}/WHEEL", tags)
        archive.writestr(f"{about}/RECORD", record_of(files if recorded is None else recorded))
    return path


def record_of(files: dict[str, bytes]) -> str:
    rows = []
    for name, data in files.items():
        code = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        rows.append(f"{name},sha256={code},{len(data)}\n")
    return "".join(rows)
