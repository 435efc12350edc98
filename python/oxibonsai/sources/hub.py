"""Models on the Hugging Face hub: found and fetched by `huggingface_hub`, kept in its cache."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from json import JSONDecodeError
from pathlib import Path
from typing import TypeVar

from oxibonsai.errors import OxiBonsaiError, SourceError
from oxibonsai.files.machine import physical_memory
from oxibonsai.files.shards import shards
from oxibonsai.sources.download import download
from oxibonsai.sources.file_choice import (
    Kind,
    Preference,
    choose,
    choose_convertible,
    kind_of,
    matching,
    preferred,
    towers,
)
from oxibonsai.sources.http import Unreachable
from oxibonsai.sources.progress import progress_bar

T = TypeVar("T")

_REPOSITORY = re.compile(r"(?P<repo>[\w.-]+/[\w.-]+)(?::(?P<choice>.+))?")
_BUSY = 429  # HTTP status: too many requests


_HASH = re.compile(r"[0-9a-f]{64}")
_BLOB = re.compile(r"[0-9a-f]{40,64}")


@dataclass(frozen=True)
class HubFile:
    """A file on the hub.

    Attributes:
        name: Its path in the repository.
        url: Where it is.
        etag: The name of its content in the hub's cache.
        headers: What to send along, a token where there is one.
    """

    name: str
    url: str
    etag: str | None
    headers: dict[str, str]

    @property
    def sha256(self) -> str | None:
        """Return the SHA-256 of the content; the hub says it of large files."""
        return self.etag if self.etag is not None and _HASH.fullmatch(self.etag) else None


def resolve_hub(text: str, *, progress: bool | None = None) -> Path:
    """Return the GGUF of ``org/repo[:FILE.gguf or quant]``.

    ``HF_HOME``, ``HF_HUB_CACHE``, ``HF_HUB_OFFLINE``, ``HF_ENDPOINT`` and ``HF_TOKEN`` are honoured.
    A download whose connection drops is resumed. What the cache holds is used where the hub is
    switched off or out of reach.

    Raises:
        SourceError: There is no such repository or file, the choice is ambiguous (the files are
            listed), or the hub can't be reached and the cache lacks the file.
    """
    repo, choice = _parse(text)
    with _progress_bars(progress):
        try:
            return _from_hub(repo, choice, _siblings(repo), progress)
        except Unreachable as e:
            return _from_cache(repo, choice, e)


def find_on_hub(text: str, *, progress: bool | None = None) -> tuple[Kind, Path]:
    """Return what a repository's model is, and where its files are now.

    Args:
        text: ``org/repo[:choice]``.
        progress: As for :func:`resolve_hub`.

    Raises:
        SourceError: As :func:`resolve_hub` and :func:`hub_weights`.
    """
    repo, choice = _parse(text)
    with _progress_bars(progress):
        try:
            names = _siblings(repo)
            kind = kind_of(names, choice)
            if kind is Kind.GGUF:
                return kind, _from_hub(repo, choice, names, progress)
            _refuse_choice(text, repo, choice)
            return kind, _weights_from_hub(repo, choice, names, progress)
        except Unreachable as e:
            kind = kind_of({n for files in _cached_revisions(repo) for n in files}, choice)
            if kind is Kind.GGUF:
                return kind, _from_cache(repo, choice, e)
            _refuse_choice(text, repo, choice)
            return kind, _weights_from_cache(repo, choice, e)


def find_hub_files(text: str) -> list[HubFile]:
    """Return the files of ``org/repo[:FILE.gguf or quant]`` on the hub, the first shard first.

    There are none where the repository's model is no GGUF file.

    Raises:
        SourceError: As :func:`resolve_hub`, but the cache does not stand in for the hub.
    """
    repo, choice = _parse(text)
    names = _siblings(repo)
    if kind_of(names, choice) is not Kind.GGUF:
        return []
    files = _chosen(repo, names, choice)
    return [_ask(repo, partial(_describe, repo, name)) for name in files]


def hub_tower(text: str, model: Path, *, progress: bool | None = None) -> Path | None:
    """Return the vision tower in a repository; None where it has none.

    Args:
        text: ``org/repo[:choice]``; a choice that is the name of a tower means that one.
        model: The model's file; else the tower that suits its name best.
        progress: As for :func:`resolve_hub`.

    Raises:
        SourceError: The hub refuses it.
    """
    from huggingface_hub import hf_hub_download

    repo, choice = _parse(text)
    with _progress_bars(progress):
        try:
            names = towers(_siblings(repo), model.name, choice)
            if not names:
                return None
            _ask(repo, partial(_fetch_content, repo, names[0], progress))
            return Path(_ask(repo, lambda: hf_hub_download(repo, names[0])))
        except Unreachable:
            for files in _cached_revisions(repo):
                if names := towers(files, model.name, choice):
                    return files[names[0]]
            return None


def hub_weights(text: str, *, progress: bool | None = None) -> Path:
    """Return the files that a GGUF file can be made of.

    These are the folder of ``org/repo`` with its configuration, its tokenizer and its safetensors, or
    of ``org/repo[:FILE.onnx]`` the ONNX file in such a folder.

    Raises:
        SourceError: As :func:`resolve_hub`.
    """
    repo, choice = _parse(text)
    _refuse_choice(text, repo, choice)
    with _progress_bars(progress):
        try:
            return _weights_from_hub(repo, choice, _siblings(repo), progress)
        except Unreachable as e:
            return _weights_from_cache(repo, choice, e)


def hub_files(text: str, wanted: Callable[[str], bool], *, progress: bool | None = None) -> Path:
    """Return the folder of those files of ``org/repo`` whose names ``wanted`` takes, sub-folders and all.

    Raises:
        SourceError: As :func:`resolve_hub`; or there are no such files.
    """
    repo, choice = _parse(text)
    if choice is not None:
        raise SourceError(f"hf:{text} names a file where a whole repository is needed: hf:{repo}")
    with _progress_bars(progress):
        try:
            names = sorted(n for n in _siblings(repo) if wanted(n))
            if not names:
                raise SourceError(f"the repository {repo} holds nothing of what is needed")
            return _files_from_hub(repo, names, progress)
        except Unreachable as e:
            for files in _cached_revisions(repo):
                for name in filter(wanted, files):
                    return _root(files[name], name)
            raise SourceError(f"{e}, and the cache holds nothing of {repo}") from e


def hub_has(text: str, name: str) -> bool:
    """Return whether ``org/repo``, or its cached copy where the hub is out of reach, holds a file.

    Raises:
        SourceError: There is no such repository.
    """
    repo, choice = _parse(text)
    if choice is not None:
        return False
    try:
        return name in _siblings(repo)
    except Unreachable:
        return any(name in files for files in _cached_revisions(repo))


def _files_from_hub(repo: str, names: list[str], progress: bool | None) -> Path:
    from huggingface_hub import hf_hub_download

    for name in names:
        _ask(repo, partial(_fetch_content, repo, name, progress))
    paths = _ask(repo, lambda: [Path(hf_hub_download(repo, n)) for n in names])
    return _root(paths[0], names[0])


def _root(path: Path, name: str) -> Path:
    """Return the folder in which a file has its name."""
    return path.parents[name.count("/")]


def _refuse_choice(text: str, repo: str, choice: str | None) -> None:
    if choice is not None and not choice.endswith(".onnx"):
        raise SourceError(f"hf:{text} names a file; a folder is converted whole: hf:{repo}")


def _weights_from_hub(
    repo: str, choice: str | None, names: set[str], progress: bool | None
) -> Path:
    from huggingface_hub import hf_hub_download

    wanted = choose_convertible(names, choice, *_named(repo))
    for name in wanted.weights:
        _ask(repo, partial(_fetch_content, repo, name, progress))
    files = dict.fromkeys([*wanted.weights, *wanted.texts])
    paths = _ask(repo, lambda: {n: Path(hf_hub_download(repo, n)) for n in files})
    return paths[wanted.onnx] if wanted.onnx is not None else paths["config.json"].parent


def _weights_from_cache(repo: str, choice: str | None, reason: Unreachable) -> Path:
    """Return the weights of the first revision that has some."""
    for files in _cached_revisions(repo):
        try:
            wanted = choose_convertible(files, choice, *_named(repo))
        except SourceError:
            continue
        return files[wanted.onnx] if wanted.onnx is not None else files["config.json"].parent
    raise SourceError(f"{reason}, and the cache holds no weights of {repo}") from reason


def _named(repo: str) -> tuple[str, str]:
    """Return for errors what has the files, and how to write a choice."""
    return f"the repository {repo}", f"hf:{repo}:FILE"


def _siblings(repo: str) -> set[str]:
    """Return all files of a repository."""
    from huggingface_hub import HfApi, constants

    limit = constants.HF_HUB_ETAG_TIMEOUT
    siblings = _ask(repo, lambda: HfApi().model_info(repo, timeout=limit).siblings)
    return {f.rfilename for f in siblings or []}


def _parse(text: str) -> tuple[str, str | None]:
    """Return the repository and choice of ``org/repo[:choice]``."""
    match = _REPOSITORY.fullmatch(text)
    if match is None:
        raise SourceError(
            f"hf:{text} is no repository; write hf:ORG/REPO, with :FILE or :QUANT to choose"
        )
    return match["repo"], match["choice"]


@contextmanager
def _progress_bars(shown: bool | None) -> Iterator[None]:
    """Switch the hub's progress bars off for a while; they show on a terminal only."""
    from huggingface_hub.utils.tqdm import (
        are_progress_bars_disabled,
        disable_progress_bars,
        enable_progress_bars,
    )

    if shown is not False or are_progress_bars_disabled():
        yield
        return
    disable_progress_bars()
    try:
        yield
    finally:
        enable_progress_bars()


