"""One model with different adapters: passes over the same packed weights, one for each set of them."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence

from oxibonsai.errors import CapacityError, RequestError
from oxibonsai.lora.adapter import Adapter, in_use
from oxibonsai.models import Model

# Compiled passes that are kept, beside those of the present step; the others are compiled again when
# they are needed.
_MOST_COMPILED = 16
_MOST_SETS = 4096  # whose keys are known; the least recently used are forgotten


class AdaptedModels:
    """The passes of a model.

    A set of adapters is named by a key, which :class:`~oxibonsai.engine.Options` takes as ``adapter``;
    the empty key is the model as it was loaded. Only an adapter's own low-rank matrices are packed for it.

    Args:
        model: As it was loaded.
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        self._sets: OrderedDict[str, tuple[Adapter, ...]] = OrderedDict()
        self._in_step: frozenset[str] = frozenset()
        self._compiled: OrderedDict[str, Model] = OrderedDict()
        self._lock = threading.Lock()

    def key(self, adapters: Sequence[Adapter]) -> str:
        """Return the key of a set; adapters of scale 0 change nothing."""
        used = in_use(adapters)
        if used == in_use(self._model.adapters):
            return ""
        told = repr([(a.fingerprint, a.scale) for a in used])
        key = hashlib.blake2b(told.encode(), digest_size=16).hexdigest()
        with self._lock:
            self._sets[key] = used
            self._sets.move_to_end(key)
            if len(self._sets) > _MOST_SETS:
                self._sets.popitem(last=False)
        return key

    def check(self, key: str) -> None:
        """Raise RequestError for a key that :meth:`key` did not return."""
        if not self.knows(key):
            raise RequestError(f"adapter is {key!r}; it must be a key of Engine.adapter_key()")

    def knows(self, key: str) -> bool:
        """Return whether :meth:`key` has returned a key, and it was not forgotten."""
        return not key or key in self._sets

    def begin_step(self, keys: Iterable[str]) -> None:
        """Say which sets a step needs: their passes are kept until the next one begins."""
        self._in_step = frozenset(keys)

    def is_compiled(self, key: str) -> bool:
        """Return whether a pass is ready."""
        return not key or key in self._compiled

    def of(self, key: str) -> Model:
        """Return the model with a set of adapters; compile it, under the engine's lock, if needed."""
        if not key:
            return self._model
        with self._lock:
            used = self._sets.get(key)
            if used is None:
                raise CapacityError(
                    f"these adapters were forgotten, as {_MOST_SETS} other sets have been used since: send "
                    "the request again"
                )
            self._sets.move_to_end(key)
        if key not in self._compiled:
            self._compiled[key] = self._model.with_adapters(used)
            unused = [k for k in self._compiled if k not in self._in_step and k != key]
            for old in unused[: max(0, len(self._compiled) - _MOST_COMPILED)]:
                del self._compiled[old]
        self._compiled.move_to_end(key)
        return self._compiled[key]
