"""The backend of ``oxibonsai serve``: the engine of one model."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from oxibonsai.server.backend import ModelInfo
from oxibonsai.server.lifecycle import Lifecycle
from oxibonsai.server.settings import Settings

if TYPE_CHECKING:
    from oxibonsai.engine import Engine


class LoadedModel:
    """Loads the model that the settings name."""

    def __init__(self, settings: Settings, lifecycle: Lifecycle) -> None:
        self._settings = settings
        self._lifecycle = lifecycle
        self._models: tuple[ModelInfo, ...] = ()
        self.engine: Engine | None = None

    def load(self) -> None:
        """See :class:`~oxibonsai.server.backend.Backend`."""
        # Imported after the fork: the core starts threads.
        from oxibonsai.engine import load

        s = self._settings
        self.engine = load(
            s.model,
            threads=s.threads,
            ctx_size=s.ctx_size,
            kv_type=s.kv_type,
            quant_type=s.quant_type,
            parallel=s.parallel,
            parity=s.parity,
            packed_cache=s.packed_cache,
        )
        names = s.alias or (_short_name(s.model),)
        self._models = (ModelInfo(names[0], int(time.time()), tuple(names[1:])),)

    def models(self) -> Sequence[ModelInfo]:
        """The one model, once it is loaded."""
        return self._models

    def close(self) -> None:
        """The process ends, and the engine with it."""
        self.engine = None


def _short_name(model: str | None) -> str:
    """What clients call a model without an alias: a file's name, and no folder of this machine."""
    if model is None:
        return "default"
    return model if model.startswith(("hf:", "pip:")) else Path(model).stem