def _chosen(repo: str, names: set[str], choice: str | None) -> list[str]:
    """Return the names of the chosen model's files; of several packings, those that suit this machine."""
    if choice is None and len(matching(names, None)) > 1:
        choice = _say(repo, preferred(_sizes(repo), physical_memory()))
    return choose(names, choice, *_named(repo))


def _say(repo: str, preference: Preference | None) -> str | None:
    """Tell the user which file was chosen and why; return it."""
    if preference is None:
        return None
    print(f"hf:{repo}: {preference.file} ({preference.reason})", file=sys.stderr)
    return preference.file


def _sizes(repo: str) -> dict[str, int | None]:
    """Return all files of a repository with their bytes."""
    from huggingface_hub import HfApi, constants

    limit = constants.HF_HUB_ETAG_TIMEOUT
    found = _ask(
        repo, lambda: HfApi().model_info(repo, timeout=limit, files_metadata=True).siblings
    )
    return {f.rfilename: f.size for f in found or []}


def _describe(repo: str, name: str) -> HubFile:
    from huggingface_hub import constants, get_hf_file_metadata, get_token, hf_hub_url

    url = hf_hub_url(repo, name)
    token = None if constants.HF_HUB_DISABLE_IMPLICIT_TOKEN else get_token()
    facts = get_hf_file_metadata(url, timeout=constants.HF_HUB_ETAG_TIMEOUT)
    return HubFile(
        name, url, facts.etag, {} if token is None else {"Authorization": f"Bearer {token}"}
    )


