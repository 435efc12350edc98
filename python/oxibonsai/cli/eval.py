"""``oxibonsai eval``: the benchmarks of EleutherAI's lm-evaluation-harness."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import rich_click as click

from oxibonsai.cli.foreign_options import Command
from oxibonsai.cli.model_choice import model_argument
from oxibonsai.cli.options import (
    json_option,
    load_engine,
    lora_options,
    machine_options,
    model_options,
)
from oxibonsai.cli.output import OutputFolder
from oxibonsai.errors import RequestError
from oxibonsai.files.whole_file import make_folder, written_whole


@click.command(cls=Command)
@model_argument
@model_options
@lora_options
@click.option(
    "--tasks", required=True, metavar="NAMES", help="Tasks and groups of the harness, with commas."
)
@click.option(
    "--include-path",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="A folder with tasks of your own, as YAML files of the harness.",
)
@click.option("--limit", type=click.IntRange(1), help="Documents of a task at most. Default: all.")
@click.option(
    "--num-fewshot", type=click.IntRange(0), help="Examples before a question. Default: the task's."
)
@click.option(
    "--apply-chat-template", is_flag=True, help="Write prompts as turns of a conversation."
)
@click.option(
    "--seed", type=click.IntRange(0), default=0, show_default=True, help="Of examples and samples."
)
@click.option(
    "--batch-size",
    "-b",
    type=click.IntRange(1),
    default=16,
    show_default=True,
    help="Texts that run at once. Results don't depend on it.",
)
@click.option(
    "--ctx-size",
    "-c",
    type=click.IntRange(2),
    help="Positions of a text; longer ones lose their beginning. Default: the model's.",
)
@click.option(
    "--output",
    "-o",
    type=OutputFolder(),
    metavar="FOLDER",
    help="Write results.json with every number and setting into this folder, and the answers so far.",
)
@click.option(
    "--resume", is_flag=True, help="Take the answers that an interrupted run left in --output."
)
@machine_options
@json_option
def eval(
    model: str | None,
    quant_type: str,
    tasks: str,
    include_path: Path | None,
    limit: int | None,
    num_fewshot: int | None,
    apply_chat_template: bool,
    seed: int,
    batch_size: int,
    ctx_size: int | None,
    output: Path | None,
    resume: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Run benchmarks of lm-evaluation-harness, whose numbers these are."""
    from oxibonsai.evaluate.harness import find_tasks, run_tasks, table

    if resume and output is None:
        raise RequestError("--resume needs the --output of the run that was interrupted")
    manager, names = find_tasks(tasks.split(","), include_path)
    settings = {name: options[name] for name in ("kv_pressure", "load_as")}
    engine = load_engine(model, quant_type, ctx_size=ctx_size, parallel=batch_size, **options)
    if output is not None:
        make_folder(output)
    results = run_tasks(
        engine,
        names,
        manager,
        batch_size=batch_size,
        limit=limit,
        num_fewshot=num_fewshot,
        apply_chat_template=apply_chat_template,
        seed=seed,
        settings={"quant_type": quant_type, **settings},
        answers=None if output is None else output / "answers",
        resume=resume,
    )
    text = json.dumps(results, indent=None if as_json else 2, default=str)
    if output is not None:
        with written_whole(output / "results.json") as out:
            out.write(text.encode())
    click.echo(text if as_json else table(results))
