"""Published models: settings that their makers recommend, and their files."""

from oxibonsai.known_models.families import EFFORTS, FAMILIES, NO_EFFORT, ModelFamily
from oxibonsai.known_models.recommendation import Recommendation, Setting, recommend
from oxibonsai.known_models.rotation import missing_rotation

__all__ = [
    "EFFORTS",
    "FAMILIES",
    "NO_EFFORT",
    "ModelFamily",
    "Recommendation",
    "Setting",
    "missing_rotation",
    "recommend",
]
