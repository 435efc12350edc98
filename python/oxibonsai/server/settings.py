"""All settings of the server, with flags, ranges and defaults.

A field's flag is ``--field-name`` (plus the aliases of :class:`Flag`), its environment variable
``OXIBONSAI_`` and the name in capitals, its key in the TOML file ``field-name`` or ``field_name``.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    model_validator,
)
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from oxibonsai.device_names import DEVICE_PATTERN

ENV_PREFIX = "OXIBONSAI_"
_NAME = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\.?")


@dataclass(frozen=True)
class Flag:
    """Further spellings of a field's flag, for compatibility with llama-server."""

    aliases: tuple[str, ...] = ()


def _split(value: Any) -> Any:
    """Splits ``a,b`` into two items; the items of a sequence may contain commas too."""
    parts = value.split(",") if isinstance(value, str) else value
    if isinstance(parts, (list, tuple)) and all(isinstance(p, str) for p in parts):
        return [item.strip() for p in parts for item in p.split(",") if item.strip()]
    return parts


def _check_names(names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        if name != "*" and not _NAME.fullmatch(name):
            raise ValueError(f"'{name}' is not a host name: give it without scheme, port and path")
    return names


def _check_preset(name: str) -> str:
    # Imported here for a process that only starts others, which needs no core.
    from oxibonsai.sampling import preset

    preset(name)
    return name


def _switch(value: Any) -> Any:
    """Accepts llama-server's words for on and off, in addition to pydantic's."""
    words = {"enabled": True, "disabled": False, "": False}
    return words.get(value.strip().lower(), value) if isinstance(value, str) else value


# What a preset decides.
_SAMPLING = (
    "temperature", "top_k", "top_p", "min_p", "repetition_penalty", "repetition_window",
    "presence_penalty", "frequency_penalty",
)  # fmt: skip

# An environment variable holds a list as comma-separated words, not as JSON.
Names = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split)]
Paths = Annotated[tuple[Path, ...], NoDecode, BeforeValidator(_split)]
Switch = Annotated[bool, BeforeValidator(_switch)]


DEFAULT_PORT = 8080


def default_state_dir(port: int = DEFAULT_PORT) -> Path:
    """``$XDG_STATE_HOME/oxibonsai``, else ``~/.local/state/oxibonsai``.

    On a port other than the default, its folder ``port-N``: servers of one user share no state.
    """
    base = os.environ.get("XDG_STATE_HOME")
    folder = (Path(base) if base else Path.home() / ".local" / "state") / "oxibonsai"
    return folder if port == DEFAULT_PORT else folder / f"port-{port}"


