"""All settings of the server, with flags, ranges and defaults; those of models are in model_settings.py.

A field's flag is ``--field-name`` (plus the aliases of :class:`Flag`), its environment variable
``OXIBONSAI_`` and the name in capitals, its key in the TOML file ``field-name`` or ``field_name``.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from oxibonsai.files.cache_folder import state_folder
from oxibonsai.files.platform import HAS_FORK
from oxibonsai.server.model_settings import Flag, ModelSettings, Names, Paths, Switch, json_object
from oxibonsai.server.rate_limit import Rate

ENV_PREFIX = "OXIBONSAI_"
_NAME = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\.?")


def _check_names(names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        if name != "*" and not _NAME.fullmatch(name):
            raise ValueError(f"'{name}' is not a host name: give it without scheme, port and path")
    return names


def _read_rate(value: Any) -> Any:
    """Return a rate; a flag and a variable hold a table as JSON."""
    is_table = isinstance(value, str) and value.lstrip().startswith("{")
    return value if value is None else Rate.parse(json_object(value) if is_table else value)


RateLimit = Annotated[Rate | None, NoDecode, BeforeValidator(_read_rate)]
PerKeyRates = Annotated[
    dict[str, Annotated[Rate, BeforeValidator(Rate.parse)]], NoDecode, BeforeValidator(json_object)
]


def _read_budget(value: Any) -> Any:
    """Return a number of tokens a day; ``"1000000/day"`` says the same."""
    if isinstance(value, bool):
        raise ValueError("it is no number of tokens: give one, such as 1000000/day")
    text = value.strip().removesuffix("day").rstrip() if isinstance(value, str) else None
    return value if text is None else text.removesuffix("/").rstrip()


Budget = Annotated[int, BeforeValidator(_read_budget), Field(ge=1, le=10**15)]
PerKeyBudgets = Annotated[dict[str, Budget], NoDecode, BeforeValidator(json_object)]


DEFAULT_PORT = 8080


def default_state_dir(port: int = DEFAULT_PORT) -> Path:
    """Return the user's folder of oxibonsai's state, ``~/.local/state/oxibonsai`` on Linux.

    On a port other than the default, its folder ``port-N``: servers of one user share no state.
    """
    folder = state_folder()
    return folder if port == DEFAULT_PORT else folder / f"port-{port}"


class Settings(ModelSettings, BaseSettings):
    """All settings; made by :func:`oxibonsai.server.setting_sources.load_settings`."""

    model_config = SettingsConfigDict(env_prefix=ENV_PREFIX)

    host: Names = Field(("127.0.0.1",), description="Addresses to listen on; one or several.")
    port: int = Field(DEFAULT_PORT, ge=0, le=65535, description="TCP port; 0 chooses a free one.")
    http_server: Literal["gunicorn", "waitress"] = Field(
        "gunicorn" if HAS_FORK else "waitress",
        description="HTTP server: gunicorn replaces a process that fails and has limits for slow clients; "
        "waitress is one process and runs where there is no fork. Default: gunicorn, waitress on Windows.",
    )
    allow_public: Switch = Field(
        False, description="Allow other machines to connect although no API key is set."
    )
    api_key: Names = Field(
        (), repr=False, description="A key that clients must send; may be repeated."
    )
    api_key_file: Paths = Field(
        (), description="Files of API keys, one per line; reloaded when they change."
    )
    admin_key: Names = Field(
        (),
        repr=False,
        description="A key for routes that change the server for all keys: loading, unloading, pulling and "
        "deleting models, keep_alive, scales of adapters. It is an API key, too. Default: any caller may.",
    )
    admin_key_file: Paths = Field(
        (), description="Files of such keys, one per line; reloaded when they change."
    )
    allowed_hosts: Annotated[Names, Flag(("--allowed-host",)), AfterValidator(_check_names)] = (
        Field(
            (),
            description="Further host names that a server without API keys accepts, besides localhost, "
            "IP addresses and names in --host; * for all.",
        )
    )
    cors_origins: Names = Field(
        (),
        description="Origins of web pages that may call the server (CORS); localhost for pages of this "
        "machine, * for all.",
    )
    rate_limit: RateLimit = Field(
        None,
        description="Requests per second for each API key, or for each client address without keys; "
        "also N/second, N/minute, N/hour or N/day. Default: no limit.",
    )
    per_key_rate_limits: PerKeyRates = Field(
        default_factory=dict,
        repr=False,
        description="Rates of single API keys in place of --rate-limit: a table, or a JSON object, with "
        "a rate for each key, or its capacity and rate.",
    )
    anonymous_rate_limit: RateLimit = Field(
        None,
        description="Rate of all callers together that have no API key, or one that is not known. "
        "Default: --rate-limit.",
    )
    rate_burst: int = Field(
        20,
        ge=1,
        description="Requests that each of them may send in a burst, where a rate has no capacity.",
    )
    global_rate_limit: RateLimit = Field(
        None,
        description="Rate of all callers together, besides their own. Default: no limit.",
    )
    token_rate_limit: RateLimit = Field(
        None,
        description="Tokens per second of prompts and answers for each API key, or for each client address "
        "without keys; 100000/minute lets so many in at once. Default: no limit.",
    )
    per_key_token_rate_limits: PerKeyRates = Field(
        default_factory=dict,
        repr=False,
        description="Rates of tokens of single API keys in place of --token-rate-limit, written as "
        "--per-key-rate-limits.",
    )
    token_budget: Budget | None = Field(
        None,
        description="Tokens a day (UTC) of prompts and answers for each API key, such as 1000000/day; "
        "callers without a key share one budget. Default: no limit.",
    )
    per_key_token_budgets: PerKeyBudgets = Field(
        default_factory=dict,
        repr=False,
        description="Budgets of single API keys in place of --token-budget: a table, or a JSON object.",
    )
    rate_limit_storage: str | None = Field(
        None,
        repr=False,
        description="Redis server that counts rates and budgets for all servers that name it: "
        "redis://host:6379/0, rediss://... or unix://... Default: PostgreSQL if --store names it, else "
        "memory, and the store for budgets.",
    )
    max_body_mb: float = Field(
        16, gt=0, le=4096, description="Largest request body in MiB, except file uploads."
    )
    max_file_mb: float = Field(512, gt=0, description="Largest uploaded file in MiB.")
    max_files_mb: float = Field(
        8192,
        gt=0,
        description="Total size of all files of one API key in MiB; also of all objects that "
        "it has stored.",
    )
    read_timeout: float = Field(
        10, gt=0, le=3600,
        description="Seconds for a request's header and first bytes; a body adds 1 s per 32 KiB.",
    )  # fmt: skip
    write_timeout: float = Field(
        30,
        gt=0,
        le=3600,
        description="Seconds that a client may take to read a piece of a response.",
    )
    keep_alive: int = Field(
        5, ge=0, le=3600, description="Seconds that an idle connection stays open."
    )
    drain_timeout: float = Field(
        30, gt=0, le=3600, description="Seconds for running requests to finish after SIGTERM."
    )
    max_connections: int = Field(
        1000, ge=8, le=100_000, description="Maximum number of open connections."
    )
    http_threads: Annotated[int | None, Flag(("--threads-http",))] = Field(
        None,
        ge=2,
        le=4096,
        description="HTTP threads. Default: max(32, 4 x parallel x replicas + 16) plus twice the queue "
        "size.",
    )
    require_model: Switch = Field(
        False, description="Reject requests that name no model, as OpenAI does."
    )
    min_free_mb: int = Field(
        128,
        ge=0,
        description="Memory in MiB that the machine, or the limit of its control group, must have left "
        "for a text to be begun; else 503. 0: whatever is left.",
    )
    queue_size: int = Field(64, ge=0, description="Requests that may wait for a free sequence.")
    batch_parallel: int | None = Field(
        None,
        ge=1,
        le=1024,
        description="Requests of batches that run at the same time. Default: half of the sequences, at "
        "least one, so that other requests find a free one.",
    )
    max_batches: int = Field(
        16, ge=1, le=10_000, description="Batches of one API key that have not ended."
    )
    image_model: str | None = Field(
        None,
        description="The image model of /v1/images: a folder, hf:org/repo, a GGUF file or "
        "seedling-picture.",
    )
    image_queue: int = Field(
        8, ge=0, le=1024, description="Pictures that may wait to be generated."
    )
    image_max_pixels: int = Field(
        1024 * 1024,
        ge=256,
        le=2048 * 2048,
        description="Pixels of the largest picture that may be generated.",
    )
    image_max_work: float = Field(
        64.0,
        gt=0,
        description="Work of one image request: megapixels of a picture and its references, times "
        "steps, times pictures. More is refused.",
    )
    share_prefix_cache: Switch = Field(
        False,
        description="Share the prefix cache between API keys: common prefixes are then computed once, "
        "but cached_tokens and response times reveal what other keys have sent.",
    )
    metrics: Switch = Field(False, description="Serve Prometheus metrics at /metrics.")
    slots: Switch = Field(True, description="Serve the state of the slots at /slots.")
    slots_text: Switch = Field(
        False,
        description="Show a slot's prompt and text at /slots, to the API key that sent the request.",
    )
    models: Names = Field(
        (),
        description="Several models to serve, each as SOURCE or NAME=SOURCE; loaded when a request names "
        "them.",
    )
    models_dir: Path | None = Field(
        None,
        description="Folder of models to serve: GGUF files, and subfolders with one or with "
        "safetensors.",
    )
    models_preset: Path | None = Field(
        None,
        description="Settings of single models: TOML with a table for each, or llama-server's INI.",
    )
    allow_pull: Switch = Field(
        False,
        description="Let clients download models (POST /api/pull), which are then served as well.",
    )
    models_max: int = Field(
        4, ge=0, description="Maximum number of models loaded at the same time; 0: no limit."
    )
    models_memory_gb: float | None = Field(
        None,
        gt=0,
        description="Maximum memory in GiB for loaded models, with full caches; the least recently used "
        "are unloaded. Default: no limit.",
    )
    models_autoload: Switch = Field(
        True,
        description="Load a model when a request names it; if off, only POST /models/load does.",
    )
    sleep_idle_seconds: float = Field(
        -1, ge=-1, description="Unload a model that has not been used for this long; -1: never."
    )
    reload_changed: Switch = Field(
        True, description="Reload a model when its GGUF file has changed."
    )
    mcp_servers_config: Path | None = Field(
        None,
        description="JSON file of MCP servers, as llama.cpp reads it: /tools lists and calls their tools, "
        "the chat page offers them to the model and asks before each call. Where there are API keys, "
        "it needs --admin-key, and only these keys may call.",
    )
    ui: Annotated[Switch, Flag(("--webui",))] = Field(
        True, description="Serve the chat page at / and the page of all routes at /docs."
    )
    state_dir: Path = Field(
        default_factory=lambda values: default_state_dir(values.get("port", DEFAULT_PORT)),
        description="Folder of the store and uploaded files; not shared with other servers. Default: "
        "oxibonsai in the user's state folder, or port-N in it for a port other than 8080.",
    )
    store: str | None = Field(
        None,
        description="Database of stored objects: sqlite:///path or postgresql+psycopg://... "
        "Default: store.sqlite in the state folder.",
    )
    shared_store: Switch = Field(
        False,
        description="Share the database with other servers, replicas behind one address: any of them "
        "answers for what another has stored. Needs PostgreSQL.",
    )
    retention_days: float = Field(
        30, gt=0, description="Days that stored responses, chat completions and batches are kept."
    )
    log_file: Path | None = Field(
        None, description="Write the log to this file instead of stderr; - is stdout."
    )
    log_max_mb: float = Field(
        64, gt=0, description="Maximum size of a log file in MiB; three files are kept."
    )
    log_prompts: Switch = Field(False, description="Write request bodies to the log.")
    verbose: Annotated[Switch, Flag(("-v", "--log-verbose"))] = Field(
        False, description="Log at level debug; add __verbose to responses."
    )

    @property
    def threads_for_http(self) -> int:
        """Number of HTTP threads: each running or waiting request blocks one, others need free ones."""
        least = max(32, 4 * self.parallel * self.replicas + 16)
        # A key has its fair share of the queue even if other keys have filled it.
        return self.http_threads or least + 2 * self.queue_size

    @property
    def threads_for_batches(self) -> int:
        """Number of requests of batches that run at the same time."""
        return self.batch_parallel or max(1, self.parallel * self.replicas // 2)

    @property
    def store_url(self) -> str:
        """URL of the database; by default a file in the state folder."""
        return self.store or f"sqlite:///{self.state_dir / 'store.sqlite'}"

    @property
    def store_file(self) -> Path | None:
        """The file of an SQLite database; None for PostgreSQL."""
        kind, _, name = self.store_url.partition(":///")
        name = name.partition("?")[0]
        is_file = kind.startswith("sqlite") and name not in ("", ":memory:")
        return Path(name) if is_file else None

    @property
    def files_dir(self) -> Path:
        """Folder of the contents of uploaded files."""
        return self.state_dir / "files"

    @property
    def max_body_bytes(self) -> int:
        """Largest request body, except for file uploads."""
        return int(self.max_body_mb * 2**20)

    @property
    def max_file_bytes(self) -> int:
        """Largest uploaded file."""
        return int(self.max_file_mb * 2**20)

    @property
    def max_upload_bytes(self) -> int:
        """Largest request body of all: a file and the form around it."""
        return max(self.max_body_bytes, self.max_file_bytes + 2**20)
