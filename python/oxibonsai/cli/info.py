"""``oxibonsai info``: what a model file holds."""

from __future__ import annotations

import dataclasses
import json
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import rich_click as click

from oxibonsai import _core
from oxibonsai.architectures.schema.family import Family
from oxibonsai.chat.generic_tools import tool_format_of
from oxibonsai.chat_template import ChatTemplate
from oxibonsai.checkpoint import Checkpoint
from oxibonsai.checkpoint.gguf import GgufModel
from oxibonsai.checkpoint.i2_s import I2_S, I2sTensor
from oxibonsai.checkpoint.reader import TensorInfo
from oxibonsai.cli.device_report import show_devices
from oxibonsai.cli.foreign_options import Command
from oxibonsai.cli.info_page import show_memory, show_page
from oxibonsai.cli.kv_type_options import kv_type_option, value_type_option
from oxibonsai.cli.model_choice import model_argument
from oxibonsai.cli.options import context_size_option, json_option, model_options
from oxibonsai.diffusion.request import is_image, read_record
from oxibonsai.engine.memory import default_ctx_size, default_kv_type, kv_bytes_per_token
from oxibonsai.engine.memory_estimate import MemoryPlan, find_tower
from oxibonsai.errors import FormatError, RequestError, SourceError, TemplateError, UnsupportedError
from oxibonsai.files.home_paths import with_home
from oxibonsai.graph import RopeConfig
from oxibonsai.hf.config import count_parameters
from oxibonsai.known_models import missing_rotation, recommend
from oxibonsai.loading import open_model
from oxibonsai.models import ModelConfig, read_config
from oxibonsai.models import describe as describe_pass
from oxibonsai.output import find_reasoning_tags
from oxibonsai.sources.http import Unreachable, file_name, is_url
from oxibonsai.sources.hub import HubFile, find_hub_files
from oxibonsai.sources.remote import RemotePrefix, remote_prefix
from oxibonsai.tokenizer import Tokenizer

_FIRST_BYTES = 64 << 10
_MOST_BYTES = 128 << 20  # large vocabularies take some 20 MB
_MAGIC = b"GGUF"


@contextmanager
def remote_checkpoint(
    url: str, name: str, quant_type: str, headers: Mapping[str, str] | None = None
) -> Iterator[Checkpoint]:
    """Yield a checkpoint with the remote file's metadata and holes for its weights.

    Args:
        url: Where the file is.
        name: What it is called.
        quant_type: Layout of the tensors of type id 42, where the file leaves it open.
        headers: Sent with every request.

    Raises:
        SourceError: The file can't be read.
        FormatError: It is no GGUF file, or damaged.
        UnsupportedError: It is valid, but asks for what this version does not implement.
    """
    with remote_prefix(url, headers) as prefix, tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / name
        try:
            checkpoint = _open(prefix, place, quant_type)
        except (FormatError, UnsupportedError) as e:
            raise type(e)(str(e).replace(str(place), url)) from e
        yield checkpoint


def _open(prefix: RemotePrefix, place: Path, quant_type: str) -> Checkpoint:
    """Read on until the header is whole: all of it lies before the first tensor."""
    count = _FIRST_BYTES
    while True:
        prefix.extend(count)
        last = count >= min(prefix.size, _MOST_BYTES)
        _write_with_hole(place, prefix)
        try:
            reader = GgufModel.open_alone(place, quant_type)
            starts = [t.offset for shard in reader.shards for t in shard.tensors]
            if last or (starts and min(starts) <= len(prefix.data)):
                return Checkpoint(place, reader=reader)
        except (FormatError, UnsupportedError):
            # What is cut off reads as zeros: the fault may be that, or the file's own.
            if last or prefix.data[: len(_MAGIC)] != _MAGIC:
                raise
        count *= 2


def _write_with_hole(place: Path, prefix: RemotePrefix) -> None:
    """Write the beginning, then a hole up to the file's size, which takes no room on the disk."""
    try:
        with place.open("wb") as file:
            file.write(prefix.data)
            file.truncate(prefix.size)
    except OSError as e:
        raise SourceError(
            f"cannot keep a header of a file of {prefix.size} bytes: {e.strerror}"
        ) from e


