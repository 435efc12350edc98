"""Models on the Hugging Face hub: found and fetched by `huggingface_hub`, kept in its cache."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from json import JSONDecodeError
from pathlib import Path
from typing import TypeVar

from oxibonsai.errors import SourceError
from oxibonsai.sources.choice import choose, matching
from oxibonsai.sources.shards import shards

T = TypeVar("T")

_REPOSITORY = re.compile(r"(?P<repo>[\w.-]+/[\w.-]+)(?::(?P<choice>.+))?")
_BUSY = 429  # HTTP status: too many requests


class _Unreachable(SourceError):
    """The hub can't be asked now, so what the cache holds has to do."""


def resolve_hub(text: str, *, progress: bool | None = None) -> Path:
    """The GGUF of ``org/repo[:FILE.gguf or quant]``.

    ``HF_HOME``, ``HF_HUB_CACHE``, ``HF_HUB_OFFLINE``, ``HF_ENDPOINT`` and ``HF_TOKEN`` are honoured.
    A download whose connection drops is resumed. What the cache holds is used where the hub is
    switched off or out of reach.

    Raises:
        SourceError: There is no such repository or file, the choice is ambiguous (the files are
            listed), or the hub can't be reached and the cache lacks the file.
    """
    match = _REPOSITORY.fullmatch(text)
    if match is None:
        raise SourceError(
            f"hf:{text} is no repository; write hf:ORG/REPO, with :FILE or :QUANT to choose"
        )
    repo, choice = match["repo"], match["choice"]
    with _progress_bars(progress):
        try:
            return _from_hub(repo, choice)
        except _Unreachable as e:
            return _from_cache(repo, choice, e)


@contextmanager
def _progress_bars(shown: bool | None) -> Iterator[None]:
    """Switches the hub's progress bars off for a while; they show on a terminal only."""
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


def _from_hub(repo: str, choice: str | None) -> Path:
    from huggingface_hub import HfApi, constants, hf_hub_download

    limit = constants.HF_HUB_ETAG_TIMEOUT
    siblings = _ask(repo, lambda: HfApi().model_info(repo, timeout=limit).siblings)
    names = {f.rfilename for f in siblings or []}
    files = choose(names, choice, f"the repository {repo}", f"hf:{repo}:FILE")
    paths = _ask(repo, lambda: [Path(hf_hub_download(repo, f)) for f in files])
    return paths[0]


def _from_cache(repo: str, choice: str | None, reason: _Unreachable) -> Path:
    """The model in the first revision that has all of it."""
    revisions = _cached_revisions(repo)
    if not revisions:
        raise SourceError(f"{reason}, and the cache holds nothing of {repo}") from reason

    def has_it(files: dict[str, Path]) -> bool:
        return any(all(s in files for s in shards(m)) for m in matching(files, choice))

    files = next((r for r in revisions if has_it(r)), revisions[0])
    holder = f"{reason}, and the cached copy of {repo}"
    return files[choose(files, choice, holder, f"hf:{repo}:FILE")[0]]


def _cached_revisions(repo: str) -> list[dict[str, Path]]:
    """The repository's files in the cache: those of the branch main, then from the newest on."""
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
    """One sentence for each way in which the hub says no."""
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
    except GatedRepoError as e:
        raise SourceError(
            f"{repo} asks you to accept its terms on the hub first, then to set HF_TOKEN"
        ) from e
    except RepositoryNotFoundError as e:
        raise SourceError(
            f"the hub has no repository {repo}, or it is private: check the name, or set HF_TOKEN"
        ) from e
    except OfflineModeIsEnabled as e:
        raise _Unreachable("HF_HUB_OFFLINE is set") from e
    except LocalEntryNotFoundError as e:
        raise _Unreachable(f"cannot reach the hub for {repo}: {_line(e.__cause__ or e)}") from e
    except EntryNotFoundError as e:
        raise SourceError(f"the hub lists a file of {repo} that it does not have") from e
    except HFValidationError as e:
        raise SourceError(f"{repo} is no valid repository name: {_line(e)}") from e
    except HfHubHTTPError as e:
        status = e.response.status_code
        kind = _Unreachable if status >= 500 or status == _BUSY else SourceError
        raise kind(f"the hub refuses {repo}: {_line(e)}") from e
    except JSONDecodeError as e:
        raise _Unreachable(
            f"cannot reach the hub for {repo}: something else answers in its place"
        ) from e
    except Exception as e:
        if _is_of_the_network(e):
            raise _Unreachable(f"cannot reach the hub for {repo}: {_line(e)}") from e
        raise SourceError(f"cannot fetch {repo} from the hub: {_line(e)}") from e


def _is_of_the_network(error: Exception) -> bool:
    """Whether the connection failed; the hub's HTTP library, and so its errors, vary by version."""
    return isinstance(error, (ConnectionError, TimeoutError)) or type(error).__module__.startswith(
        ("httpx", "httpcore", "requests")
    )


def _line(error: BaseException) -> str:
    """The first line of a message, without what ends it."""
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".: ") if lines else type(error).__name__
