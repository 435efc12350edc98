"""Optional features of a server; routes that need a disabled one respond with 501."""

from __future__ import annotations

from enum import Enum, auto

from oxibonsai.server.registry.registry import ModelRegistry
from oxibonsai.server.settings import Settings


class Feature(Enum):
    """A feature that operations may need."""

    GENERATION = auto()  # a model that generates text, not only embeddings
    RANKING = auto()  # a model that scores texts
    IMAGES = auto()  # a model that draws
    METRICS = auto()
    SLOTS = auto()
    SAVED_SLOTS = auto()


def features_of(settings: Settings, models: ModelRegistry) -> set[Feature]:
    """Return the enabled features, once the models of the start are loaded."""
    there = {
        Feature.GENERATION: models.generates,
        Feature.RANKING: models.ranks,
        Feature.IMAGES: settings.image_model is not None,
        Feature.METRICS: settings.metrics,
        Feature.SLOTS: settings.slots,
        Feature.SAVED_SLOTS: settings.slot_save_path is not None,
    }
    return {feature for feature, is_there in there.items() if is_there}
