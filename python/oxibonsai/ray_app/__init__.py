"""Replicas of the server on a Ray cluster: ``serve run oxibonsai.ray_app:build model=...``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ray.serve import Application


def build(args: Mapping[str, Any]) -> Application:
    """Return the application of one model, or of the models of one server, for Ray Serve.

    Args:
        args: Settings of ``oxibonsai serve`` by the names of their flags, with dashes or underscores,
            and those of :class:`~oxibonsai.ray_app.options.ScaleOptions`.

    Raises:
        RequestError: An unknown or invalid setting, or several replicas without a store that they
            can share.
    """
    from oxibonsai.ray_app.application import make_application

    return make_application(args)
