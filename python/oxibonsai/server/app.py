"""The application factory: makes a WSGI application from settings and a backend."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from flask import request

from oxibonsai.mcp import McpServers, read_config
from oxibonsai.serial_queue import SerialQueue
from oxibonsai.server.access import (
    Callers,
    KeyRing,
    current_caller,
    current_owner,
    owner_of,
    register_access,
)
from oxibonsai.server.admin.features import features_of
from oxibonsai.server.admin.health import Metrics, health_blueprint, register_metrics, unready
from oxibonsai.server.admin.logs import register_logs
from oxibonsai.server.admin.openapi import openapi_blueprint
from oxibonsai.server.backend import Backend
from oxibonsai.server.circuit_breaker import CircuitMetrics
from oxibonsai.server.content_encoding import register_content_encoding
from oxibonsai.server.errors import register_errors
from oxibonsai.server.hosts import register_hosts, register_origins
from oxibonsai.server.lifecycle import Lifecycle, Phase
from oxibonsai.server.limits import PerCaller, RequestLimits, TokenLimits
from oxibonsai.server.lost_work import register_repeats
from oxibonsai.server.openai.models import models_blueprint
from oxibonsai.server.page import page
from oxibonsai.server.rate_limit import Buckets, Budgets, RateLimiter
from oxibonsai.server.registry.registry import ModelRegistry
from oxibonsai.server.schemas.request_warnings import register_warnings
from oxibonsai.server.server import Server
from oxibonsai.server.settings import Settings
from oxibonsai.server.stores import Store
from oxibonsai.server.stores.peers import Peers

# Endpoints that work while the model loads or the server drains.
_ALWAYS = ("health.", "metrics.", "page.")


def create_app(
    settings: Settings, backend: Backend | ModelRegistry, lifecycle: Lifecycle | None = None
) -> Server:
    """Create the application; only after the fork, since it imports the core, which starts threads.

    Args:
        settings: All settings.
        backend: The models, or a single one; ``load`` is called by the launcher, not here.
        lifecycle: Advanced by the launcher when the model is loaded and when to drain.

    Raises:
        RequestError: A file of API keys or of MCP servers can't be used, or the store's URL is invalid.
        StoreError, FormatError, UnsupportedError: The store, or what counts rates, can't be used.
        OxiBonsaiError: The image model can't be opened.
    """
    app = Server(__name__, static_folder=None)
    app.settings = settings
    app.lifecycle = lifecycle or Lifecycle()
    app.models = (
        backend
        if isinstance(backend, ModelRegistry)
        else ModelRegistry.of(settings, backend, app.lifecycle)
    )
    app.keys = KeyRing(settings.api_key, settings.api_key_file)
    mcp_servers = None
    if settings.mcp_servers_config is not None:
        mcp_servers = read_config(settings.mcp_servers_config)
    metrics = Metrics(app.lifecycle)
    app.store = Store(
        settings.store_url,
        settings.files_dir,
        shared=settings.shared_store,
        max_file_bytes=settings.max_file_bytes,
        max_total_bytes=int(settings.max_files_mb * 2**20),
    )
    app.peers = None
    if settings.shared_store:
        app.peers = Peers(settings.store_url, settings.port, app.lifecycle.fail)
    from oxibonsai.server.admin.operations import OPERATIONS
    from oxibonsai.server.generation_metrics import GenerationMetrics
    from oxibonsai.server.image_worker import ImageWorker
    from oxibonsai.server.inputs import LARGE_BYTES, register_inputs, take_turn
    from oxibonsai.server.pdf import PdfReader
    from oxibonsai.server.routes import register_routes

    app.models.metrics = GenerationMetrics(metrics.registry, app.models.pools)
    CircuitMetrics(metrics.registry, app.models.circuit_states)
    app.models.files = app.store.files
    most_waiting = settings.threads_for_http // 4  # each blocks a thread
    app.models.documents = PdfReader(SerialQueue("documents to read", most_waiting, current_owner))
    app.image_worker = ImageWorker(settings)
    app.config["MAX_CONTENT_LENGTH"] = settings.max_body_bytes
    app.config["MAX_FORM_MEMORY_SIZE"] = 2**20
    app.config["MAX_FORM_PARTS"] = 64
    app.json.sort_keys = False  # type: ignore[attr-defined]
    app.url_map.strict_slashes = False
    register_errors(app)
    register_warnings(app)
    # In this order: every response is logged and counted, then host and origin are checked, then the
    # API key, then whether the server is ready.
    register_logs(app, prompts=settings.log_prompts)
    register_repeats(app, metrics.registry)
    more = app.models.metrics.as_llamacpp
    register_metrics(app, metrics, more, served=settings.metrics)
    register_hosts(app, settings, app.keys)
    register_origins(app, settings.cors_origins)
    admins = KeyRing(settings.admin_key, settings.admin_key_file)
    app.callers = Callers(app.keys, admins)
    requests, app.models.tokens = _limits(settings, app.store)
    register_access(app, app.keys, requests, app.models.tokens, admins, app.callers)
    app.before_request(_readiness(app.lifecycle))
    register_content_encoding(app, settings.max_upload_bytes, LARGE_BYTES)
    app.large_requests = register_inputs(app, settings.threads_for_http // 4)
    # Not fewer than may wait for the engine: each wait here is short.
    app.long_texts = SerialQueue("long texts", settings.threads_for_http // 2, current_owner)
    app.store.before_large_objects(partial(take_turn, app.large_requests))
    app.register_blueprint(health_blueprint(app.lifecycle, app.store, app.models.circuit_states))
    app.register_blueprint(models_blueprint(app.models, app.image_worker.info))
    there = partial(features_of, settings, app.models)
    app.register_blueprint(openapi_blueprint(OPERATIONS, there))
    if settings.ui:
        app.register_blueprint(page)
    register_routes(app)
    # Last, since programs are started: nothing that is wrong above leaves one behind.
    app.mcp = None if mcp_servers is None else McpServers(mcp_servers)
    return app


def _counters(settings: Settings, store: Store) -> tuple[Buckets, Budgets]:
    """Return where rates and budgets are counted."""
    if settings.rate_limit_storage is not None:
        from oxibonsai.server.stores.redis_counters import RedisBuckets, RedisBudgets, RedisServer

        server = RedisServer(settings.rate_limit_storage)
        return RedisBuckets(server), RedisBudgets(server)
    has_database = settings.store_url.startswith("postgresql")
    return store.rate_limits() if has_database else RateLimiter(), store.budgets()


def _limits(settings: Settings, store: Store) -> tuple[RequestLimits, TokenLimits]:
    """Return the limits of requests and tokens that the settings name."""
    buckets, budgets = _counters(settings, store)
    burst = settings.rate_burst
    requests = RequestLimits(
        buckets,
        PerCaller(
            settings.rate_limit and settings.rate_limit.holding(burst),
            {owner_of(k): r.holding(burst) for k, r in settings.per_key_rate_limits.items()},
            settings.anonymous_rate_limit and settings.anonymous_rate_limit.holding(burst),
        ),
        settings.global_rate_limit and settings.global_rate_limit.holding(burst),
    )
    tokens = TokenLimits(
        buckets,
        budgets,
        PerCaller(
            settings.token_rate_limit and settings.token_rate_limit.holding_a_unit(),
            {
                owner_of(k): r.holding_a_unit()
                for k, r in settings.per_key_token_rate_limits.items()
            },
        ),
        PerCaller(
            settings.token_budget,
            {owner_of(k): budget for k, budget in settings.per_key_token_budgets.items()},
        ),
        current_caller,
    )
    return requests, tokens


def _readiness(lifecycle: Lifecycle) -> Callable[[], None]:
    def check() -> None:
        if lifecycle.phase != Phase.READY and not (request.endpoint or "").startswith(_ALWAYS):
            raise unready(lifecycle)

    return check
