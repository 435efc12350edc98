"""Puts fronts and replicas together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ray
from ray import serve
from ray.serve import Application
from ray.serve.config import AutoscalingConfig, RequestRouterConfig

from oxibonsai.errors import RequestError
from oxibonsai.ray_app.front import Front
from oxibonsai.ray_app.options import ScaleOptions, read_arguments
from oxibonsai.ray_app.replica import EngineReplica
from oxibonsai.server.settings import Settings

# Ray ends a replica that has not ended by itself so long after the drain timeout.
_PATIENCE_SECONDS = 5.0
# Of a front: it only waits for replicas.
_FRONT_REQUESTS = 10_000


def make_application(args: Mapping[str, Any]) -> Application:
    """See :func:`oxibonsai.ray_app.build`."""
    options, settings = read_arguments(args)
    if settings.threads is None:
        settings = settings.model_copy(update={"threads": _node_cpus()})
    engines = serve.deployment(EngineReplica).options(
        name="Engine",
        ray_actor_options=_resources(settings),
        autoscaling_config=_autoscaling(options, settings),
        max_ongoing_requests=settings.parallel * settings.replicas + settings.queue_size,
        graceful_shutdown_timeout_s=settings.drain_timeout + _PATIENCE_SECONDS,
        graceful_shutdown_wait_loop_s=0.5,
        health_check_period_s=2.0,
        **_routing(options),
    )
    front = serve.deployment(Front).options(
        name="Front",
        num_replicas=options.fronts,
        max_replicas_per_node=_most_fronts_of_a_node(options.fronts),
        ray_actor_options={"num_cpus": 0},
        max_ongoing_requests=_FRONT_REQUESTS,
        graceful_shutdown_timeout_s=settings.drain_timeout + _PATIENCE_SECONDS,
    )
    return front.bind(
        engines.bind(settings),
        max_body_bytes=settings.max_upload_bytes,
        share_prefix_cache=settings.share_prefix_cache,
        allow_public=bool(settings.api_key or settings.api_key_file or settings.allow_public),
    )


def _routing(options: ScaleOptions) -> dict[str, Any]:
    if not options.affinity:
        return {}
    config = RequestRouterConfig(
        request_router_class="oxibonsai.ray_app.router:PrefixAffinityRouter",
        request_router_kwargs={"max_imbalance": options.max_imbalance},
    )
    return {"request_router_config": config}


def _autoscaling(options: ScaleOptions, settings: Settings) -> AutoscalingConfig:
    target = options.target_ongoing_requests or settings.parallel * settings.replicas
    return AutoscalingConfig(
        min_replicas=options.min_replicas,
        max_replicas=options.max_replicas,
        target_ongoing_requests=target,
        **options.autoscaling,
    )


def _resources(settings: Settings) -> dict[str, float]:
    """Return a replica's resources on its node."""
    resources: dict[str, float] = {"num_cpus": float(settings.threads or 1)}
    if (settings.device or "").startswith("cuda"):
        resources["num_gpus"] = float(1 + (settings.device or "").count(","))
    return resources


def _most_fronts_of_a_node(fronts: int) -> int:
    """Return how many fronts a node gets at most, so that the loss of one does not end all."""
    return 1 if fronts == 1 else -(-fronts // len(_nodes()))


def _node_cpus() -> int:
    """Return threads of an engine that has a node for itself: the CPUs of the smallest one that has any."""
    cpus = [node["Resources"].get("CPU", 0) for node in _nodes()]
    found = [int(count) for count in cpus if count >= 1]
    if not found:
        raise RequestError("no node of the cluster has a CPU yet: give threads, those of a replica")
    return min(found)


def _nodes() -> list[dict[str, Any]]:
    return [node for node in ray.nodes() if node["Alive"]]
