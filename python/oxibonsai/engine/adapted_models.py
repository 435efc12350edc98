"""One model with different adapters: passes over the same packed weights, one for each set of them."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Sequence

from oxibonsai.errors import CapacityError, RequestError
from oxibonsai.lora.adapter import Adapter, in_use
from oxibonsai.models import Model

# Compiled passes that are kept; the others are compiled again when they are needed.
_MOST_COMPILED = 16
_MOST_SETS = 4096


class AdaptedModels:
    """The passes of a model.

    A set of adapters is named by a key, which :class:`~oxibonsai.engine.Options` takes as ``adapter``;
    the empty key is the model as it was loaded. Only an adapter's own thin matrices are packed for it.

    Args:
        model: As it was loaded.
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        self._sets: dict[str, tuple[Adapter, ...]] = {}
        self._compiled: OrderedDict[str, Model] = OrderedDict()
        self._lock = threading.Lock()

    def key(self, adapters: Sequence[Adapter]) -> str:
        """The key of a set; adapters of scale 0 change nothing.

        Raises:
            CapacityError: There are too many sets.
        """
        used = in_use(adapters)
        if used == in_use(self._model.adapters):
            return ""
        told = repr([(a.fingerprint, a.scale) for a in used])
        key = hashlib.blake2b(told.encode(), digest_size=16).hexdigest()
        with self._lock:
            if key not in self._sets and len(self._sets) >= _MOST_SETS:
                raise CapacityError(
                    f"{_MOST_SETS} sets of adapters and scales have been used: load the model again"
                )
            self._sets[key] = used
        return key

    def check(self, key: str) -> None:
        """RequestError for a key that :meth:`key` did not return."""
        if key and key not in self._sets:
            raise RequestError(f"adapter is {key!r}; it must be a key of Engine.adapter_key()")

    def is_compiled(self, key: str) -> bool:
        """Whether a pass is ready."""
        return not key or key in self._compiled

    def of(self, key: str) -> Model:
        """The model with a set of adapters; compiled here, under the engine's lock, if it is not."""
        if not key:
            return self._model
        if key not in self._compiled:
            self._compiled[key] = self._model.with_adapters(self._sets[key])
            if len(self._compiled) > _MOST_COMPILED:
                self._compiled.popitem(last=False)
        self._compiled.move_to_end(key)
        return self._compiled[key]