class ModelSettings(BaseModel):
    """Settings of the model and the engine; read by the backend."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    model: Annotated[str | None, Flag(("-m",))] = Field(
        None,
        description="A GGUF file, a folder, hf:org/repo[:file or quant], https://..., pip:package, "
        "seedling-ternary or seedling-1bit. Default: OXIBONSAI_MODEL, else seedling-ternary.",
    )
    alias: Annotated[Names, Flag(("-a",))] = Field(
        (), description="Names of the model for clients; the first is its id."
    )
    tags: Names = Field((), description="Labels of the model that /v1/models lists.")
    quant_type: str = Field(
        "", description="Layout of type-42 tensors if the file does not specify it."
    )
    device: Annotated[str | None, Flag(("-dev",))] = Field(
        None,
        pattern=f"^({DEVICE_PATTERN})$",
        description="cpu, cuda, cuda:1, metal, or auto: a GPU if one can run the model and gives the same "
        "bytes, else the CPU. cuda:0,cuda:1: these cards share the layers. Default: cpu.",
    )
    gpu_layers: Annotated[int | None, Flag(("-ngl", "--n-gpu-layers"))] = Field(
        None,
        ge=0,
        description="Number of layers that run on the GPU, counted from the last; the output counts as one "
        "more. The CPU runs the others. Default: all.",
    )
    threads: Annotated[int | None, Flag(("-t",))] = Field(
        None, ge=1, le=1024, description="Worker threads of the engine. Default: all usable cores."
    )
    ctx_size: Annotated[int | None, Flag(("-c", "--n-ctx"))] = Field(
        None,
        ge=1,
        description="Context size in tokens. Default: the model's, reduced to fit the memory.",
    )
    kv_type: Annotated[
        Literal["f32", "f16", "q8_0", "q4_0"] | None, Flag(("--cache-type-k", "-ctk"))
    ] = Field(None, description="Type of cached keys and values. Default: chosen by size.")
    parity: Literal["quick", "full", "off"] = Field(
        "quick",
        description="How thoroughly kernels are checked against the scalar tier at startup.",
    )
    load_as: str | None = Field(
        None,
        description="Quantize the model to this type when it is loaded, as oxibonsai quantize does; the "
        "result is kept for the next time.",
    )
    packed_cache: Switch = Field(False, description="Keep packed weights on disk between starts.")
    parallel: Annotated[int, Flag(("-np",))] = Field(
        4, ge=1, le=1024, description="Sequences that run at the same time on each replica."
    )
    ctx_checkpoints: Annotated[int | None, Flag(("-ctxcp",))] = Field(
        None, ge=0, le=4096,
        description="Snapshots of recurrent state kept for each of these, from which equal beginnings "
        "are continued. Default: those that fit in 1 GiB. Only for models with such state.",
    )  # fmt: skip
    replicas: int = Field(
        1, ge=1, le=64,
        description="Engines that share one set of weights and divide the threads. One is usually "
        "fastest, since a step reads the weights once for all its sequences.",
    )  # fmt: skip
    batch_size: Annotated[int, Flag(("-b",))] = Field(
        2048,
        ge=1,
        description="Accepted as llama-server does, without effect: the engine sizes its steps itself.",
    )
    n_predict: Annotated[int, Flag(("-n", "--predict", "--max-tokens"))] = Field(
        -1, ge=-1, description="Default limit of new tokens; -1: up to the context size."
    )
    seed: Annotated[int, Flag(("-s",))] = Field(
        -1, ge=-1, lt=2**64, description="Default seed; -1: random."
    )
    preset: Annotated[str, AfterValidator(_check_preset)] | None = Field(
        None,
        description="Default sampling in place of llama-server's, as `oxibonsai run --preset`. Settings "
        "that are given themselves, like --temperature, take precedence.",
    )
    temperature: Annotated[float, Flag(("--temp",))] = Field(0.8, ge=0, le=100, description=(
        "Default temperature."
    ))  # fmt: skip
    top_k: int = Field(40, ge=0, description="Default top_k; 0: all.")
    top_p: float = Field(0.95, gt=0, le=1, description="Default top_p.")
    min_p: float = Field(0.05, ge=0, le=1, description="Default min_p.")
    repetition_penalty: Annotated[float, Flag(("--repeat-penalty",))] = Field(
        1.0, gt=0, description="Default repetition_penalty; 1: none."
    )
    repetition_window: Annotated[int, Flag(("--repeat-last-n",))] = Field(
        64, ge=-1, lt=2**31, description="Default number of last tokens it looks at; -1: all."
    )
    presence_penalty: float = Field(0.0, ge=-2, le=2, description="Default presence_penalty.")
    frequency_penalty: float = Field(0.0, ge=-2, le=2, description="Default frequency_penalty.")
    jinja: Switch = Field(True, description="Use the model's chat template, not ChatML.")
    chat_template: str | None = Field(
        None, description="A Jinja chat template in place of the model's, or chatml."
    )
    chat_template_file: Path | None = Field(None, description="A file with a chat template.")
    reasoning_format: Literal["auto", "none", "deepseek", "deepseek-legacy"] = Field(
        "auto",
        description="Where reasoning is returned: none leaves it in the content, the others put it into "
        "reasoning_content.",
    )
    reasoning: Literal["auto", "on", "off"] = Field(
        "auto", description="Default of whether a model reasons; auto: the model's own default."
    )
    reasoning_budget: int = Field(
        -1, ge=-1, description="Default limit of reasoning tokens; -1: no limit."
    )
    embedding: Annotated[Switch, Flag(("--embeddings",))] = Field(
        False, description="Serve embeddings only."
    )
    pooling: Literal["none", "mean", "cls", "last", "max"] | None = Field(
        None,
        description="Pooling of embeddings; none: texts have no vector. Default: the model's own.",
    )
    lora: Names = Field(
        (), description="LoRA adapters to add: GGUF files, or folders that PEFT saved."
    )
    lora_scaled: Names = Field(
        (), description="LoRA adapters with a scale, as FILE:SCALE; added after those of --lora."
    )
    kv_pressure: Literal["balanced", "aggressive"] | None = Field(
        None,
        description="Let new sequences have keys and values of smaller types while memory for them is "
        "short; their text then depends on the load. Not with --kv-type.",
    )
    context_shift: Switch = Field(
        False, description="When the context is full, leave out its middle and go on."
    )
    keep: int = Field(4, ge=0, description="First tokens that stay in a context shift.")
    speculate: Literal["off", "ngram", "mtp"] = Field(
        "off",
        description="Draft tokens, which the model then checks: ngram repeats what followed the last "
        "tokens earlier in the text, mtp uses the model's own layer for multi-token prediction. The "
        "text is the same.",
    )
    draft_model: Annotated[str | None, Flag(("-md", "--model-draft"))] = Field(
        None, description="A smaller model with the same vocabulary that drafts tokens."
    )
    draft_length: Annotated[int | None, Flag(("--draft-max",))] = Field(
        None,
        ge=1,
        le=64,
        description="Tokens in a draft. Default: adapted to how many are accepted.",
    )
    draft_threshold: Annotated[float, Flag(("--draft-p-min",))] = Field(
        0.5,
        ge=0,
        le=1,
        description="A draft ends at the first token with a lower probability than this.",
    )
    lora_modules: Names = Field(
        (),
        description="LoRA adapters for requests that name them (MODEL:NAME), each as NAME=SOURCE.",
    )
    lora_dir: Path | None = Field(
        None,
        description="Folder of LoRA adapters for requests that name them; each is opened when first named.",
    )
    max_loras: int = Field(
        64, ge=1, le=1024, description="Maximum number of adapters that are open at the same time."
    )
    mmproj: Annotated[str | None, Flag(("-mm",))] = Field(
        None,
        description="The model's vision tower: an mmproj GGUF file, hf:org/repo:FILE, https://... or a "
        "folder of safetensors. Default: one beside the model or in its repository that fits it.",
    )
    mmproj_auto: Annotated[Switch, Flag((" /--no-mmproj",))] = Field(
        True, description="Look for a vision tower if --mmproj names none."
    )
    image_min_tokens: int | None = Field(
        None, ge=1, description="Minimum number of tokens of a picture, for models that read pictures in "
        "their original size. Default: the model's own bound.",
    )  # fmt: skip
    image_max_tokens: int | None = Field(
        None,
        ge=1,
        description="Maximum number of tokens of a picture. Default: the model's own bound.",
    )
    max_images: int = Field(32, ge=1, description="Maximum number of pictures in a conversation.")
    allow_image_urls: Switch = Field(
        False,
        description="Fetch the pictures of http:// and https:// addresses in requests, from public hosts "
        "only. Otherwise clients must send data: URLs.",
    )
    slot_save_path: Path | None = Field(
        None, description="Folder for saved slots; enables POST /slots/{id}."
    )

    @model_validator(mode="before")
    @classmethod
    def _fill_in_preset(cls, values: dict[str, Any]) -> dict[str, Any]:
        name = values.get("preset")
        if name is None:
            return values
        from oxibonsai.sampling import PRESETS

        chosen = PRESETS.get(str(name))
        if chosen is None:  # refused by the field's own check
            return values
        return {**{name: getattr(chosen, name) for name in _SAMPLING}, **values}


class Settings(ModelSettings, BaseSettings):
    """All settings; made by :func:`oxibonsai.server.setting_sources.load_settings`."""

    model_config = SettingsConfigDict(env_prefix=ENV_PREFIX)

    host: Names = Field(("127.0.0.1",), description="Addresses to listen on; one or several.")
    port: int = Field(DEFAULT_PORT, ge=0, le=65535, description="TCP port; 0 chooses a free one.")
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
    rate_limit: float | None = Field(
        None,
        gt=0,
        description="Requests per second for each API key, or for each client address without keys. "
        "Default: no limit.",
    )
    rate_burst: int = Field(20, ge=1, description="Requests that each of them may send in a burst.")
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
    http_threads: int | None = Field(
        None,
        ge=2,
        le=4096,
        description="HTTP threads. Default: max(32, 4 x parallel x replicas + 16) plus twice the queue "
        "size.",
    )
    require_model: Switch = Field(
        False, description="Reject requests that name no model, as OpenAI does."
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
        description="The image model of /v1/images: a folder, hf:org/repo or a GGUF file.",
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
    log_file: Path | None = Field(None, description="Write the log to this file instead of stderr.")
    log_max_mb: float = Field(
        64, gt=0, description="Maximum size of a log file in MiB; three files are kept."
    )
    log_prompts: Switch = Field(False, description="Write request bodies to the log.")
    verbose: Annotated[Switch, Flag(("-v",))] = Field(
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
