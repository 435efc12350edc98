"""The arguments of ``build``: how many replicas, and the settings of each one's server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from typing_extensions import Self

from oxibonsai.errors import RequestError
from oxibonsai.server.setting_sources import load_settings
from oxibonsai.server.settings import Settings

# What Ray's proxy does in the place of the server, and where Ray is told.
_RAYS_OWN = {
    "host": "http_options.host",
    "port": "http_options.port",
    "keep_alive": "http_options.keep_alive_timeout_s",
    "read_timeout": "http_options.request_timeout_s",
    "write_timeout": "http_options.request_timeout_s",
    "max_connections": "a load balancer in front of Ray's proxies",
}


class ScaleOptions(BaseModel):
    """How many replicas there are.

    Attributes:
        min_replicas: Engines that always run.
        max_replicas: Most engines; more than one needs PostgreSQL as the store.
        target_ongoing_requests: Requests of an engine above which there will be another one. Default:
            ``parallel``, what it runs at once.
        autoscaling: Further fields of Ray's ``AutoscalingConfig``, ``upscale_delay_s`` say.
        fronts: Processes that choose a replica for each request, one on each node at best.
        affinity: Prefer the replica that was sent the beginning of a prompt; otherwise the less
            loaded one of two.
        max_imbalance: Requests that such a replica may have more than the one with the fewest.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    min_replicas: int = Field(1, ge=1)
    max_replicas: int = Field(1, ge=1)
    target_ongoing_requests: float | None = Field(None, gt=0)
    autoscaling: dict[str, Any] = {}
    fronts: int = Field(1, ge=1)
    affinity: bool = True
    max_imbalance: int = Field(4, ge=0)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.max_replicas < self.min_replicas:
            raise ValueError(f"min_replicas is {self.min_replicas}: give max_replicas as well")
        return self


def read_arguments(args: Mapping[str, Any]) -> tuple[ScaleOptions, Settings]:
    """Divide the arguments into the options of scaling and the server's settings.

    Raises:
        RequestError: An unknown argument, one that is Ray's own, or an invalid value.
    """
    given = {name.replace("-", "_"): value for name, value in args.items()}
    for name, instead in _RAYS_OWN.items():
        if name in given:
            raise RequestError(f"{name} is up to Ray's proxy: set {instead}")
    config = given.pop("config", None)
    scale = {n: given.pop(n) for n in tuple(given) if n in ScaleOptions.model_fields}
    for name in given:
        if name not in Settings.model_fields:
            raise RequestError(
                f"{name} is neither a setting of the server nor an option of scaling"
            )
    try:
        options = ScaleOptions.model_validate(scale)
    except ValidationError as e:
        first = e.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "scaling"
        raise RequestError(f"{where}: {first['msg'].removeprefix('Value error, ')}") from e
    settings = load_settings(given, config)
    if settings.store_url.startswith("postgresql"):
        # Also for one replica: an update starts the new one before the old one has ended.
        settings = settings.model_copy(update={"shared_store": True})
    elif options.max_replicas > 1:
        raise RequestError(refusal(settings))
    return options, settings


def refusal(settings: Settings) -> str:
    """Return why there can't be another replica."""
    return (
        f"more than one replica needs a store that all of them share, and {settings.store_url} "
        "belongs to one: set store to postgresql+psycopg://user:password@host/name"
    )
