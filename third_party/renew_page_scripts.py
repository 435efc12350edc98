"""Renews the scripts of the chat page that come from npm, and the record of what they are.

Usage: renew_page_scripts.py [marked@VERSION] [dompurify@VERSION]. What is not named keeps its recorded
version, so that without arguments nothing changes. Needs npm, which checks each package's integrity.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

VENDOR = Path(__file__).resolve().parents[1] / "python/oxibonsai/server/static/vendor"
RECORD = VENDOR / "versions.json"
# Of each package its minified script and its licence, and the licence's name; of the two that
# DOMPurify offers, the one of this project.
FILES = {
    "marked": ("lib/marked.esm.js", "LICENSE", "MIT"),
    "dompurify": ("dist/purify.min.js", "LICENSE", "Apache-2.0"),
}


def main(wanted: list[str]) -> None:
    """Fetches, unpacks and records each package."""
    record = {entry["name"]: entry for entry in json.loads(RECORD.read_text())}
    versions = {name: record[name]["version"] for name in FILES}
    for argument in wanted:
        name, at, version = argument.partition("@")
        if name not in FILES or not at:
            sys.exit(
                f"{argument}: name a package and its version, such as {next(iter(FILES))}@18.2.1"
            )
        versions[name] = version
    entries = [renew(name, version) for name, version in versions.items()]
    RECORD.write_text(json.dumps(entries, indent=2) + "\n")


def renew(name: str, version: str) -> dict[str, Any]:
    """Writes the files of one package; returns its entry in the record."""
    script, license_file, license_name = FILES[name]
    with tempfile.TemporaryDirectory() as folder:
        command = ["npm", "pack", "--json", "--pack-destination", folder, f"{name}@{version}"]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=folder)
        packed = json.loads(done.stdout)[0]
        with tarfile.open(Path(folder) / packed["filename"]) as archive:
            files = {
                Path(script).name: _read(archive, script),
                f"LICENSE-{name}": _read(archive, license_file),
            }
    for file, data in files.items():
        (VENDOR / file).write_bytes(data)
    return {
        "name": name,
        "version": packed["version"],
        "license": license_name,
        "integrity": packed["integrity"],
        "sha256": {file: hashlib.sha256(data).hexdigest() for file, data in files.items()},
    }


def _read(archive: tarfile.TarFile, path: str) -> bytes:
    member = archive.extractfile(f"package/{path}")
    assert member is not None
    return member.read()


if __name__ == "__main__":
    main(sys.argv[1:])
