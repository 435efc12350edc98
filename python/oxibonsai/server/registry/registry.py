"""Loads models when requests name them, and unloads those that nobody uses."""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from oxibonsai.errors import CapacityError, OxiBonsaiError
from oxibonsai.serial_queue import exceeds_share
from oxibonsai.server.backend import Backend, ModelInfo
from oxibonsai.server.circuit_breaker import State
from oxibonsai.server.errors import ApiError
from oxibonsai.server.lifecycle import Lifecycle
from oxibonsai.server.registry.catalog import Catalog, ModelSpec
from oxibonsai.server.registry.downloads import Downloads
from oxibonsai.server.registry.entry import Entry, ModelEvents
from oxibonsai.server.registry.instance import Instance, Lease, free_memory, stamp_of
from oxibonsai.server.settings import Settings

if TYPE_CHECKING:
    from oxibonsai.engine import EnginePool
    from oxibonsai.server.generation_metrics import GenerationMetrics
    from oxibonsai.server.limits import TokenLimits
    from oxibonsai.server.pdf import PdfReader
    from oxibonsai.server.stores import FileStore
    from oxibonsai.server.submitter import Submitter

_log = logging.getLogger("oxibonsai.server")

MakeBackend = Callable[[Settings, Lifecycle], Backend]

# How often a request that waits for its model looks after its client.
_POLL_SECONDS = 0.25
# How often files and idle models are looked at.
_WATCH_SECONDS = 1.0
_LOADING_RETRY_SECONDS = 5


