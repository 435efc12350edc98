"""``oxibonsai info``: what a model file holds."""

from __future__ import annotations

import dataclasses
import json
import os
from collections import Counter
from typing import Any

import rich_click as click

from oxibonsai import _core
from oxibonsai.checkpoint import Checkpoint
from oxibonsai.cli.device_table import show_devices
from oxibonsai.cli.model_choice import model_argument
from oxibonsai.cli.options import json_option, model_options
from oxibonsai.cli.remote_header import remote_checkpoint
from oxibonsai.diffusion.record import is_picture, read_record
from oxibonsai.engine.memory import default_ctx_size, default_kv_type, kv_bytes_per_token
from oxibonsai.errors import FormatError, RequestError, UnsupportedError
from oxibonsai.files.home_paths import with_home
from oxibonsai.loading import open_model
from oxibonsai.models import describe as describe_pass
from oxibonsai.models import read_config
from oxibonsai.sources.choice import NoGguf
from oxibonsai.sources.http import Unreachable, file_name, is_url
from oxibonsai.sources.hub import HubFile, find_hub_files
from oxibonsai.tokenizer import Tokenizer

_CONTEXTS = (2048, 8192, 32768)
_AMBIGUOUS_ID = 42


@click.command()
@model_argument
@model_options
@click.option("--devices", is_flag=True, help="Show the devices that --device takes instead.")
@json_option
def info(model: str | None, quant_type: str, devices: bool, as_json: bool) -> None:
    """Show architecture, dimensions, quant types, tokenizer and memory of a model.

    Of a GGUF file on the hub or the web (hf:..., https://...) only the header is fetched.
    Of a picture that oxibonsai image has drawn (PNG): what it was drawn from.
    With --devices: the devices of this machine, and why one can't be used.
    """
    if devices:
        if model is not None:
            raise RequestError("--devices is about this machine and takes no model")
        show_devices(as_json)
        return
    facts = _facts(model, quant_type)
    if as_json:
        click.echo(json.dumps(facts, ensure_ascii=False))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    table = Table(show_header=False, box=None)
    for key, value in facts.items():
        if key != "quant_types":
            table.add_row(key.replace("_", " "), Text(_text(value)))
    console.print(table)
    if "quant_types" not in facts:
        return
    types = Table("type", "tensors", "bytes")
    for row in facts["quant_types"]:
        types.add_row(row["type"], str(row["tensors"]), f"{row['bytes']:,}")
    console.print(types)


def _facts(model: str | None, quant_type: str) -> dict[str, Any]:
    source = model or os.environ.get("OXIBONSAI_MODEL") or ""
    place = with_home(source)
    if is_picture(place):
        return read_record(place)
    try:
        remote = _remote(source)
    except (Unreachable, NoGguf):
        remote = None  # the cache may have it; or it is a folder to be opened as one
    if remote is None:
        return describe(open_model(model, quant_type))
    name = file_name(remote.url) or "model.gguf"
    with remote_checkpoint(remote.url, name, quant_type, remote.headers) as checkpoint:
        stand_in = str(checkpoint.path)
        return {
            key: value.replace(stand_in, remote.url) if isinstance(value, str) else value
            for key, value in describe(checkpoint).items()
        }


def _remote(source: str) -> HubFile | None:
    """Return the file on the web that is meant, its first shard; None for one on this machine."""
    if source.startswith("hf:"):
        return find_hub_files(source.removeprefix("hf:"))[0]
    return HubFile(source, source, None, {}) if is_url(source) else None


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{k} {_text(v)}" for k, v in value.items())
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def describe(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return everything that the file says of itself, as plain values.

    Raises:
        FormatError: A name in it is no text.
    """
    file = checkpoint.file
    tensors = file.tensors
    ambiguous = {t.quant_type for t in tensors if t.gguf_id == _AMBIGUOUS_ID}
    facts: dict[str, Any] = {
        "file": str(checkpoint.path),
        "file_bytes": file.size,
        "gguf_version": file.version,
        "architecture": file.text("general.architecture"),
        "name": file.text("general.name"),
        "license": file.text("general.license"),
        "tensors": len(tensors),
        "type_42_layout": min(ambiguous) if ambiguous else None,
        "quant_types": _quant_types(tensors),
        "tokenizer": _tokenizer(checkpoint),
        "chat_template": bool(file.text("tokenizer.chat_template")),
    }
    if checkpoint.has_weights:
        facts |= _model(checkpoint)
    return facts


def _quant_types(tensors: list[Any]) -> list[dict[str, Any]]:
    counts = Counter(t.quant_type for t in tensors)
    return [
        {
            "type": name,
            "tensors": count,
            "bytes": sum(t.nbytes for t in tensors if t.quant_type == name),
        }
        for name, count in counts.most_common()
    ]


def _tokenizer(checkpoint: Checkpoint) -> dict[str, Any] | str:
    try:
        tokenizer = Tokenizer.from_gguf(checkpoint.file)
    except (FormatError, UnsupportedError) as e:
        return f"cannot be used: {e}"
    return {
        "model": checkpoint.file.text("tokenizer.ggml.model"),
        "pre": checkpoint.file.text("tokenizer.ggml.pre"),
        "tokens": tokenizer.vocab_size,
        "bos": tokenizer.bos_id,
        "eos": sorted(tokenizer.eos_ids),
        "add_bos": tokenizer.add_bos,
    }


def _model(checkpoint: Checkpoint) -> dict[str, Any]:
    try:
        config = read_config(checkpoint)
        graph = describe_pass(checkpoint)
    except (FormatError, UnsupportedError) as e:
        return {"runs": f"no: {e}"}
    plain = dataclasses.asdict(config)
    for key in ("architecture", "name", "hadamard"):
        plain.pop(key)
    rotation = config.hadamard
    for rope in (plain["rope"], plain["rope_local"]):
        if rope is not None:
            rope["frequency_factors"] = bool(rope["frequency_factors"])
    kv_type = default_kv_type(graph.paged_layers) if graph.paged_layers else None
    per_token = 0 if kv_type is None else kv_bytes_per_token(graph.paged_layers, kv_type)
    slot = _core.slot_bytes(graph.slot_entries) if graph.slot_entries else 0
    weights = sum(t.nbytes for t in checkpoint.file.tensors)
    contexts = [c for c in _CONTEXTS if c <= config.max_position_embeddings]
    return {
        "runs": "yes",
        "config": plain,
        "hadamard_block": None if rotation is None else rotation.block,
        "yarn": config.rope.scaling == "yarn",
        "kv_type": kv_type,
        "kv_bytes_per_token": per_token,
        "slot_bytes": slot,
        "default_ctx_size": default_ctx_size(config),
        "memory_bytes_at_context": {str(c): weights + c * per_token + slot for c in contexts},
    }
