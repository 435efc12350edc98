"""``torchrun ... -m oxibonsai.distributed``: one model over several processes.

Exit codes are those of ``oxibonsai``: 0 done, 1 failed or a process lost, 2 wrong usage, 3 a file that
can't be used, 130 interrupted.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import rich_click as click
from click.exceptions import Abort, ClickException, Exit

from oxibonsai.distributed.failure_detector import print_failure
from oxibonsai.distributed.group import Link
from oxibonsai.distributed.session import Choice
from oxibonsai.errors import (
    FormatError,
    OxiBonsaiError,
    RequestError,
    SourceError,
    UnsupportedError,
)
from oxibonsai.server.setting_options import given, setting_options
from oxibonsai.server.setting_sources import load_settings

Command = Callable[..., Any]

_GROUP_OPTIONS = (
    click.option("--tensor-parallel", default=1, show_default=True,
                 help="Processes that share the rows of every matrix."),
    click.option("--pipeline-parallel", default=1, show_default=True,
                 help="Stages that share the layers."),
    click.option("--interface", metavar="NAME",
                 help="Network interface of the processes (eth0, lo); else gloo's choice."),
    click.option("--group-timeout", default=60.0, show_default=True, metavar="SECONDS",
                 help="A process that does not answer so long is lost; longer than any step."),
    click.option("--start-timeout", default=600.0, show_default=True, metavar="SECONDS",
                 help="How long to wait for late processes, and for all to load the model."),
)  # fmt: skip
_MODEL_OPTIONS = (
    click.option("--model", "-m", required=True, help="A file, folder or source of a model."),
    click.option(
        "--device", "-dev", help="cuda: each process its own card; cuda:N, opencl:N; else the CPU."
    ),
    click.option("--threads", type=int, help="Worker threads of each process."),
    click.option("--quant-type", default="", help="Layout of tensors of type id 42."),
    click.option("--parity", type=click.Choice(["quick", "off"]), default="quick"),
    click.option("--ctx-size", type=int, help="Positions of a sequence."),
    click.option("--kv-type", help="Type of keys and values."),
)


def _all(options: tuple[Callable[[Command], Command], ...]) -> Callable[[Command], Command]:
    def add(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


@click.group()
def cli() -> None:
    """Run one model in several processes, started by torchrun; all need the same flags.

    OXIBONSAI_GROUP_SECRET has to be the same in all of them.
    """


@cli.command()
@_all(_GROUP_OPTIONS)
@setting_options
def serve(**options: Any) -> None:
    """Serve the model over HTTP: rank 0 has the flags of oxibonsai serve."""
    link, sizes = _link(options)
    settings = load_settings(given(options))
    _refuse_unshared(settings, stages=sizes[1])
    from oxibonsai.distributed.serve import serve as run_server
    from oxibonsai.loading import split_scaled

    choice = Choice(
        settings.model, *sizes, link, settings.threads, settings.parity, settings.quant_type,
        [*settings.lora, *map(split_scaled, settings.lora_scaled)], settings.ctx_size,
        settings.device,
    )  # fmt: skip
    raise Exit(run_server(choice, settings))


@cli.command()
@_all(_GROUP_OPTIONS)
@_all(_MODEL_OPTIONS)
@click.option("--prompt", "-p", required=True)
@click.option("--max-tokens", "-n", default=128, show_default=True)
@click.option("--temperature", type=float)
@click.option("--seed", type=int)
def run(**options: Any) -> None:
    """Continue a prompt."""
    from oxibonsai.distributed.run import run as run_prompt
    from oxibonsai.sampling import SamplingParams

    wanted = {name: options[name] for name in ("max_tokens", "temperature", "seed")}
    params = SamplingParams(**{k: v for k, v in wanted.items() if v is not None})
    run_prompt(_choice(options), options["kv_type"], options["prompt"], params)


@cli.command()
@_all(_GROUP_OPTIONS)
@_all(_MODEL_OPTIONS)
@click.option("--prompt-tokens", default=128, show_default=True)
@click.option("--tokens", default=32, show_default=True)
def bench(**options: Any) -> None:
    """Measure speed, messages and bytes; one line of JSON on rank 0."""
    from oxibonsai.distributed.run import bench as measure

    measure(_choice(options), options["kv_type"], options["prompt_tokens"], options["tokens"])


def _link(options: dict[str, Any]) -> tuple[Link, tuple[int, int]]:
    """Take the group's options out of all."""
    link = Link(
        options.pop("interface"), options.pop("group_timeout"), options.pop("start_timeout")
    )
    return link, (options.pop("tensor_parallel"), options.pop("pipeline_parallel"))


def _choice(options: dict[str, Any]) -> Choice:
    link, sizes = _link(options)
    return Choice(
        options["model"], *sizes, link, options["threads"], options["parity"],
        options["quant_type"], ctx_size=options["ctx_size"], device=options["device"],
    )  # fmt: skip


# Settings of the server that need a whole model in one process, and what they are otherwise.
_UNSHARED = {"gpu_layers": None, "packed_cache": False,
             "load_as": None, "kv_pressure": None, "mmproj": None, "slot_save_path": None, "models": (),
             "models_dir": None, "models_preset": None, "allow_pull": False}  # fmt: skip


def _refuse_unshared(settings: Any, stages: int) -> None:
    if settings.replicas > 1 and stages == 1:
        raise RequestError(
            "--replicas needs --pipeline-parallel, whose stages each work on a step of another engine: "
            "leave it out"
        )
    for name, unset in _UNSHARED.items():
        if getattr(settings, name) != unset:
            raise RequestError(
                f"--{name.replace('_', '-')} is not available where several processes run the model: "
                "leave it out"
            )


def main() -> None:
    """Run a command, and turn errors into one line and an exit code."""
    sys.exit(_run())


def _run() -> int:
    try:
        # The code of an Exit, or what a command returns: None.
        code = cli.main(prog_name="oxibonsai.distributed", standalone_mode=False)
    except Exit as e:
        return int(e.exit_code)
    except ClickException as e:
        return _fail(e.format_message(), 2)
    except (Abort, KeyboardInterrupt):
        return 130
    except RequestError as e:
        return _fail(str(e), 2)
    except (FormatError, UnsupportedError, SourceError) as e:
        return _fail(str(e), 3)
    except (OxiBonsaiError, OSError) as e:
        return _fail(str(e), 1)
    return code if isinstance(code, int) else 0


def _fail(message: str, code: int) -> int:
    print_failure(os.environ.get("RANK", "?"), message)
    return code


if __name__ == "__main__":
    main()