def _from_hub(repo: str, choice: str | None, names: set[str], progress: bool | None) -> Path:
    from huggingface_hub import hf_hub_download

    files = _chosen(repo, names, choice)
    for name in files:
        _ask(repo, partial(_fetch_content, repo, name, progress))
    paths = _ask(repo, lambda: [Path(hf_hub_download(repo, f)) for f in files])
    return paths[0]


def _fetch_content(repo: str, name: str, progress: bool | None) -> None:
    """Put a file's content where the hub's library finds it and has only to give it its name.

    The library's own downloads start over after a kill, and don't hash what has come.
    """
    from huggingface_hub import constants
    from huggingface_hub.file_download import repo_folder_name

    file = _describe(repo, name)
    if file.etag is None or not _BLOB.fullmatch(file.etag):
        return
    folder = Path(constants.HF_HUB_CACHE) / repo_folder_name(repo_id=repo, repo_type="model")
    blob = folder / "blobs" / file.etag
    if blob.exists():
        return
    blob.parent.mkdir(parents=True, exist_ok=True)
    with progress_bar(name, progress) as shown:
        download(file.url, blob, sha256=file.sha256, headers=file.headers, progress=shown)


def _from_cache(repo: str, choice: str | None, reason: Unreachable) -> Path:
    """Return the model in the first revision that has all of it."""
    revisions = _cached_revisions(repo)
    if not revisions:
        raise SourceError(f"{reason}, and the cache holds nothing of {repo}") from reason

    def has_it(files: dict[str, Path]) -> bool:
        return any(all(s in files for s in shards(m)) for m in matching(files, choice))

    files = next((r for r in revisions if has_it(r)), revisions[0])
    if choice is None and len(matching(files, None)) > 1:
        sizes: dict[str, int | None] = {name: path.stat().st_size for name, path in files.items()}
        choice = _say(repo, preferred(sizes, physical_memory()))
    holder = f"{reason}, and the cached copy of {repo}"
    return files[choose(files, choice, holder, f"hf:{repo}:FILE")[0]]


