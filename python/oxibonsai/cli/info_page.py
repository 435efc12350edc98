"""The page that ``oxibonsai info`` shows: a model's facts in a reader's words."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import rich_click as click

_BILLION, _MILLION = 10**9, 10**6


def show_page(facts: dict[str, Any]) -> None:
    """Print what ``info --json`` says of a model, the raw fields left out."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    table = Table(show_header=False, box=None)
    for name, value in _rows(facts):
        table.add_row(name, Text(value))
    console.print(table)
    types = Table("type", "tensors", "bytes", "share", box=None)
    whole = sum(row["bytes"] for row in facts["quant_types"])
    for row in facts["quant_types"]:
        share = f"{100 * row['bytes'] / max(whole, 1):.1f} %"
        types.add_row(row["type"], str(row["tensors"]), f"{row['bytes']:,}", share)
    console.print(types)
    _show_settings(console, facts["settings"])


def show_memory(found: dict[str, Any], as_json: bool) -> None:
    """Print the memory that a model takes, by its parts."""
    if as_json:
        click.echo(json.dumps(found))
        return
    from rich.console import Console
    from rich.table import Table

    texts = "1 text" if found["parallel"] == 1 else f"{found['parallel']} texts at once"
    kind = "" if found["kv_type"] is None else f", keys and values in {found['kv_type']}"
    table = Table("part", "memory", box=None)
    for name, count in found["parts"].items():
        table.add_row(name.replace("_", " "), _gb(count))
    table.add_row("total", _gb(found["total"]))
    console = Console()
    console.print(f"{texts} of {found['ctx_size']:,} tokens{kind}")
    console.print(table)


def _rows(facts: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield "file", f"{facts['file']} ({_gb(facts['file_bytes'])})"
    yield "model", " ".join(filter(None, (facts["name"], f"({facts['architecture']})")))
    if facts["license"]:
        yield "license", facts["license"]
    count, bits = _count(facts["parameters"]), facts["bits_per_weight"]
    yield "parameters", f"{count}, {bits:.2f} bits each"
    if facts["runs"] != "yes":
        yield "runs", facts["runs"]
        return
    config, layers = facts["config"], facts["layers"]
    attending = layers["attending"]
    which = (
        ""
        if attending == layers["all"]
        else f", of which {attending} attend{'s' if attending == 1 else ''}"
    )
    yield "layers", f"{layers['all']}{which}; {config['hidden_size']:,} wide"
    yield (
        "context",
        f"up to {config['max_position_embeddings']:,} tokens; here {facts['default_ctx_size']:,} unless "
        "--ctx-size says otherwise",
    )
    memory = facts["memory_bytes_at_context"].items()
    yield "memory", ", ".join(f"{_gb(count)} with {int(n):,} tokens" for n, count in memory)
    if facts["kv_type"] is not None:
        yield (
            "keys and values",
            f"{facts['kv_bytes_per_token']:,} bytes a token ({facts['kv_type']})",
        )
    block = facts["hadamard_block"]
    plain = facts["hadamard_doubt"] or "none"
    yield "rotation", plain if block is None else f"Hadamard, blocks of {block:,}"
    yield "tokens", _tokens(facts["tokenizer"])
    yield "template", _abilities(facts["abilities"])


def _abilities(found: dict[str, Any] | str) -> str:
    if isinstance(found, str):
        return found
    if not found:
        return "none: --chat-template gives one"
    known = [name for name in ("thinking", "tools", "images") if found[name]]
    efforts = found.get("reasoning_efforts")
    text = f"knows {', '.join(known)}" if known else "knows neither thinking, tools nor images"
    return text if efforts is None else f"{text}; efforts {', '.join(efforts)}"


def _tokens(found: dict[str, Any] | str) -> str:
    if isinstance(found, str):
        return found
    ends = ", ".join(map(str, found["eos"])) or "none"
    return f"{found['tokens']:,} ({found['model']}, {found['pre']}); a text ends at {ends}"


def _show_settings(console: Any, settings: dict[str, Any]) -> None:
    from rich.table import Table

    modes = {mode: values for mode, values in settings.items() if mode != "family" and values}
    if not modes:
        console.print("sampling: general defaults (docs/sampling.md)")
        return
    table = Table("sampling", "", "from", box=None)
    for mode, values in modes.items():
        for name, setting in values.items():
            table.add_row(mode, f"{name} {setting['value']:g}", setting["source"])
    console.print(table)


def _count(parameters: int) -> str:
    if parameters >= _BILLION:
        return f"{parameters / _BILLION:.2f} billion"
    return f"{parameters / _MILLION:.2f} million"


def _gb(count: int) -> str:
    return f"{count / 1e9:.2f} GB" if count >= 10**7 else f"{count / 1e6:.2f} MB"
