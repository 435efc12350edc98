"""Which models a server offers: from ``--model``, ``--models``, ``--models-dir`` and presets."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from oxibonsai.errors import CapacityError, RequestError
from oxibonsai.files.home_paths import with_home
from oxibonsai.server.registry.presets import Preset, read_presets
from oxibonsai.server.settings import Settings
from oxibonsai.sources.file_choice import is_tower
from oxibonsai.sources.http import is_url
from oxibonsai.sources.local import PACKAGED

_SHARD = re.compile(r"-(\d{5})-of-\d{5}$")


@dataclass(frozen=True)
class ModelSpec:
    """A model that can be loaded.

    Attributes:
        name: The first of its names.
        settings: The server's settings, with those of this model and its source.
        load_on_startup: Load it when the server starts.
    """

    name: str
    settings: Settings
    load_on_startup: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """All its names."""
        return self.settings.alias

    @property
    def path(self) -> Path | None:
        """Return its file or folder; None if the source is none of this machine."""
        path = with_home(self.settings.model or "")
        return path if self.settings.model and path.exists() else None

    @property
    def is_missing(self) -> bool:
        """Whether its source is a file or folder of this machine that does not exist."""
        source = self.settings.model
        if not source or source in PACKAGED or source.startswith(("hf:", "pip:")):
            return False
        return not is_url(source) and self.path is None


class Catalog:
    """Lists the models; reads folder and presets again each time.

    Args:
        settings: The server's settings.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._adding = threading.Lock()

    @property
    def several(self) -> bool:
        """Whether the server offers a list of models, from which requests choose by name."""
        s = self._settings
        return bool(s.models or s.models_dir or s.models_preset or s.allow_pull)

    def specs(self) -> dict[str, ModelSpec]:
        """Return the models by their first names: ``--model`` first, then lists, presets and the folder.

        Raises:
            RequestError: Two models have one name, or a folder or preset can't be used.
        """
        return self._specs(self._pulled())

    def _specs(self, pulled: Mapping[str, str]) -> dict[str, ModelSpec]:
        s = self._settings
        own_name = s.alias[0] if s.alias else short_name(s.model)
        if not self.several:
            spec = self._spec(own_name, s.model, Preset(), alias=s.alias, startup=True)
            return {spec.name: spec}
        presets = read_presets(s.models_preset) if s.models_preset else {}
        found: dict[str, ModelSpec] = {}
        if s.model is not None:
            preset = presets.pop(own_name, Preset())
            found[own_name] = self._spec(own_name, s.model, preset, alias=s.alias, startup=True)
        for name, source in self._sources(presets, pulled):
            if name in found and _same(source, s.model):
                continue
            if name in found:
                raise RequestError(f"two models have the name {name!r}: give one another name")
            found[name] = self._spec(name, source, presets.get(name, Preset()))
        _check_names(found.values())
        return found

    def add(self, name: str, source: str) -> None:
        """Add a model that was pulled; kept in the state folder.

        Raises:
            RequestError: Another model has the name.
            CapacityError: The state folder can't be written.
        """
        with self._adding:
            pulled = {**self._pulled(), name: source}
            self._specs(pulled)  # what can't be listed must not get into the file
            self._keep(pulled)

    def remove(self, name: str) -> None:
        """Remove a model that was pulled; see :meth:`add`.

        Raises:
            RequestError: It was not.
        """
        with self._adding:
            pulled = self._pulled()
            if name not in pulled:
                raise RequestError(
                    f"model: {name[:80]!r} was not pulled: it is on the list because the server was "
                    "started with it"
                )
            self._keep({n: source for n, source in pulled.items() if n != name})

    def _keep(self, pulled: Mapping[str, str]) -> None:
        try:
            self._pulled_file.parent.mkdir(parents=True, exist_ok=True)
            new = self._pulled_file.with_suffix(".new")
            new.write_text(json.dumps(pulled, indent=1), "utf-8")
            new.replace(self._pulled_file)
        except OSError as e:
            raise CapacityError(f"cannot write {self._pulled_file.name}: {e.strerror}") from e

    @property
    def _pulled_file(self) -> Path:
        return self._settings.state_dir / "pulled_models.json"

    def _pulled(self) -> dict[str, str]:
        """Return the sources of models that clients have pulled, by name."""
        if not self._settings.allow_pull:
            return {}
        try:
            found = json.loads(self._pulled_file.read_text("utf-8"))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as e:
            raise RequestError(f"cannot read {self._pulled_file}: {e}") from e
        return {str(name): str(source) for name, source in found.items()}

    def _sources(
        self, presets: Mapping[str, Preset], pulled: Mapping[str, str]
    ) -> Iterator[tuple[str, str]]:
        s = self._settings
        listed = dict(map(_named, s.models))
        if len(listed) < len(s.models):
            raise RequestError("--models has two models of one name: write NAME=SOURCE")
        listed = {**pulled, **listed}
        folder = {} if s.models_dir is None else models_in(s.models_dir)
        yield from listed.items()
        for name, preset in presets.items():
            if name in listed:
                continue
            if preset.source is None and name not in folder:
                raise RequestError(
                    f"{s.models_preset}: [{name}] is no model of the list or the folder, so it needs "
                    "a key model with its source"
                )
            yield name, preset.source or folder[name]
        yield from ((n, f) for n, f in folder.items() if n not in listed and n not in presets)

    def _spec(
        self,
        name: str,
        source: str | None,
        preset: Preset,
        *,
        alias: tuple[str, ...] = (),
        startup: bool = False,
    ) -> ModelSpec:
        values = dict(preset.values)
        names = alias or values.pop("alias", ())
        names = names if name in names else (name, *names)
        values |= {"model": source, "alias": names}
        return ModelSpec(
            names[0],
            self._settings.model_copy(update=values),
            startup or bool(preset.load_on_startup),
        )


