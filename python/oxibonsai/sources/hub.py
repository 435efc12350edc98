"""Models on the Hugging Face hub: found and fetched by `huggingface_hub`, kept in its cache."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from oxibonsai.errors import SourceError
from oxibonsai.sources.local import is_model
from oxibonsai.sources.shards import split_info

T = TypeVar("T")

_REPOSITORY = re.compile(r"^(?P<repo>[\w.-]+/[\w.-]+)(?::(?P<choice>.+))?$")


def resolve_hub(text: str, *, progress: bool | None = None) -> Path:
    """The GGUF of ``org/repo[:FILE.gguf or quant]``.

    ``HF_HOME``, ``HF_HUB_CACHE``, ``HF_HUB_OFFLINE``, ``HF_ENDPOINT`` and ``HF_TOKEN`` are honoured;
    an interrupted download resumes.

    Raises:
        SourceError: There is no such repository or file, the choice is ambiguous (the files are
            listed), or the hub can't be reached and the cache lacks the file.
    """
    match = _REPOSITORY.match(text)
    if match is None:
        raise SourceError(
            f"hf:{text} is no repository; write hf:ORG/REPO, with :FILE or :QUANT to choose"
        )
    repo, choice = match["repo"], match["choice"]
    from huggingface_hub.utils.tqdm import disable_progress_bars

    if progress is False:
        disable_progress_bars()
    name = _choose(_list(repo), choice, repo)
    info = split_info(Path(name))
    count = 1 if info is None else info.count
    paths = [_fetch(repo, _shard(name, i, count)) for i in range(1, count + 1)]
    return paths[0]


def _shard(name: str, index: int, count: int) -> str:
    return (
        name
        if count == 1
        else name.replace(f"-00001-of-{count:05d}", f"-{index:05d}-of-{count:05d}")
    )


def _choose(names: list[str], choice: str | None, repo: str) -> str:
    """The one model that is meant."""
    models = sorted(n for n in names if is_model(n))
    if not models:
        raise SourceError(f"the repository {repo} holds no GGUF model")
    chosen = models
    if choice is not None:
        if choice.endswith(".gguf"):
            chosen = [m for m in models if choice in (m, Path(m).name)]
        else:
            wanted = re.compile(
                rf"(?<![A-Za-z0-9]){re.escape(choice)}(?![A-Za-z0-9_])", re.IGNORECASE
            )
            chosen = [m for m in models if wanted.search(Path(m).name)]
    if len(chosen) == 1:
        return chosen[0]
    problem = "no model" if not chosen else "several models"
    about = f" that match {choice}" if choice is not None else ""
    raise SourceError(
        f"the repository {repo} holds {problem}{about}; choose with hf:{repo}:FILE from: "
        + ", ".join(models)
    )


def _list(repo: str) -> list[str]:
    """Names of the repository's files; those in the cache where the hub is switched off."""
    from huggingface_hub import HfApi, constants, scan_cache_dir
    from huggingface_hub.errors import CacheNotFound

    if not constants.HF_HUB_OFFLINE:
        siblings = _ask(repo, lambda: HfApi().model_info(repo).siblings)
        return [f.rfilename for f in siblings or []]
    try:
        repos = scan_cache_dir().repos
    except CacheNotFound:
        repos = frozenset()
    names = {
        str(f.file_path.relative_to(r.snapshot_path))
        for c in repos
        if c.repo_id == repo
        for r in c.revisions
        for f in r.files
    }
    if not names:
        raise SourceError(f"HF_HUB_OFFLINE is set and the cache holds nothing of {repo}")
    return sorted(names)


def _fetch(repo: str, name: str) -> Path:
    from huggingface_hub import hf_hub_download

    return Path(_ask(repo, lambda: hf_hub_download(repo, name)))


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
    except (LocalEntryNotFoundError, OfflineModeIsEnabled) as e:
        raise SourceError(
            f"cannot reach the hub for {repo}, and the file is not in the cache"
        ) from e
    except EntryNotFoundError as e:
        raise SourceError(f"the repository {repo} has no such file") from e
    except HFValidationError as e:
        raise SourceError(f"{repo} is no valid repository name: {e}") from e
    except HfHubHTTPError as e:
        raise SourceError(f"the hub refuses {repo}: {str(e).splitlines()[0]}") from e
    except OSError as e:
        raise SourceError(f"cannot reach the hub for {repo}: {e}") from e
    except Exception as e:
        if type(e).__module__.startswith(
            ("httpx", "httpcore", "requests")
        ):  # its HTTP library's own
            raise SourceError(f"cannot reach the hub for {repo}: {e}") from e
        raise
