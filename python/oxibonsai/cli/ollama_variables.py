"""Ollama's environment variables, as ``oxibonsai serve`` reads them: after its own and its file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from oxibonsai.errors import RequestError

_PORT = 11434
_NO = ("", "0", "false")
Read = Callable[[str], dict[str, Any]]


class Variable(NamedTuple):
    """The effect of a variable.

    Attributes:
        text: For the documentation, and behind "has no effect: " where it sets nothing.
        read: Makes settings of its value; None: there is nothing to set.
        is_so: It asks for what is so anyway, unless it is off; nothing needs to be said.
    """

    text: str
    read: Read | None = None
    is_so: bool = False


def _host(value: str) -> dict[str, Any]:
    """Read ``host``, ``host:port``, ``:port`` or an address with http:// before it."""
    place = value.partition("://")[2] or value
    place = place.partition("/")[0]
    if place.startswith("["):
        host, _, port = place[1:].partition("]")
        port = port.removeprefix(":")
    elif place.count(":") > 1:
        host, port = place, ""
    else:
        host, _, port = place.partition(":")
    return {"host": host or "127.0.0.1", "port": port or _PORT}


def _seconds(value: str) -> dict[str, Any]:
    from oxibonsai.server.ollama.request import keep_alive_seconds

    seconds = keep_alive_seconds(value)
    return {"sleep_idle_seconds": -1 if seconds is None or seconds < 0 else seconds}


def _setting(name: str) -> Variable:
    return Variable(f"`--{name.replace('_', '-')}`", lambda value: {name: value})


_NO_GPU_CHOICE = "`--device` names the devices"
VARIABLES: dict[str, Variable] = {
    "OLLAMA_HOST": Variable(f"`--host` and `--port`, which is {_PORT} where it names none", _host),
    "OLLAMA_NUM_PARALLEL": _setting("parallel"),
    "OLLAMA_CONTEXT_LENGTH": _setting("ctx_size"),
    "OLLAMA_KV_CACHE_TYPE": _setting("kv_type"),
    "OLLAMA_KEEP_ALIVE": Variable("`--sleep-idle-seconds`", _seconds),
    "OLLAMA_MAX_LOADED_MODELS": _setting("models_max"),
    "OLLAMA_MAX_QUEUE": _setting("queue_size"),
    "OLLAMA_ORIGINS": _setting("cors_origins"),
    "OLLAMA_DEBUG": Variable("`--verbose`", lambda value: {"verbose": value.lower() not in _NO}),
    "OLLAMA_DEBUG_LOG_REQUESTS": Variable(
        "`--log-prompts`", lambda value: {"log_prompts": value.lower() not in _NO}
    ),
    "OLLAMA_FLASH_ATTENTION": Variable("there is one attention, in tiles", is_so=True),
    "OLLAMA_NO_CLOUD": Variable("models run on this machine alone", is_so=True),
    "OLLAMA_NOPRUNE": Variable("nothing that was downloaded is deleted", is_so=True),
    "OLLAMA_SCHED_SPREAD": Variable(_NO_GPU_CHOICE),
    "OLLAMA_GPU_OVERHEAD": Variable(_NO_GPU_CHOICE),
    "OLLAMA_IGPU_ENABLE": Variable(_NO_GPU_CHOICE),
    "OLLAMA_VULKAN": Variable(_NO_GPU_CHOICE),
    "OLLAMA_LLM_LIBRARY": Variable("`OXIBONSAI_ISA` chooses the processor's instructions"),
    "OLLAMA_MODELS": Variable("`--models-dir` names a folder of GGUF files"),
    "OLLAMA_GO_TEMPLATE": Variable("templates are Jinja: `--chat-template-file`"),
    "OLLAMA_LOAD_TIMEOUT": Variable("a model may take as long as it needs to load"),
    "OLLAMA_MAX_TRANSFER_STREAMS": Variable("the hub's library chooses how it downloads"),
    "OLLAMA_REMOTES": Variable("models run on this machine alone"),
    "OLLAMA_AUTH": Variable("`--api-key` guards the server"),
    "OLLAMA_NOHISTORY": Variable("the server keeps no typed lines"),
    "OLLAMA_EDITOR": Variable("the server opens no editor"),
}


def ollama_settings(
    environ: Mapping[str, str],
) -> tuple[dict[str, Any], dict[str, str], list[str]]:
    """Return the settings that Ollama's variables ask for.

    Returns:
        The settings by name, the variable that each comes from, and what to say of other variables.

    Raises:
        RequestError: A value that is none; the message names the variable.
    """
    settings: dict[str, Any] = {}
    origins: dict[str, str] = {}
    notices = []
    for name, variable in VARIABLES.items():
        value = environ.get(name, "").strip()
        if not value:
            continue
        if variable.read is not None:
            try:
                found = variable.read(value)
            except RequestError as e:
                raise RequestError(f"{name}: {e}") from e
            settings |= found
            origins |= dict.fromkeys(found, name)
        elif not variable.is_so or value.lower() in _NO:
            notices.append(f"{name} has no effect: {variable.text.replace('`', '')}")
    return settings, origins, notices
