"""``oxibonsai verify --device``: does a device give the definition's bytes?"""

from __future__ import annotations

import json
import platform
from dataclasses import asdict
from typing import Any

import rich_click as click

from oxibonsai import __version__, _core
from oxibonsai.devices import AUTO, Device, list_devices, one_device, open_device
from oxibonsai.engine.memory import default_kv_type
from oxibonsai.errors import ParityError, RequestError, UnsupportedError
from oxibonsai.loading import open_model
from oxibonsai.models import check_parity, load_model, read_config
from oxibonsai.models.parity import DEFINITION
from oxibonsai.models.parity_suite import compare_all_ops

_SAME = "same bytes"
# What is compared of a model as a whole, by its key in the report.
_WHOLE = {"decode": "greedy decode", "states": "hidden states of a text"}


def verify_device(
    name: str, model: str | None, quant_type: str, *, wide: bool, as_json: bool
) -> None:
    """Print a report.

    Args:
        name: As ``--device`` takes it.
        model: Of which a greedy decode, or an encoder's states, are compared too; None: the default one.
        quant_type: As ``--quant-type`` takes it.
        wide: Compare steps as an engine makes them, too, on wide matrices.
        as_json: One JSON object instead of lines.

    Raises:
        RequestError: ``auto`` is named, which is no device.
        UnsupportedError: This machine lacks the device.
        ParityError: The device gives other bytes; the report is printed before.
    """
    chosen = one_device(name)
    if chosen == AUTO:
        raise RequestError("--device auto is no device that could be checked: name one")
    device = open_device(chosen)
    report = _facts(device)
    report["ops"] = {op: _result(found) for op, found in _compared(device, wide)}
    whole, result = _whole(device, model, quant_type)
    report[whole] = result
    failed = [op for op, found in report["ops"].items() if found.startswith("OTHER")]
    failed += [result] if result.startswith("OTHER") else []
    click.echo(json.dumps(report) if as_json else _text(report))
    if failed:
        raise ParityError(
            f"{chosen} gives other bytes than the definition; please put the report above into an issue"
        )


def _facts(device: Device) -> dict[str, Any]:
    info = next(d for d in list_devices() if d.name == device.name)
    return {
        "oxibonsai": __version__,
        "system": f"{platform.system()} {platform.machine()}",
        "device": device.name,
        "description": info.description,
        "tier": device.tier,
        "total_bytes": info.total_bytes,
        "free_bytes": info.free_bytes,
    }


def _compared(device: Device, wide: bool) -> Any:
    return compare_all_ops(device, _core.CpuDevice(device.threads, DEFINITION), wide=wide)


def _result(found: list[str] | UnsupportedError) -> str:
    if isinstance(found, UnsupportedError):
        return f"no kernel: {found}"
    return f"OTHER BYTES in {', '.join(sorted(set(found)))}" if found else _SAME


def _whole(device: Device, model: str | None, quant_type: str) -> tuple[str, str]:
    """Return the key in the report and the result of comparing the whole model."""
    checkpoint = open_model(model, quant_type)
    whole = "decode" if read_config(checkpoint).generates else "states"
    try:
        loaded = load_model(checkpoint, device)
        check_parity(loaded, "full", default_kv_type(loaded.graph.paged_layers))
    except ParityError as e:
        return whole, f"OTHER BYTES: {e}"
    except UnsupportedError as e:
        return whole, f"no kernel: {e}"
    return whole, f"{_SAME} ({checkpoint.path.name})"


def _text(report: dict[str, Any]) -> str:
    lines = [f"oxibonsai {report['oxibonsai']}, {report['system']}"]
    lines.append(f"{report['device']}: {report['description']}")
    lines += [f"  {op:<42} {result}" for op, result in report["ops"].items()]
    lines += [f"  {_WHOLE[w]:<42} {result}" for w, result in report.items() if w in _WHOLE]
    return "\n".join(lines)


def show_devices(as_json: bool) -> None:
    """Print a table, or one JSON object."""
    devices = list_devices()
    if as_json:
        click.echo(json.dumps({"devices": [asdict(d) for d in devices]}))
        return
    for d in devices:
        parts = [d.description] if d.description else []
        if d.total_bytes is not None:
            parts.append(f"{d.total_bytes / 1e9:.1f} GB")
        if d.free_bytes is not None:
            parts.append(f"{d.free_bytes / 1e9:.1f} GB free")
        if not d.usable:
            parts.append(f"cannot be used: {d.reason}")
        click.echo(f"{d.name:<8} {', '.join(parts)}")