def models_in(folder: Path) -> dict[str, str]:
    """Return the models of a folder by name: GGUF files, and subfolders with one or with safetensors.

    Of a file in shards the first counts; a subfolder is named after itself.

    Raises:
        RequestError: There is no such folder.
    """
    try:
        entries = sorted(with_home(folder).iterdir())
    except OSError as e:
        raise RequestError(f"--models-dir: cannot read {folder}: {e.strerror}") from e
    found: dict[str, str] = {}
    for entry in entries:
        if entry.name.startswith("."):
            continue
        if entry.is_file() and entry.suffix == ".gguf":
            name = _model_of(entry.stem)
            if name is not None:
                found[name] = str(entry)
        elif entry.is_dir():
            files = [f for f in sorted(entry.glob("*.gguf")) if _model_of(f.stem) is not None]
            if files:
                found[entry.name] = str(files[0])
            elif (entry / "config.json").is_file() and any(entry.glob("*.safetensors")):
                found[entry.name] = str(entry)
    return found


def short_name(source: str | None) -> str:
    """Return the name of a model that was given none: a file name, without its folder."""
    if source is None:
        return "default"
    return source if source.startswith(("hf:", "pip:")) else Path(source).stem


def _same(source: str, other: str | None) -> bool:
    """Return whether two sources are one model: one text, or one file or folder."""
    if source == other:
        return True
    paths = [with_home(text) for text in (source, other or "")]
    return bool(other) and all(p.exists() for p in paths) and paths[0].samefile(paths[1])


def _model_of(stem: str) -> str | None:
    """Return the name of a GGUF file's model; None for a vision tower or a later shard."""
    if is_tower(stem):
        return None
    shard = _SHARD.search(stem)
    if shard is None:
        return stem
    return stem[: shard.start()] if int(shard[1]) == 1 else None


def _named(text: str) -> tuple[str, str]:
    name, equals, source = text.partition("=")
    if equals and (not name or not source):
        raise RequestError(f"--models: {text!r} must be SOURCE or NAME=SOURCE")
    return (name, source) if equals else (short_name(text), text)


def _check_names(specs: Iterable[ModelSpec]) -> None:
    taken: dict[str, str] = {}
    for spec in specs:
        for name in spec.names:
            other = taken.setdefault(name, spec.name)
            if other != spec.name:
                raise RequestError(
                    f"the models {other!r} and {spec.name!r} share the name {name!r}"
                )