class ModelRegistry:
    """All models of a server.

    One model loads at a time, in the order in which they were asked for; requests for other models
    go on meanwhile. Where there is no room, the one that was least recently used is unloaded; one
    that answers a request never is. A model whose file has changed is loaded beside its earlier
    version, unless the budget has no room for both.

    Args:
        settings: The server's settings.
        lifecycle: Given to the backends, which report failures.
        make_backend: Makes the backend of one model from the settings of that model.

    Attributes:
        several: Whether requests choose a model by name; else there is one, which answers to any.
        metrics: Counts requests; set by the application.
        files: Those that conversations name as images and documents; set by the application.
        documents: Reads documents; set by the application.
        tokens: Limits the tokens of callers; set by the application.
        events: Tells what happens to the models.
        downloads: Of models that clients ask for.
    """

    def __init__(self, settings: Settings, lifecycle: Lifecycle, make_backend: MakeBackend) -> None:
        self._settings = settings
        self._lifecycle = lifecycle
        self._make_backend = make_backend
        self._catalog = Catalog(settings)
        self.several = self._catalog.several
        self.metrics: GenerationMetrics | None = None
        self.files: FileStore | None = None
        self.documents: PdfReader | None = None
        self.tokens: TokenLimits | None = None
        # Each watcher blocks a thread.
        self.events = ModelEvents(max(1, settings.threads_for_http // 4))
        self.downloads = Downloads(self.add, self.events, settings.quant_type)
        self._changed = threading.Condition()
        self._refreshing = threading.Lock()
        self._entries = {n: Entry(s) for n, s in self._catalog.specs().items()}
        self._queue: list[Entry] = []
        self._turns: dict[str, int] = {}  # when a model was last loaded for an owner
        self._clock = itertools.count(1)
        self._loader: threading.Thread | None = None
        self._closed = False

    @classmethod
    def of(cls, settings: Settings, backend: Backend, lifecycle: Lifecycle) -> ModelRegistry:
        """Return a registry with one model, which its backend has loaded or is about to."""
        registry = cls(settings, lifecycle, lambda *_: backend)
        (entry,) = registry._entries.values()
        entry.instance = registry._instance(backend, entry.spec)
        return registry

    # What the launcher calls.

    def load(self) -> None:
        """Load the models of the start, and begin to serve the others.

        Raises:
            RequestError: A folder of adapters can't be read.
            OxiBonsaiError: One of the models can't be used.
        """
        from oxibonsai.server.adapters import adapters_in

        for folder in {entry.spec.settings.lora_dir for entry in self.entries()}:
            adapters_in(folder)
        for entry in self.entries():
            if entry.spec.load_on_startup and entry.instance is None:
                self._make_room(entry)
                entry.instance = self._loaded(entry, entry.spec)
            elif entry.spec.is_missing:
                _log.warning(
                    "the model %s is not there: %s does not exist, so requests for it will fail",
                    entry.spec.name,
                    entry.spec.settings.model,
                )
        threading.Thread(target=self._watch, name="model-watch", daemon=True).start()

    def models(self) -> Sequence[ModelInfo]:
        """Return every model; those that are not loaded with what is known of them."""
        listed = [self._info(entry) for entry in self.entries()]
        names = {info.id for info in listed}
        return [*listed, *(i for i in self.downloads.listed() if i.id not in names)]

    def close(self) -> None:
        """Cancel running work and end the threads."""
        with self._changed:
            self._closed = True
            instances = [e.instance for e in self._entries.values() if e.instance is not None]
            self._changed.notify_all()
        for instance in instances:
            instance.close()

    # What requests call.

    def lease(
        self,
        name: str | None = None,
        *,
        owner: str = "",
        watch: Callable[[], None] = lambda: None,
        autoload: bool | None = None,
        before_waiting: Callable[[], None] = lambda: None,
    ) -> Lease:
        """Return the model of a request, loaded; wait for that if necessary.

        Args:
            name: Any of its names; None: the first model that is loaded at the start.
            owner: Whose request it is.
            watch: Called while it waits; raises if the client is gone.
            autoload: Load it if it is not loaded. None: as ``--models-autoload`` says.
            before_waiting: Called once before it waits, so that the request gives back what those
                that use other models may wait for.

        Raises:
            ApiError: 400 if there is no name, 404 if there is no such model, 503 if it is not loaded
                and may not be, or too many requests wait for models.
            OxiBonsaiError: It could not be loaded.
        """
        entry, adapter = self._find(name)
        with self._changed:
            if entry.instance is not None:
                return entry.instance.lease(adapter)
            if not (self._settings.models_autoload if autoload is None else autoload):
                raise ApiError(
                    503,
                    f"The model '{entry.spec.name}' is not loaded: send it to POST /models/load.",
                    code="model_not_loaded",
                )
            waiting = sum((e.waiting for e in self._entries.values()), Counter([owner]))
            if exceeds_share(waiting, owner, self._most_waiting):
                raise ApiError(
                    503,
                    f"The model '{entry.spec.name}' is loading, and too many requests wait for models.",
                    code="loading",
                    retry_after=_LOADING_RETRY_SECONDS,
                )
            entry.waiting[owner] += 1
            try:
                before_waiting()
                self._enqueue(entry)
                while entry.instance is None:
                    self._check_waiting(entry)
                    self._changed.wait(_POLL_SECONDS)
                    watch()
                return entry.instance.lease(adapter)
            finally:
                entry.waiting -= Counter([owner])

    def find(self, name: str | None) -> Entry:
        """Return a model by any of its names; see :meth:`lease` for None and the errors."""
        return self._find(name)[0]

    def _find(self, name: str | None) -> tuple[Entry, str]:
        """Return a model, and the adapter's name: what follows the last colon, if that is no model's."""
        if not self.several:
            (entry,) = self.entries()
            base, _, adapter = (name or "").rpartition(":")
            return entry, adapter if base in self._own_names(entry) else ""
        if name is None:
            default = next((e for e in self.entries() if e.spec.load_on_startup), None)
            if default is None:
                raise ApiError(
                    400, "model: the request must name a model; GET /v1/models lists them.",
                    param="model",
                )  # fmt: skip
            return default, ""
        found = self._named(name)
        if found is None:
            self.refresh()
            found = self._named(name)
        if found is None:
            raise ApiError(
                404,
                f"The model '{name[:80]}' does not exist; GET /v1/models lists those that do.",
                param="model",
                code="model_not_found",
            )
        return found

    def refresh(self) -> None:
        """Read folder and presets again: takes in new models, and drops those that are gone."""
        if not self.several:
            return
        with self._refreshing:  # a list that was read earlier must not replace a later one
            self._take(self._catalog.specs())

    def _take(self, specs: dict[str, ModelSpec]) -> None:
        """Make these the models."""
        gone: list[Instance] = []
        with self._changed:
            if specs.keys() != self._entries.keys():
                self.events.tell("*", "models_reload")
            for name in [n for n in self._entries if n not in specs]:
                entry = self._entries.pop(name)
                entry.wanted = False
                self.events.tell(name, "model_remove")
                if entry.instance is not None:
                    gone.append(entry.instance)
            for name, spec in specs.items():
                entry = self._entries.setdefault(name, Entry(spec))
                if entry.spec == spec:
                    continue
                entry.spec, entry.failure = spec, None
                if entry.instance is not None:
                    gone.append(entry.instance)
                    entry.instance = None
                    self._tell(entry)
        for instance in gone:
            instance.retire()

    def entries(self) -> list[Entry]:
        """Return all models."""
        return list(self._entries.values())

    def add(self, name: str, source: str) -> None:
        """Add a model to the list, for this and later starts; replaces one that was added.

        Raises:
            RequestError: Another model has the name.
        """
        self._catalog.add(name, source)
        self.refresh()

    def remove(self, name: str) -> None:
        """Take a model that was pulled off the list; the downloaded files stay where they are.

        Raises:
            ApiError: There is no such model.
            RequestError: It was not pulled.
        """
        found, adapter = self._find(name)
        # The name of an adapter stands for no model that could be removed.
        self._catalog.remove(name if adapter else found.spec.name)
        self.refresh()

    def start_loading(self, name: str) -> None:
        """Load a model in the background, if it is not loaded."""
        entry = self.find(name)
        with self._changed:
            if entry.instance is None:
                entry.wanted = True
                self._enqueue(entry)

    def unload(self, name: str, *, missing_ok: bool = False) -> None:
        """Unload a model, or give up loading it; running requests are answered first.

        Args:
            name: Any of its names.
            missing_ok: Do nothing if it is not loaded.

        Raises:
            ApiError: 400 if it is not loaded.
        """
        entry = self.find(name)
        with self._changed:
            instance = entry.instance
            if instance is None and not entry.loading:
                if missing_ok:
                    return
                raise ApiError(400, f"The model '{entry.spec.name}' is not loaded.", param="model")
            entry.wanted = False
            entry.loading = False
            self._take_out(entry, sleeping=False)
            self._changed.notify_all()
        if instance is not None:
            instance.retire()

    @property
    def default(self) -> Instance:
        """The loaded model of work that belongs to no request: the first."""
        loaded = (i for e in self.entries() if (i := e.instance) is not None)
        instance = next(loaded, None)
        if instance is None:
            raise ApiError(503, "No model is loaded.")
        return instance

    def pools(self) -> list[EnginePool]:
        """Return the engines of all loaded models."""
        instances = [e.instance for e in self.entries()]
        return [i.pool for i in instances if i is not None and i.pool is not None]

    def circuit_states(self) -> list[tuple[str, State]]:
        """Return the state of each model's circuit, by the model's name."""
        circuits = self._lifecycle.circuits
        return [(e.spec.name, circuits.state(str(e.spec.settings.model))) for e in self.entries()]

    @property
    def generates(self) -> bool:
        """Whether there may be a model that generates text."""
        instances = [e.instance for e in self.entries()]
        return any(i is None or i.backend.generates for i in instances)

    @property
    def ranks(self) -> bool:
        """Whether there may be a model that scores texts."""
        instances = [e.instance for e in self.entries()]
        return any(i is None or i.backend.ranks for i in instances)

    # Loading and unloading.

    @property
    def _most_waiting(self) -> int:
        # Each blocks a thread.
        return max(1, self._settings.threads_for_http // 4)

    def _named(self, name: str) -> tuple[Entry, str] | None:
        base, _, adapter = name.rpartition(":")
        for wanted, rest in ((name, ""), (base, adapter)):
            for entry in self.entries():
                if wanted in entry.spec.names:
                    return entry, rest
        return None

    def _own_names(self, entry: Entry) -> tuple[str, ...]:
        """Return the names of the one model of a server that answers to any."""
        instance = entry.instance
        if instance is None:
            return entry.spec.names
        return instance.backend.models()[0].aliases

    def _enqueue(self, entry: Entry) -> None:
        entry.loading = True  # also if it was given up while it loads
        if entry not in self._queue:
            entry.failure = None
            self._queue.append(entry)
            self._tell(entry)
            self._changed.notify_all()
        if self._loader is None:
            self._loader = threading.Thread(
                target=self._load_queued, name="model-loader", daemon=True
            )
            self._loader.start()

    def _check_waiting(self, entry: Entry) -> None:
        if self._closed:
            raise CapacityError("the server is about to end")
        if isinstance(entry.failure, CapacityError):
            raise entry.failure
        if entry.failure is not None:
            raise ApiError(
                503,
                f"The model '{entry.spec.name}' could not be loaded: {entry.failure_text}",
                code="model_failed",
            )
        if not entry.loading:
            raise ApiError(503, f"The model '{entry.spec.name}' was unloaded.", retry_after=1)

    def _load_queued(self) -> None:
        """Load what the queue holds, for as long as the server runs."""
        while True:
            with self._changed:
                while not self._queue and not self._closed:
                    self._changed.wait()
                if self._closed:
                    return
                entry = self._next_to_load()
                if not (entry.waiting or entry.wanted):  # nobody waits any more
                    self._leave_queue(entry)
                    continue
                spec = entry.spec
            failure: OxiBonsaiError
            try:
                if not self._make_room(entry):
                    with self._changed:
                        self._changed.wait(_POLL_SECONDS)
                    continue
                self._put(entry, self._loaded(entry, spec), spec)
                continue
            except OxiBonsaiError as e:
                _log.error("the model %s could not be loaded: %s", spec.name, str(e))
                # Without the traceback, which would keep what was loaded of it.
                kind = CapacityError if isinstance(e, CapacityError) else OxiBonsaiError
                failure = kind(str(e))
            except OSError as e:
                _log.error("the model %s could not be loaded: %s", spec.name, str(e))
                failure = CapacityError(f"the model could not be read: {e.strerror}")
            except Exception as e:
                _log.exception("the model %s could not be loaded", spec.name)
                failure = CapacityError(f"the model could not be loaded: {type(e).__name__}")
            free_memory()
            with self._changed:
                entry.failure = failure
                self._leave_queue(entry)

    def _next_to_load(self) -> Entry:
        """Return the first model of the owner whose latest one was loaded the longest ago."""

        def turn(entry: Entry) -> int:
            return min((self._turns.get(owner, 0) for owner in entry.waiting), default=0)

        return min(self._queue, key=turn)

    def _put(self, entry: Entry, instance: Instance, spec: ModelSpec) -> None:
        """Make a loaded instance the one that requests use; none if it is not wanted any more."""
        with self._changed:
            unwanted = self._closed or self._entries.get(spec.name) is not entry
            unwanted = unwanted or not entry.loading
            outdated = entry.spec != spec and not unwanted  # its preset has changed meanwhile
            earlier = instance if unwanted or outdated else entry.instance
            if not (unwanted or outdated):
                entry.instance, entry.sleeping = instance, False
            if not outdated:  # else it is loaded once more
                self._leave_queue(entry)
        if earlier is not None:
            earlier.retire()

    def _leave_queue(self, entry: Entry) -> None:
        self._queue.remove(entry)
        self._turns |= {owner: next(self._clock) for owner in entry.waiting}
        entry.loading = entry.wanted = False
        self._tell(entry)
        self._changed.notify_all()

    def _tell(self, entry: Entry) -> None:
        """Tell watchers the state of a model if it is a new one."""
        if entry.status == entry.told and entry.failure is None:
            return
        entry.told = entry.status
        data: dict[str, object] = {"status": entry.status.value}
        if entry.failure is not None:
            data["failed"] = True
        self.events.tell(entry.spec.name, "model_status", data)

    def _loaded(self, entry: Entry, spec: ModelSpec) -> Instance:
        started = time.monotonic()
        backend = self._make_backend(spec.settings, self._lifecycle)
        backend.on_file_change = lambda: self._load_again(entry, backend)
        backend.load()
        instance = self._instance(backend, spec)
        entry.info = next(iter(backend.models()), None)
        if backend.pool is not None:
            file = backend.pool.engines[0].model.weights.checkpoint.path
            instance.stamp = entry.seen = stamp_of(file)
        self._check_budget(entry, instance)
        if self.several:
            seconds = time.monotonic() - started
            _log.info("loaded", extra={"models": [spec.name], "seconds": round(seconds, 2)})
        return instance

    def _load_again(self, entry: Entry, backend: Backend) -> None:
        """Replace an instance whose file was changed under it; called in the engine's thread."""
        with self._changed:
            instance = entry.instance
            if instance is None or instance.backend is not backend or self._closed:
                return
            self._take_out(entry, sleeping=False)
            entry.wanted = True
            self._enqueue(entry)
        # Not here: it waits for this thread.
        threading.Thread(target=instance.retire, name="model-retire", daemon=True).start()

    def _instance(self, backend: Backend, spec: ModelSpec) -> Instance:
        return Instance(backend, spec.settings, self._generations_of, self._after_close)

    def _generations_of(self, instance: Instance) -> Submitter:
        from oxibonsai.server.submitter import Submitter

        assert self.metrics is not None  # the application sets all four before any request
        assert self.files is not None
        assert self.documents is not None
        assert self.tokens is not None
        return Submitter(
            instance.backend, self.metrics, self.files, self.documents, instance.settings,
            self._lifecycle.circuits, self.tokens,
        )  # fmt: skip

    def _after_close(self, pool: EnginePool | None) -> None:
        if pool is not None and self.metrics is not None:
            self.metrics.retired(pool)

    # Room.

    def _make_room(self, entry: Entry) -> bool:
        """Unload models until there is room for another; return whether there is."""
        while self._lacks_room(entry):
            if not self._unload_one(entry):
                return False
        return True

    def _unload_one(self, entry: Entry) -> bool:
        """Unload a model that is idle; return whether there was any.

        A model that is loaded anew goes first, then the one that was least recently used.
        """
        with self._changed:
            idle = [
                (e is not entry, e.instance.last_used, e.spec.name, e)
                for e in self.entries()
                if e.instance is not None and not e.instance.busy
            ]
            instance = self._take_out(min(idle)[3], sleeping=False) if idle else None
        if instance is not None:
            instance.retire()
        return instance is not None

    def _lacks_room(self, entry: Entry) -> bool:
        others = list(self._others(entry))
        most = self._settings.models_max
        if self.several and most and len(others) >= most:
            return True
        budget = self._budget_bytes
        if budget is None or not (others or entry.instance is not None):
            return False
        # Before it is loaded, its size on the disk is what is known of it, or its earlier version's.
        path = entry.spec.path
        size = path.stat().st_size if path is not None and path.is_file() else 0
        if (earlier := entry.instance) is not None:
            size = max(size, earlier.memory_bytes)
        return self._taken_bytes() + size > budget

    def _taken_bytes(self) -> int:
        """Return the memory of all loaded models, of one that is loaded anew the earlier version."""
        return sum(i.memory_bytes for e in self.entries() if (i := e.instance) is not None)

    def _check_budget(self, entry: Entry, instance: Instance) -> None:
        """Unload other models if this one takes more than was expected.

        Raises:
            CapacityError: It does not fit even alone, or the others are in use.
        """
        budget, size = self._budget_bytes, instance.memory_bytes
        if budget is None:
            return
        while size + self._taken_bytes() > budget:
            if not self._unload_one(entry):
                instance.close()
                raise CapacityError(
                    f"the model {entry.spec.name} takes {size / 2**30:.2f} GiB with full caches, more "
                    f"than is left of --models-memory-gb {self._settings.models_memory_gb:g}: lower "
                    "its ctx-size or parallel, or raise the limit"
                )

    @property
    def _budget_bytes(self) -> int | None:
        limit = self._settings.models_memory_gb
        return None if limit is None else int(limit * 2**30)

    def _others(self, entry: Entry) -> Iterator[Entry]:
        """Yield the loaded models other than one."""
        entries = self.entries()
        return (e for e in entries if e is not entry and e.instance is not None)

    def _take_out(self, entry: Entry, *, sleeping: bool) -> Instance | None:
        """Take a model out of use; the caller retires it, outside of the lock."""
        instance, entry.instance = entry.instance, None
        entry.sleeping = sleeping
        self._tell(entry)
        return instance

    # What happens by itself.

    def _watch(self) -> None:
        while not self._closed:
            time.sleep(_WATCH_SECONDS)
            try:
                self._let_sleep()
                if self._settings.reload_changed:
                    self._reload_changed()
            except Exception:
                _log.exception("models could not be watched")

    def _let_sleep(self) -> None:
        """Unload models that nobody has used for some time."""
        for entry in self.entries():
            with self._changed:
                instance = entry.instance
                if instance is None or instance.busy or entry.loading:
                    continue
                limit = instance.keep_seconds
                if limit < 0 or time.monotonic() - instance.last_used < limit:
                    continue
                self._take_out(entry, sleeping=True)
            instance.retire()

    def _reload_changed(self) -> None:
        """Load models anew whose files have changed; requests use the old ones until then."""
        for entry in self.entries():
            instance = entry.instance
            pool = None if instance is None else instance.pool
            if instance is None or instance.stamp is None or pool is None:
                continue
            now = stamp_of(pool.engines[0].model.weights.checkpoint.path)
            settled, entry.seen = now == entry.seen, now
            # Not while it is being written: it must look the same twice.
            if now is None or now == instance.stamp or not settled:
                continue
            instance.stamp = now  # tried once for each change
            with self._changed:
                entry.wanted = True
                self._enqueue(entry)

    def _info(self, entry: Entry) -> ModelInfo:
        spec = entry.spec
        info, instance = entry.info, entry.instance
        if instance is not None:
            info = next(iter(instance.backend.models()), info)
        if info is None:
            output = "embeddings" if spec.settings.embedding else "text"
            info = ModelInfo(spec.name, 0, spec.names, {}, spec.settings.tags, output=output)
        failed = entry.failure is not None
        return replace(info, status=entry.status.value, failed=failed)
