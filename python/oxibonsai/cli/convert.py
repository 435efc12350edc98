"""``oxibonsai convert``: a Hugging Face model, also in ONNX, an OXCK file or an adapter to a GGUF file."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import rich_click as click

from oxibonsai.checkpoint.folder import find_onnx
from oxibonsai.checkpoint.oxck_file import SUFFIX
from oxibonsai.cli.foreign_options import Command
from oxibonsai.cli.options import json_option, threads_option
from oxibonsai.cli.output import OutputFile, say_written, warn
from oxibonsai.cli.progress import byte_progress
from oxibonsai.convert.eagle3 import convert_drafter
from oxibonsai.convert.language_model import convert as convert_folder
from oxibonsai.convert.lora import convert_lora
from oxibonsai.convert.oxck import write_gguf, write_oxck
from oxibonsai.convert.target import check_dtype
from oxibonsai.convert.vision_tower import convert_tower, has_tower
from oxibonsai.devices import default_threads
from oxibonsai.diffusion.model_files import PartNames, is_image_model, open_image_model
from oxibonsai.diffusion.write_one_file import write_one_file
from oxibonsai.errors import RequestError
from oxibonsai.files.home_paths import with_home
from oxibonsai.loading import is_peft_folder, open_model
from oxibonsai.models import read_config
from oxibonsai.sources.model_folder import model_folder, model_name


@click.command(cls=Command)
@click.argument("source", metavar="IN")
@click.argument("out", metavar="OUT", required=False, type=OutputFile())
@click.option(
    "--outfile",
    metavar="OUT",
    type=OutputFile(),
    help="OUT, as convert_hf_to_gguf.py has it.",
)
@click.option(
    "--type",
    "--outtype",
    "dtype",
    metavar="TYPE",
    default="auto",
    show_default=True,
    help="Of matrices; vectors stay f32. auto: each as it is stored (docs/formats.md says what is "
    "rounded). f32, f16 and bf16 round. q1_0, q2_0_g64, pq2_0 and ptq1_0 are for weights that are binary "
    "or ternary already, which is checked. Any other type or mix is as oxibonsai quantize makes it.",
)
@click.option(
    "--base",
    metavar="MODEL",
    help="The model of an adapter that PEFT saved, which IN then is; OUT is llama.cpp's LoRA file.",
)
@click.option(
    "--onnx", is_flag=True, help="Take the ONNX file of a folder that has safetensors, too."
)
@click.option(
    "--mmproj",
    is_flag=True,
    help="Write the vision tower of a model that sees, as llama.cpp reads it, and not its language model.",
)
@click.option(
    "--target-model-dir",
    "target",
    metavar="MODEL",
    help="The model of an EAGLE-3 drafter, which IN then is: a folder, or a GGUF file.",
)
@threads_option
@json_option
def convert(
    source: str,
    out: Path | None,
    outfile: Path | None,
    dtype: str,
    base: str | None,
    onnx: bool,
    mmproj: bool,
    target: str | None,
    threads: int | None,
    as_json: bool,
) -> None:
    """Make the GGUF file OUT of IN, or with a name that ends in .oxck an OXCK file.

    IN is a folder with safetensors or ONNX, a safetensors or ONNX file in one, hf:org/repo[:FILE.onnx] or
    pip:package; a folder of networks that draw; a LoRA adapter; an EAGLE-3 drafter; or NAME.oxck.
    To OXCK, any model is converted.
    """
    if (out is None) == (outfile is None):
        raise RequestError(
            "name the file to write once: oxibonsai convert IN OUT, or --outfile OUT"
        )
    out = out or outfile
    assert out is not None
    check_dtype(dtype)
    if SUFFIX in (with_home(source).suffix, out.suffix):
        if with_home(source).suffix == out.suffix:
            raise RequestError(f"{source} and {out} are both OXCK files: name a GGUF file")
        if mmproj or onnx or base is not None or target is not None:
            raise RequestError(
                "an OXCK file holds a whole language model: leave out --mmproj, --onnx, --base and "
                "--target-model-dir"
            )
        _convert_oxck(source, out, dtype)
        say_written(out, as_json)
        return
    if target is not None and (mmproj or onnx or base is not None):
        raise RequestError(
            "--target-model-dir is for a drafter's folder: leave out --mmproj, --onnx and --base"
        )
    source = _onnx_of(source) if onnx else _folder_of(source)
    if target is not None:
        convert_part = partial(convert_drafter, target=open_model(target))
        _convert_model(source, out, dtype, threads, as_json, convert_part)
        return
    if mmproj:
        if base is not None:
            raise RequestError("--mmproj writes a vision tower, --base an adapter: leave one out")
        _convert_model(source, out, dtype, threads, as_json, convert_tower)
        return
    if is_peft_folder(source) or base is not None:
        _convert_adapter(source, out, dtype, base)
        say_written(out, as_json)
        return
    if is_image_model(source):
        _convert_image_model(source, out, dtype, threads or default_threads())
        say_written(out, as_json)
        return
    _convert_model(source, out, dtype, threads, as_json, convert_folder)


def _convert_oxck(source: str, out: Path, dtype: str) -> None:
    if dtype.lower() not in ("auto", "f32"):
        raise RequestError(
            f"--type {dtype}: the values of an OXCK file are f32; oxibonsai quantize makes other types"
        )
    with byte_progress("Converting") as progress:
        if out.suffix == SUFFIX:
            write_oxck(open_model(source), out, progress)
        else:
            write_gguf(with_home(source), out, progress)


def _convert_model(
    source: str,
    out: Path,
    dtype: str,
    threads: int | None,
    as_json: bool,
    convert_part: Callable[..., list[str]],
) -> None:
    with model_folder(source) as folder, byte_progress("Converting") as progress:
        warnings = convert_part(
            folder,
            out,
            dtype=dtype,
            name=model_name(source),
            threads=threads or default_threads(),
            progress=progress,
        )
        if convert_part is convert_folder and folder.is_dir() and has_tower(folder):
            warnings.append(
                "the vision tower is left out, which is a file of its own: --mmproj writes it"
            )
    warn(warnings)
    say_written(out, as_json, warnings=warnings)


def _folder_of(source: str) -> str:
    """Return the folder of a safetensors file, which is converted with its configuration."""
    path = with_home(source)
    if path.suffix != ".safetensors" or not path.is_file():
        return source
    others = {p.name for p in path.parent.glob("*.safetensors")} - {path.name}
    if others and not (path.parent / "model.safetensors.index.json").is_file():
        raise RequestError(
            f"{path.parent} holds {min(others)} too: a folder is converted whole; move one away"
        )
    if not (path.parent / "config.json").is_file():
        raise RequestError(f"{path} has no config.json beside it, which says what model it is")
    return str(path.parent)


def _onnx_of(source: str) -> str:
    path = with_home(source)
    if source.endswith(".onnx"):
        return source
    found = find_onnx(path) if path.is_dir() else None
    if found is None:
        raise RequestError(f"--onnx: {source} is no ONNX file, and no folder with one")
    return str(found)


def _convert_image_model(source: str, out: Path, dtype: str, threads: int) -> None:
    files = open_image_model(source, PartNames())
    with byte_progress("Converting") as progress:
        write_one_file(files, out, dtype=dtype, threads=threads, progress=progress)


def _convert_adapter(source: str, out: Path, dtype: str, base: str | None) -> None:
    if base is None:
        raise RequestError(f"{source} holds an adapter: name the model that it is for with --base")
    if dtype.lower() != "auto":
        raise RequestError(f"--type {dtype}: an adapter's matrices stay as they are stored")
    checkpoint = open_model(base)
    convert_lora(with_home(source), out, read_config(checkpoint))
