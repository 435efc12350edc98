"""Options that several commands share; llama.cpp's names are accepted beside ours."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import rich_click as click

from oxibonsai.cli.kv_type_options import kv_type_option, value_type_option
from oxibonsai.cli.model_choice import model_option
from oxibonsai.cli.output import warn
from oxibonsai.cli.progress import byte_progress
from oxibonsai.cli.sampling_options import sampling_options as sampling_options
from oxibonsai.cli.sampling_options import split_sampling as split_sampling
from oxibonsai.devices import CPU
from oxibonsai.engine import Engine
from oxibonsai.errors import RequestError
from oxibonsai.files.home_paths import with_home

Command = Callable[..., Any]


def apply(options: list[Command], command: Command) -> Command:
    """Put several options on a command, in their order."""
    for option in reversed(options):
        command = option(command)
    return command


quant_type_option = click.option(
    "--quant-type",
    default="",
    metavar="TYPE",
    help="Layout of type-42 tensors where the file leaves it open: Q2_0_g64, Q2_0_g128 or TQ2_0_g128.",
)


def model_options(command: Command) -> Command:
    """Add the options that choose the model, and how its file is read."""
    return apply([model_option, quant_type_option], command)


def json_option(command: Command) -> Command:
    """Add ``--json``, which asks for machine-readable output."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")(command)


def profile_option(command: Command) -> Command:
    """Add ``--profile``, which shows the ops that the time goes to."""
    return click.option(
        "--profile",
        "with_profile",
        is_flag=True,
        help="Then run once more and print the time of each op, summed over the threads; on a CPU.",
    )(command)


context_size_option = click.option(
    "--ctx-size",
    "--n-ctx",
    "-c",
    type=click.IntRange(0),
    callback=lambda _, __, value: value or None,  # llama.cpp's 0 is the model's own
    help="Positions of the context. Default: the model's, cut to suit the memory.",
)


def engine_options(command: Command) -> Command:
    """Add the options that say how the model is run."""
    ctx_checkpoints = click.option(
        "--ctx-checkpoints",
        "--swa-checkpoints",
        "-ctxcp",
        type=click.IntRange(0),
        help="Snapshots of recurrent state to keep, from which equal beginnings are continued. "
        "Default: those that fit in 8 GiB or an eighth of the memory. Only for models with such state.",
    )
    return apply([context_size_option, ctx_checkpoints], lora_options(machine_options(command)))


def _files(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    """Split ``a.gguf,b.gguf``, as llama.cpp has it, unless a file has that name."""
    return tuple(
        part
        for value in values
        for part in ([value] if with_home(value).exists() else value.split(","))
    )


_lora_options = [
    click.option(
        "--lora",
        multiple=True,
        metavar="FILE",
        callback=_files,
        help="A LoRA adapter to add: a GGUF file, or a folder that PEFT saved; may be repeated.",
    ),
    click.option(
        "--lora-scaled",
        multiple=True,
        metavar="FILE:SCALE",
        callback=_files,
        help="A LoRA adapter with a scale, for example 0.5; may be repeated.",
    ),
]


def lora_options(command: Command) -> Command:
    """Add the options that name adapters of the model."""
    return apply(_lora_options, command)


threads_option = click.option(
    "--threads",
    "-t",
    type=click.IntRange(-1, 1024),
    callback=lambda _, __, value: None if value == -1 else value,  # llama.cpp's "as many as fit"
    help="Worker threads.",
)


device_option = click.option(
    "--device",
    "-dev",
    metavar="DEVICE",
    callback=lambda _, __, value: CPU if value == "none" else value,  # llama.cpp's name
    help="cpu, cuda, cuda:1, metal, opencl, opencl:1, or auto: a GPU if one can run the model and "
    "gives the same bytes, else the CPU. cuda:0,cuda:1: these cards share the layers. Default: "
    "OXIBONSAI_DEVICE, else cpu. Results don't depend on it.",
)


def gpu_layer_count(text: str | int | None) -> int | None:
    """Return the number of layers for a GPU; ``auto``, ``all`` and -1, as llama.cpp has them, are all.

    Raises:
        RequestError: It is no number.
    """
    if text is None or str(text).lower() in ("auto", "all", "-1"):
        return None
    try:
        count = int(text)
    except ValueError:
        count = -1
    if count < 0:
        raise RequestError(
            f"--gpu-layers is {text}; it must be a number of layers, or all, which is the default"
        )
    return count


gpu_layers_option = click.option(
    "--gpu-layers",
    "--n-gpu-layers",
    "-ngl",
    "gpu_layers",
    metavar="N",
    callback=lambda _, __, value: gpu_layer_count(value),
    help="Number of layers that run on the GPU, counted from the last; the output counts as one more. "
    "The CPU runs the others. "
    "Default: all.",
)


def machine_options(command: Command) -> Command:
    """Add the options that say how the model is run, where the command sets the context's size itself."""
    return apply(
        [
            device_option,
            gpu_layers_option,
            threads_option,
            kv_type_option,
            value_type_option,
            click.option(
                "--kv-pressure",
                type=click.Choice(["balanced", "aggressive"]),
                help="Use smaller types for new texts while memory is short. Texts then depend on "
                "the load.",
            ),
            click.option(
                "--prefix-cache/--no-prefix-cache",
                default=True,
                show_default=True,
                help="Compute equal beginnings once. Texts don't depend on it.",
            ),
            click.option(
                "--parity",
                type=click.Choice(["quick", "full", "off"]),
                default="quick",
                show_default=True,
                help="What to compare with the definition first: every kind of kernel on slices of "
                "the weights, a greedy decode too (slow), or nothing.",
            ),
            click.option(
                "--load-as",
                metavar="TYPE",
                help="Quantize the model to this type when it is loaded, as oxibonsai quantize does. The "
                "result is kept for the next time.",
            ),
            click.option(
                "--packed-cache/--no-packed-cache",
                default=False,
                help="Keep packed weights on disk, so that the next start is nearly instant.",
            ),
        ],
        command,
    )


def load_engine(model: str | None, quant_type: str, **options: Any) -> Engine:
    """Load, and say on stderr how far packing the weights has come."""
    from oxibonsai.engine import load
    from oxibonsai.engine.placement import device_for_layers
    from oxibonsai.loading import split_scaled

    plain, scaled = options.pop("lora", ()), options.pop("lora_scaled", ())
    lora = [*plain, *map(split_scaled, scaled)]
    with (
        warnings.catch_warnings(record=True) as notes,
        byte_progress("Packing the weights") as progress,
    ):
        warnings.simplefilter("always", UserWarning)
        options["device"], options["gpu_layers"] = device_for_layers(
            options.get("device"), options.get("gpu_layers")
        )
        engine = load(model, quant_type=quant_type, lora=lora, progress=progress, **options)
    warn([str(note.message) for note in notes])
    return engine
