"""A model of the list, loaded or not."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum

from oxibonsai.errors import OxiBonsaiError
from oxibonsai.server.backend import ModelInfo
from oxibonsai.server.registry.catalog import ModelSpec
from oxibonsai.server.registry.instance import Instance, Stamp


class Status(Enum):
    """The state of a model, in llama-server's words."""

    UNLOADED = "unloaded"
    LOADING = "loading"
    LOADED = "loaded"
    SLEEPING = "sleeping"


@dataclass
class Entry:
    """A model of the list.

    Attributes:
        spec: What it is.
        instance: It, loaded; None while it is not.
        loading: Whether it is loading or waits to be loaded.
        waiting: Requests that wait for it, by owner.
        wanted: Load it even if no request waits: somebody asked for that.
        sleeping: It was unloaded because nobody used it.
        failure: Why it could not be loaded; None if that is untried or went well.
        seen: The stamp of its file when that was last looked at.
        info: What ``/v1/models`` lists; of the last time that it was loaded.
        told: The state that watchers were last told.
    """

    spec: ModelSpec
    instance: Instance | None = None
    loading: bool = False
    waiting: Counter[str] = field(default_factory=Counter)
    wanted: bool = False
    sleeping: bool = False
    failure: OxiBonsaiError | None = None
    seen: Stamp | None = None
    info: ModelInfo | None = None
    told: Status = Status.UNLOADED

    @property
    def status(self) -> Status:
        """Whether it is loaded."""
        if self.instance is not None:
            return Status.LOADED
        if self.loading:
            return Status.LOADING
        return Status.SLEEPING if self.sleeping else Status.UNLOADED