_CONTEXTS = (2048, 8192, 32768, 65536)
_AMBIGUOUS_ID = 42


@click.command(cls=Command)
@model_argument
@model_options
@click.option("--devices", is_flag=True, help="Show the devices that --device takes instead.")
@click.option("--all", "all_fields", is_flag=True, help="Show every field of the file instead.")
@click.option(
    "--memory",
    "with_memory",
    is_flag=True,
    help="Show the memory that the model takes on the CPU instead, by -c, -np and --cache-type-k.",
)
@context_size_option
@click.option(
    "--parallel",
    "-np",
    type=click.IntRange(1),
    help="Texts at once that --memory is for, each of a full context. Default: 1.",
)
@kv_type_option
@value_type_option
@json_option
def info(
    model: str | None,
    quant_type: str,
    devices: bool,
    all_fields: bool,
    with_memory: bool,
    ctx_size: int | None,
    parallel: int | None,
    kv_type: str | None,
    as_json: bool,
) -> None:
    """Show what a model is, what it needs, what it can and how it is sampled.

    Of a GGUF file on the hub or the web (hf:..., https://...) only the header is fetched.
    Of a picture that oxibonsai image has drawn (PNG): what it was drawn from.
    With --devices: the devices of this machine, and why one can't be used.
    """
    if devices:
        if model is not None:
            raise RequestError("--devices is about this machine and takes no model")
        show_devices(as_json)
        return
    if with_memory:
        wanted = Wanted(ctx_size, parallel or 1, kv_type)
        show_memory(_read(model, quant_type, lambda c: _estimate(c, model, wanted)), as_json)
        return
    if (ctx_size, parallel, kv_type) != (None, None, None):
        raise RequestError("-c, -np and --cache-type-k are for --memory: add it")
    facts = _facts(model, quant_type)
    if as_json:
        click.echo(json.dumps(facts, ensure_ascii=False))
        return
    if not all_fields and "parameters" in facts:
        show_page(facts)
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
    place = with_home(_source(model))
    if is_image(place):
        return read_record(place)
    return _read(model, quant_type, describe)


def _source(model: str | None) -> str:
    return model or os.environ.get("OXIBONSAI_MODEL") or ""


def _read(
    model: str | None, quant_type: str, read: Callable[[Checkpoint], dict[str, Any]]
) -> dict[str, Any]:
    """Return what is read of a model; of a file on the web, of its header."""
    try:
        remote = _remote(_source(model))
    except Unreachable:
        remote = None  # the cache may have it
    if remote is None:
        return read(open_model(model, quant_type))
    name = file_name(remote.url) or "model.gguf"
    with remote_checkpoint(remote.url, name, quant_type, remote.headers) as checkpoint:
        stand_in = str(checkpoint.path)
        return {
            key: value.replace(stand_in, remote.url) if isinstance(value, str) else value
            for key, value in read(checkpoint).items()
        }


class Wanted(NamedTuple):
    """The contexts that memory is estimated for: see :func:`oxibonsai.estimate_memory`."""

    ctx_size: int | None
    parallel: int
    kv_type: str | None


def _estimate(checkpoint: Checkpoint, model: str | None, wanted: Wanted) -> dict[str, Any]:
    plan = MemoryPlan(checkpoint, find_tower(model, checkpoint))
    found = plan.estimate(*wanted)
    sizes = {"ctx_size": found.ctx_size, "parallel": found.parallel, "kv_type": found.kv_type}
    return {**sizes, "parts": found.parts, "total": found.total}


def _remote(source: str) -> HubFile | None:
    """Return the GGUF file on the web that is meant, its first shard; None: none is."""
    if source.startswith("hf:"):
        return next(iter(find_hub_files(source.removeprefix("hf:"))), None)
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
        count = count_parameters(checkpoint)
        weights = sum(t.nbytes for t in tensors)
        facts |= {"parameters": count, "bits_per_weight": round(8 * weights / max(count, 1), 3)}
        facts |= _model(checkpoint)
        facts |= {"abilities": _abilities(checkpoint), "settings": _settings(checkpoint)}
    return facts


