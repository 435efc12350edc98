"""The arguments of ``from_pretrained``: transformers' own, honoured or explained."""

from __future__ import annotations

import os
import re
import warnings
from pathlib import Path
from typing import Any

from oxibonsai.errors import RequestError, SourceError, UnsupportedError
from oxibonsai.files.home_paths import with_home
from oxibonsai.sources import source_text

_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")
# Of a repository without GGUF: what a model is converted from.
_WEIGHTS = ("*.json", "*.safetensors", "*.model", "*.txt", "*.jinja")
_HUB_OPTIONS = ("revision", "token", "cache_dir", "local_files_only", "force_download")

# Arguments of transformers that change nothing here, because what they ask for is always so.
_ALWAYS_SO = (
    "trust_remote_code",  # no code of a repository is ever run
    "low_cpu_mem_usage",  # weights are mapped, not copied
    "use_safetensors",  # pickled weights are never read
    "weights_only",
    "use_fast",  # there is one tokenizer
    "padding_side",  # of the tokenizer alone
)
_REFUSED = {
    "quantization_config": "quantize the file: oxibonsai quantize",
    "load_in_8bit": "quantize the file: oxibonsai quantize IN OUT Q8_0",
    "load_in_4bit": "quantize the file: oxibonsai quantize IN OUT Q4_K_M",
    "config": "the configuration is the file's own",
    "state_dict": "weights are those of the file",
    "adapter_kwargs": "give adapters as lora=...",
    "variant": "name the file: gguf_file=...",
    "proxies": "set HTTP_PROXY and HTTPS_PROXY in the environment",
}


def locate(source: str | os.PathLike[str] | None, options: dict[str, Any]) -> str | None:
    """Return the source for :func:`oxibonsai.load` of a model that transformers would name so.

    Args:
        source: A file, a folder, ``org/repo`` or ``hf:org/repo``, ``pip:package``.
        options: Of ``from_pretrained``; those that say where the files are get taken out.

    Raises:
        SourceError: There is no such file, or the hub refuses.
        RequestError: The options contradict each other.
    """
    gguf_file, subfolder = options.pop("gguf_file", None), options.pop("subfolder", None)
    hub = {name: options.pop(name, None) for name in _HUB_OPTIONS}
    if source is None:
        if gguf_file or subfolder:
            raise RequestError("gguf_file and subfolder say where in a model's folder: name one")
        return None
    text = source_text(source)
    if _is_repository(text):
        text = f"hf:{text}"
    if text.startswith("hf:") and text.count(":") == 1:
        return _of_repository(text, gguf_file, subfolder, hub)
    # What concerns the hub concerns no local file: transformers takes it there, too.
    if gguf_file is None and subfolder is None:
        return text
    if text.startswith("pip:"):
        if subfolder:
            raise RequestError("subfolder goes with a folder or a repository, not with a package")
        return f"{text}:{gguf_file}"
    path = with_home(text) / (subfolder or "") / (gguf_file or "")
    if not path.exists():
        raise SourceError(f"{path} does not exist")
    return str(path)


def explain(options: dict[str, Any]) -> None:
    """Take transformers' arguments out of the options; say what an argument can't do here.

    Raises:
        UnsupportedError: One asks for what would change the result or the place of the model.
    """
    for name in _ALWAYS_SO:
        options.pop(name, None)
    for name, remedy in _REFUSED.items():
        if options.pop(name, None):
            raise UnsupportedError(f"{name} is not available: {remedy}")
    for name in ("dtype", "torch_dtype"):
        check_dtype(options.pop(name, None), name)
    device_map = options.pop("device_map", None)
    if device_map is not None:
        if "device" in options:
            raise RequestError("device and device_map exclude each other: give one of them")
        options["device"] = device_of(device_map)
    attention = options.pop("attn_implementation", None)
    if attention is not None:
        _warn(f"attn_implementation={attention!r} has no effect: the engine has one attention")


def check_dtype(dtype: Any, name: str) -> None:
    """Warn where a type is asked for that logits don't have."""
    text = str(dtype).removeprefix("torch.")
    if dtype is None or text in ("auto", "float32", "float"):
        return
    if text not in ("float16", "half", "bfloat16"):
        raise RequestError(f"{name} is {dtype!r}; it is a torch type or its name")
    _warn(
        f"{name}={text} has no effect: weights stay as the file has them, and logits are float32 "
        "(save_pretrained(dtype=...) writes a copy, load(kv_type='f16') sets the cache's type)"
    )


def device_of(device_map: Any) -> str:
    """Return the one device that transformers' argument names.

    Raises:
        UnsupportedError: It spreads the model over several.
    """
    places = set(device_map.values()) if isinstance(device_map, dict) else {device_map}
    if len(places) != 1:
        raise UnsupportedError(
            f"device_map is {device_map!r}: name the cards that "
            "share a model with device='cuda:0,cuda:1', or layers for a GPU with gpu_layers"
        )
    (place,) = places
    if isinstance(place, int) and not isinstance(place, bool):
        return f"cuda:{place}"
    # A torch.device, too; transformers has several ways to say that it shall choose.
    others = {"balanced": "auto", "sequential": "auto", "cpu:0": "cpu", "mps": "metal"}
    return others.get(str(place), str(place))


def check_device(device: Any, name: str) -> None:
    """Raise UnsupportedError for a device where this model does not run."""
    places = device.values() if isinstance(device, dict) else [device]
    for place in places:
        if place is not None and str(place) not in ("auto", "balanced", "cpu", "cpu:0"):
            raise UnsupportedError(
                f"{name} is {device!r}: this model takes and gives tensors on the CPU, wherever it is "
                f"computed; leave {name} out, and choose what computes it with device= of load()"
            )


def _warn(message: str) -> None:
    warnings.warn(message, UserWarning, stacklevel=4)


def _is_repository(text: str) -> bool:
    """Return whether a name means a repository, as in transformers: no path that exists."""
    return bool(_REPOSITORY.fullmatch(text)) and not with_home(text).exists()


def _of_repository(
    text: str, gguf_file: str | None, subfolder: str | None, hub: dict[str, Any]
) -> str:
    name = "/".join(part for part in (subfolder, gguf_file) if part)
    chosen = {k: v for k, v in hub.items() if v not in (None, False)}
    if hub["revision"] == "main":
        del chosen["revision"]
    if not chosen and not (subfolder and not gguf_file):
        return f"{text}:{name}" if name else text
    from huggingface_hub import snapshot_download

    folder = f"{subfolder}/" if subfolder else ""
    wanted = [name] if gguf_file else [f"{folder}{pattern}" for pattern in _WEIGHTS]
    try:
        place = snapshot_download(text.removeprefix("hf:"), allow_patterns=wanted, **chosen)
    except Exception as e:
        reason = str(e).strip().partition("\n")[0]
        raise SourceError(f"cannot fetch {text} with {', '.join(chosen)}: {reason}") from e
    path = Path(place) / name
    if not path.exists():
        raise SourceError(f"{text} has no {name}" + ("" if name else "; name one with gguf_file"))
    return str(path)
