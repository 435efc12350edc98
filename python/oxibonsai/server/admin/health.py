"""Health probes, and HTTP metrics in Prometheus' format, in a registry of their own."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from flask import Blueprint, Flask, Response, g, jsonify, request
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import generate_latest
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

from oxibonsai import __version__
from oxibonsai.server.access import public
from oxibonsai.server.circuit_breaker import State
from oxibonsai.server.errors import ApiError
from oxibonsai.server.lifecycle import Lifecycle, Phase
from oxibonsai.server.stores import Store


def health_blueprint(
    lifecycle: Lifecycle, store: Store, circuits: Callable[[], Iterable[tuple[str, State]]]
) -> Blueprint:
    """Serve ``/health`` (loaded and well), ``/livez`` (alive), ``/readyz`` (send requests here).

    Args:
        lifecycle: The phase.
        store: Where objects are stored.
        circuits: Returns the state of each model's circuit.
    """
    bp = Blueprint("health", __name__)

    @bp.get("/health")
    @bp.get("/v1/health")
    @public
    def health() -> Response:
        if lifecycle.phase == Phase.LOADING or lifecycle.failed:
            raise unready(lifecycle)
        open_ones = {n: s.name.lower() for n, s in circuits() if s is not State.CLOSED}
        return jsonify(status="ok", **({"circuits": open_ones} if open_ones else {}))

    @bp.get("/livez")
    @public
    def livez() -> Response:
        return jsonify(status="ok")

    @bp.get("/readyz")
    @public
    def readyz() -> Response:
        if lifecycle.phase != Phase.READY:
            raise unready(lifecycle)
        if store.failing:
            message = (
                "The store is not writable, so new objects can't be stored; see the server's log."
            )
            raise ApiError(503, message, code="store", retry_after=5)
        return jsonify(status="ok")

    return bp


def unready(lifecycle: Lifecycle) -> ApiError:
    """Return the error of a server that is not ready."""
    if lifecycle.failed:
        message = "The engine has failed: the server is restarting it."
        return ApiError(503, message, code="failed", retry_after=5)
    if lifecycle.phase == Phase.LOADING:
        return ApiError(503, "Loading model", code="loading", retry_after=1)
    return ApiError(503, "The server is shutting down.", code="draining", retry_after=5)


# Seconds, from a probe to a long generation.
_SECONDS = (0.001, 0.005, 0.02, 0.1, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600)


class Metrics:
    """The collectors; labels are routes, methods and statuses, never values that clients choose."""

    def __init__(self, lifecycle: Lifecycle) -> None:
        self.registry = CollectorRegistry()
        self.started = time.time()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        self.requests = Counter(
            "oxibonsai_http_requests", "HTTP responses.", ["method", "route", "status"],
            registry=self.registry,
        )  # fmt: skip
        self.seconds = Histogram(
            "oxibonsai_http_request_seconds", "From a request's arrival to the end of its response.",
            ["route"], buckets=_SECONDS, registry=self.registry,
        )  # fmt: skip
        self.running = Gauge(
            "oxibonsai_http_requests_running", "Requests in progress.", registry=self.registry
        )
        ready = Gauge("oxibonsai_ready", "1 while requests are accepted.", registry=self.registry)
        ready.set_function(lambda: float(lifecycle.phase == Phase.READY))
        build = Gauge("oxibonsai_build_info", "Version.", ["version"], registry=self.registry)
        build.labels(__version__).set(1)


def register_metrics(
    app: Flask, metrics: Metrics, more: Callable[[], str], *, served: bool
) -> None:
    """Count every request; serves ``/metrics`` if enabled, else an error that says how to enable it.

    Args:
        app: The application.
        metrics: The collectors.
        more: Returns further metrics in text format, appended to the response.
        served: Whether ``/metrics`` is enabled.
    """
    bp = Blueprint("metrics", __name__)

    @bp.get("/metrics")
    def show() -> Response:
        if not served:
            raise ApiError(501, "This server does not serve metrics: start it with --metrics.")
        response = Response(
            generate_latest(metrics.registry) + more().encode(), content_type=CONTENT_TYPE_LATEST
        )
        response.headers["Process-Start-Time-Unix"] = str(int(metrics.started))
        return response

    def begin() -> None:
        g.started = time.perf_counter()
        metrics.running.inc()

    def end(response: Response) -> Response:
        route = request.url_rule.rule if request.url_rule else "none"
        started = g.get("started")
        if started is None:
            return response
        # The method is chosen by the client: only known ones become a label.
        method = request.method if request.method in _METHODS else "other"
        metrics.requests.labels(method, route, str(response.status_code)).inc()

        @response.call_on_close
        def closed() -> None:
            metrics.running.dec()
            metrics.seconds.labels(route).observe(time.perf_counter() - started)

        return response

    app.before_request(begin)
    app.after_request(end)
    app.register_blueprint(bp)


_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