def _abilities(checkpoint: Checkpoint) -> dict[str, Any] | str:
    """Return what the chat template knows."""
    source = checkpoint.file.text("tokenizer.chat_template")
    if not source:
        return {}
    try:
        template = ChatTemplate(source)
    except TemplateError as e:
        return f"cannot be read: {e}"
    tool_format = tool_format_of(template)
    found: dict[str, Any] = {
        "thinking": find_reasoning_tags(source) is not None,
        "tools": tool_format is not None and "tools" in template.variables,
        "images": template.knows_images,
    }
    family = recommend(checkpoint.file, checkpoint.path).family
    if family is not None and family.efforts:
        found["reasoning_efforts"] = list(family.efforts)
    return found


def _settings(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return what the model is sampled with where nothing else is asked for, with each value's source."""
    recommended = recommend(checkpoint.file, checkpoint.path)
    modes = {"thinking": True, "not thinking": False}
    found: dict[str, Any] = {
        mode: {name: s._asdict() for name, s in recommended.settings(thinks).items()}
        for mode, thinks in modes.items()
    }
    if found["thinking"] == found["not thinking"]:
        found = {"always": found["thinking"]}
    family = recommended.family
    return {"family": None if family is None else family.name, **found}


def _quant_types(tensors: Sequence[TensorInfo]) -> list[dict[str, Any]]:
    named = [
        (f"{I2_S}, read as {t.quant_type}", t.stored.nbytes)
        if isinstance(t, I2sTensor)
        else (t.quant_type, t.nbytes)
        for t in tensors
    ]
    counts = Counter(name for name, _ in named)
    return [
        {"type": name, "tensors": count, "bytes": sum(b for n, b in named if n == name)}
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


def _fields(config: Any) -> dict[str, Any]:
    """Return the fields of a config as JSON has them; of a table of factors, whether there is one."""
    found = {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if isinstance(value, RopeConfig):
            value = {
                **dataclasses.asdict(value),
                "frequency_factors": bool(value.frequency_factors),
            }
        elif dataclasses.is_dataclass(value) and not isinstance(value, Family):
            value = dataclasses.asdict(value)  # type: ignore[arg-type]
        found[field.name] = value
    return found


def _model(checkpoint: Checkpoint) -> dict[str, Any]:
    try:
        config = read_config(checkpoint)
        graph = describe_pass(checkpoint)
        types = {t.quant_type for t in checkpoint.file.tensors}
        doubt = missing_rotation(checkpoint.file, checkpoint.path, types)
    except (FormatError, UnsupportedError) as e:
        return {"runs": f"no: {e}"}
    rotation = config.hadamard
    plain = {**_fields(config), **_fields(config.of_family)}
    for key in ("architecture", "name", "hadamard", "family", "of_family"):
        plain.pop(key)
    keeps = (
        graph.paged_layers or graph.slot_entries
    )  # an encoder keeps nothing, and attends everywhere
    attending = len(graph.paged_layers) if keeps else config.num_hidden_layers
    kv_type = default_kv_type(graph.paged_layers) if graph.paged_layers else None
    per_token = 0 if kv_type is None else kv_bytes_per_token(graph.paged_layers, kv_type)
    slot = _core.slot_bytes(graph.slot_entries) if graph.slot_entries else 0
    memory = MemoryPlan(checkpoint)
    contexts = [c for c in _CONTEXTS if c <= config.max_position_embeddings]
    return {
        "runs": "yes",
        "layers": {"all": config.num_hidden_layers, "attending": attending},
        "config": plain,
        "speculation": _own_drafter(config),
        "hadamard_block": None if rotation is None else rotation.block,
        "hadamard_doubt": doubt,
        "yarn": config.rope.scaling == "yarn",
        "kv_type": kv_type,
        "kv_bytes_per_token": per_token,
        "slot_bytes": slot,
        "default_ctx_size": default_ctx_size(config, checkpoint),
        "memory_bytes_at_context": {str(c): memory.estimate(c).total for c in contexts},
    }


def _own_drafter(config: ModelConfig) -> str:
    """Return what of the file drafts tokens where nothing else is chosen."""
    if config.num_nextn_predict_layers > 0:
        return "draft-mtp: the file has a layer for it"
    return "none: the file has no layer that predicts further tokens"
