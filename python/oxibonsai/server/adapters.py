"""The adapters (LoRA) of a served model: which there are, and which a request uses."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from oxibonsai.engine import EnginePool
from oxibonsai.errors import RequestError
from oxibonsai.files.home_paths import with_home
from oxibonsai.loading import is_peft_folder, open_adapters
from oxibonsai.lora import Adapter
from oxibonsai.server.errors import ApiError
from oxibonsai.server.settings import Settings

_LARGEST_SCALE = 1e6


@dataclass(frozen=True)
class ServedAdapter:
    """An adapter, and how much of it is added where a request says nothing.

    Attributes:
        id: Its number, under which llama-server's API knows it.
        name: What follows the model's name and a colon in a request.
        adapter: Its matrices.
        default: Its scale in requests that choose no adapter.
    """

    id: int
    name: str
    adapter: Adapter
    default: float


class Adapters:
    """The adapters of one model.

    First those of ``--lora`` and ``--lora-scaled``, then those of ``--lora-modules``; what is in
    ``--lora-dir`` is opened when a request names it first.

    Args:
        pool: The engines.
        settings: Of the model.

    Raises:
        OxiBonsaiError: One of them can't be used.
    """

    def __init__(self, pool: EnginePool, settings: Settings) -> None:
        self._pool = pool
        self._folder = settings.lora_dir
        self._most = settings.max_loras
        self._lock = threading.Lock()
        self._checkpoint = pool.engines[0].model.weights.checkpoint
        loaded = pool.engines[0].model.adapters
        self._adapters = [
            ServedAdapter(i, _short_name(a.name), a, a.scale) for i, a in enumerate(loaded)
        ]
        for text in settings.lora_modules:
            name, equals, source = text.partition("=")
            if not (name and equals and source):
                raise RequestError(f"--lora-modules: {text!r} must be NAME=SOURCE")
            self._open(name, source)

    def listed(self) -> list[ServedAdapter]:
        """Return all that are open, by number."""
        with self._lock:
            return list(self._adapters)

    def names(self) -> list[str]:
        """Return the names that requests may use: of open adapters, and of those in the folder."""
        found = {a.name: None for a in self.listed()}
        return [*found, *(n for n in sorted(adapters_in(self._folder)) if n not in found)]

    def named(self, name: str) -> str:
        """Return the engine's key of one adapter, at full scale.

        Raises:
            ApiError: 404 if there is none of this name.
            OxiBonsaiError: It can't be used.
        """
        with self._lock:
            found = next((a for a in self._adapters if a.name == name), None)
            if found is None:
                source = adapters_in(self._folder).get(name)
                if source is None:
                    raise ApiError(
                        404,
                        f"The model has no adapter '{name[:80]}'; GET /lora-adapters lists them.",
                        param="model",
                        code="model_not_found",
                    )
                found = self._open(name, str(source))
        return self._key({found.id: 1.0})

    def scaled(self, scales: Mapping[int, float]) -> str:
        """Return the engine's key of adapters by number; those that are missing are left out.

        Raises:
            RequestError: There is no adapter of a number, or a scale is out of range.
        """
        self._check(scales)
        return self._key(scales)

    def set_defaults(self, scales: Mapping[int, float]) -> None:
        """Set the scales for requests that choose no adapter; those that are missing become 0.

        Raises:
            RequestError: As :meth:`scaled`.
        """
        self._check(scales)
        with self._lock:
            self._adapters = [replace(a, default=scales.get(a.id, 0.0)) for a in self._adapters]

    def default(self) -> str:
        """Return the engine's key for requests that choose no adapter."""
        listed = self.listed()
        return self._key({a.id: a.default for a in listed}) if listed else ""

    def _key(self, scales: Mapping[int, float]) -> str:
        chosen = [
            replace(a.adapter, scale=scales[a.id])
            for a in self.listed()
            if scales.get(a.id, 0.0) != 0.0
        ]
        (key,) = {engine.adapter_key(chosen) for engine in self._pool.engines}
        return key

    def _check(self, scales: Mapping[int, float]) -> None:
        known = {a.id for a in self.listed()}
        for number, scale in scales.items():
            if number not in known:
                raise RequestError(
                    f"lora: there is no adapter with id {number}; GET /lora-adapters lists them"
                )
            if not abs(scale) <= _LARGEST_SCALE:
                raise RequestError(
                    f"lora: the scale of adapter {number} is {scale}; it is too large"
                )

    def _open(self, name: str, source: str) -> ServedAdapter:
        if len(self._adapters) >= self._most:
            raise ApiError(
                503,
                f"{self._most} adapters are open, as many as --max-loras allows: raise it, or load "
                "the model again",
                code="over_capacity",
            )
        (adapter,) = open_adapters([source], self._checkpoint)
        served = ServedAdapter(len(self._adapters), name, adapter, 0.0)
        self._adapters.append(served)
        return served


def adapters_in(folder: Path | None) -> dict[str, Path]:
    """Return the adapters in a folder, by name: GGUF files, and folders that PEFT saved.

    Raises:
        RequestError: The folder can't be read.
    """
    if folder is None:
        return {}
    try:
        entries = sorted(with_home(folder).iterdir())
    except OSError as e:
        raise RequestError(
            f"--lora-dir: cannot read {folder}: {e.strerror}; name a folder with adapters"
        ) from e
    return {
        p.stem if p.suffix == ".gguf" else p.name: p
        for p in entries
        if p.suffix == ".gguf" or is_peft_folder(p)
    }


def _short_name(name: str) -> str:
    path = Path(name)
    return path.stem if path.suffix == ".gguf" else path.name
