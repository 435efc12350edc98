"""``oxibonsai verify``: is a model file whole?"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import rich_click as click

from oxibonsai import _core
from oxibonsai.checkpoint import Checkpoint
from oxibonsai.cli.device_report import verify_device
from oxibonsai.cli.foreign_options import Command
from oxibonsai.cli.model_choice import model_argument
from oxibonsai.cli.options import json_option, model_options
from oxibonsai.errors import FormatError, RequestError
from oxibonsai.models import load_model
from oxibonsai.sources import resolve

# Weights of 2-bit types per code-3 weight above which a file is called suspicious.
_SUSPICIOUS_SHARE = 0.02


@click.command(cls=Command)
@model_argument
@model_options
@click.option("--sha256", metavar="HASH", help="The hash that the file must have.")
@click.option(
    "--device",
    metavar="DEVICE",
    help="Check a device instead: cpu, cuda, cuda:1, metal or opencl. Every kernel and a greedy decode "
    "of the model are compared with the definition, byte for byte.",
)
@click.option(
    "--wide",
    is_flag=True,
    help="With --device: also wide matrices, long contexts, several sequences, joined ops and "
    "repeated steps. Takes minutes.",
)
@json_option
def verify(
    model: str | None,
    quant_type: str,
    sha256: str | None,
    device: str | None,
    wide: bool,
    as_json: bool,
) -> None:
    """Check structure, sizes, that every scale is finite, and the share of code 3.

    With --device: print a report on the device, to put into an issue where it finds a difference.
    """
    if device is not None:
        if sha256 is not None:
            raise RequestError(
                "--sha256 is about a file, --device about a device: give one of them"
            )
        verify_device(device, model, quant_type, wide=wide, as_json=as_json)
        return
    if wide:
        raise RequestError("--wide compares a device: name it with --device")
    path = resolve(model)
    report = check_file(path, quant_type, sha256)
    if as_json:
        click.echo(json.dumps(report))
        return
    click.echo(f"{path}: {report['tensors']} tensors, {report['blocks']} blocks, all finite")
    if report["code_3_share"] is not None:
        click.echo(f"share of code 3 in 2-bit weights: {report['code_3_share']:.4%}")
        if report["code_3_share"] > _SUSPICIOUS_SHARE:
            click.echo("a ternary model has hardly any: the layout may be another", err=True)
    click.echo(f"sha256 {report['sha256']}")


def check_file(path: Path, quant_type: str, sha256: str | None) -> dict[str, Any]:
    """Return the facts of a whole file; FormatError names what is wrong with another."""
    checkpoint = Checkpoint(path, quant_type)
    actual = hash_file(path)
    if sha256 is not None and actual != sha256.lower():
        raise FormatError(f"{path} has sha256 {actual}, not {sha256}: download it again")
    blocks = two_bit_weights = codes_of_three = 0
    for info in checkpoint.file.tensors:
        if not info.decodable:
            continue
        weight = checkpoint.weight(info.name)
        found = weight.inspect()
        if found["not_finite"]:
            raise FormatError(
                f"{path}: tensor {info.name} has {found['not_finite']} blocks with a scale or value "
                "that is not finite: the file is damaged, or its type has another layout"
            )
        blocks += found["blocks"]
        if "Q2_0" in info.quant_type:
            two_bit_weights += weight.rows * weight.cols
            codes_of_three += found["codes_of_three"]
    runs = _shapes(checkpoint) if checkpoint.has_weights else False
    return {
        "file": str(path),
        "sha256": actual,
        "tensors": len(checkpoint.file.tensors),
        "blocks": blocks,
        "shapes_checked": runs,
        "code_3_share": codes_of_three / two_bit_weights if two_bit_weights else None,
    }


def _shapes(checkpoint: Checkpoint) -> bool:
    """Describe the forward pass, which checks every tensor's presence and shape."""
    load_model(checkpoint, _core.CpuDevice(1))
    return True


def hash_file(path: Path) -> str:
    """Return the sha256 of a file, in hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()