def _cached_revisions(repo: str) -> list[dict[str, Path]]:
    """Return the repository's files in the cache: those of the branch main, then from the newest on."""
    from huggingface_hub import scan_cache_dir
    from huggingface_hub.errors import CacheNotFound

    try:
        cached = scan_cache_dir().repos
    except (CacheNotFound, ValueError, OSError):
        return []
    revisions = [
        r for c in cached if c.repo_id == repo and c.repo_type == "model" for r in c.revisions
    ]
    revisions.sort(key=lambda r: ("main" in r.refs, r.last_modified), reverse=True)
    return [
        {f.file_path.relative_to(r.snapshot_path).as_posix(): f.file_path for f in r.files}
        for r in revisions
    ]


def _ask(repo: str, call: Callable[[], T]) -> T:
    """Call the hub; raise one sentence for each way in which it says no."""
    from huggingface_hub.errors import (
        EntryNotFoundError,
        GatedRepoError,
        HfHubHTTPError,
        HFValidationError,
        LocalEntryNotFoundError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
    )

    try:
        return call()
    except OxiBonsaiError:
        raise
    except GatedRepoError as e:
        raise SourceError(
            f"{repo} asks you to accept its terms on the hub first, then to set HF_TOKEN"
        ) from e
    except RepositoryNotFoundError as e:
        raise SourceError(
            f"the hub has no repository {repo}, or it is private: check the name, or set HF_TOKEN"
        ) from e
    except OfflineModeIsEnabled as e:
        raise Unreachable("HF_HUB_OFFLINE is set") from e
    except LocalEntryNotFoundError as e:
        raise Unreachable(f"cannot reach the hub for {repo}: {_line(e.__cause__ or e)}") from e
    except EntryNotFoundError as e:
        raise SourceError(f"the hub lists a file of {repo} that it does not have") from e
    except HFValidationError as e:
        raise SourceError(f"{repo} is no valid repository name: {_line(e)}") from e
    except HfHubHTTPError as e:
        status = e.response.status_code
        kind = Unreachable if status >= 500 or status == _BUSY else SourceError
        raise kind(f"the hub refuses {repo}: {_line(e)}") from e
    except JSONDecodeError as e:
        raise Unreachable(
            f"cannot reach the hub for {repo}: something else answers in its place"
        ) from e
    except Exception as e:
        if _is_of_the_network(e):
            raise Unreachable(f"cannot reach the hub for {repo}: {_line(e)}") from e
        raise SourceError(f"cannot fetch {repo} from the hub: {_line(e)}") from e


def _is_of_the_network(error: Exception) -> bool:
    """Return whether the connection failed; the hub's HTTP library, and so its errors, vary by version."""
    return isinstance(error, (ConnectionError, TimeoutError)) or type(error).__module__.startswith(
        ("httpx", "httpcore", "requests")
    )


def _line(error: BaseException) -> str:
    """Return the first line of a message, without what ends it."""
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".: ") if lines else type(error).__name__
