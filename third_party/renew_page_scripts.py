"""Renews the scripts of our pages that come from npm, and the records of what they are.

Usage: renew_page_scripts.py [NAME@VERSION ...]. What is not named keeps its recorded version, so that
without arguments nothing changes. Needs npm, which checks each package's integrity.
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).resolve().parents[1] / "python/oxibonsai"
CHAT_PAGE = PACKAGE / "server/static/vendor"
WEB_FOLDER = PACKAGE / "export/web/vendor"
RECORD = "versions.json"


@dataclass(frozen=True)
class Package:
    """What a page takes from a package.

    Attributes:
        source: Its name on npm.
        license: Its licence; of the two that DOMPurify offers, the one of this project.
        files: Patterns of paths in the package, the script first, minified where there is one so. An
            ``index.js`` gets this project's name of the package. Fonts go into a folder ``fonts``,
            where KaTeX's style sheet expects them.
        folder: Where they go.
    """

    source: str
    license: str
    files: tuple[str, ...]
    folder: Path = CHAT_PAGE


PACKAGES = {
    "marked": Package("marked", "MIT", ("lib/marked.esm.js",)),
    "dompurify": Package("dompurify", "Apache-2.0", ("dist/purify.min.js",)),
    "katex": Package(
        "katex", "MIT", ("dist/katex.min.js", "dist/katex.min.css", "dist/fonts/*.woff2")
    ),
    "highlightjs": Package("@highlightjs/cdn-assets", "BSD-3-Clause", ("es/highlight.min.js",)),
    "mermaid": Package("mermaid", "MIT", ("dist/mermaid.min.js",)),
    "tokenizers": Package(
        "@huggingface/tokenizers", "Apache-2.0", ("dist/tokenizers.min.mjs",), WEB_FOLDER
    ),
    "jinja": Package("@huggingface/jinja", "MIT", ("dist/index.js",), WEB_FOLDER),
}


def main(wanted: list[str]) -> None:
    """Fetches, unpacks and records each package."""
    folders = {package.folder for package in PACKAGES.values()}
    records = [json.loads((folder / RECORD).read_text()) for folder in folders]
    versions = {entry["name"]: entry["version"] for entries in records for entry in entries}
    for argument in wanted:
        name, at, version = argument.partition("@")
        if name not in PACKAGES or not at:
            sys.exit(
                f"{argument}: name a package and its version, such as {next(iter(PACKAGES))}@18.2.1"
            )
        versions[name] = version
    for folder in folders:
        own = (name for name, package in PACKAGES.items() if package.folder == folder)
        entries = [renew(name, versions[name]) for name in own]
        (folder / RECORD).write_text(json.dumps(entries, indent=2) + "\n")


def renew(name: str, version: str) -> dict[str, Any]:
    """Writes the files of one package; returns its entry in the record."""
    package = PACKAGES[name]
    with tempfile.TemporaryDirectory() as folder:
        wanted = f"{package.source}@{version}"
        command = ["npm", "pack", "--json", "--pack-destination", folder, wanted]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=folder)
        packed = json.loads(done.stdout)[0]
        # npm may name the file otherwise than its answer says, so the only one there is taken.
        (archive_path,) = Path(folder).glob("*.tgz")
        with tarfile.open(archive_path) as archive:
            files = {f"LICENSE-{name}": _read(archive, "package/LICENSE")}
            for pattern in package.files:
                for path in fnmatch.filter(archive.getnames(), f"package/{pattern}"):
                    font = "fonts/" if path.endswith(".woff2") else ""
                    file = Path(path).name
                    file = f"{name}.js" if file == "index.js" else file
                    files[font + file] = _read(archive, path)
    for file, data in files.items():
        (package.folder / file).parent.mkdir(exist_ok=True)
        (package.folder / file).write_bytes(data)
    return {
        "name": name,
        "version": packed["version"],
        "license": package.license,
        "integrity": packed["integrity"],
        "sha256": {file: hashlib.sha256(data).hexdigest() for file, data in sorted(files.items())},
    }


def _read(archive: tarfile.TarFile, path: str) -> bytes:
    member = archive.extractfile(path)
    assert member is not None
    return member.read()


if __name__ == "__main__":
    main(sys.argv[1:])
