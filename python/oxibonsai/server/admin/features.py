"""What a server can have or lack as it was started; what needs a lacking one answers 501."""

from __future__ import annotations

from enum import Enum, auto

from oxibonsai.server.backend import Backend
from oxibonsai.server.settings import Settings


class Feature(Enum):
    """What operations may need."""

    TEXTS = auto()  # a model that writes, and not one for vectors alone
    METRICS = auto()
    SLOTS = auto()
    SAVED_SLOTS = auto()


def features_of(settings: Settings, backend: Backend) -> set[Feature]:
    """Those that are there, once the model is loaded."""
    there = {
        Feature.TEXTS: backend.generates,
        Feature.METRICS: settings.metrics,
        Feature.SLOTS: settings.slots,
        Feature.SAVED_SLOTS: settings.slot_save_path is not None,
    }
    return {feature for feature, is_there in there.items() if is_there}
