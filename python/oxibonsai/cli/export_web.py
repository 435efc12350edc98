"""``oxibonsai export-web``: a model as a folder that runs it in a browser."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import rich_click as click

from oxibonsai.cli.foreign_options import Command
from oxibonsai.cli.options import json_option
from oxibonsai.cli.output import OutputFolder, file_facts, warn
from oxibonsai.engine.memory import default_kv_type
from oxibonsai.export.web_folder import SAMPLING, write_web_folder
from oxibonsai.known_models.recommendation import recommend
from oxibonsai.loading import open_model
from oxibonsai.models import describe
from oxibonsai.sampling import SamplingParams


@click.command("export-web", cls=Command)
@click.argument("source", metavar="IN")
@click.argument("out", metavar="OUT", type=OutputFolder())
@click.option(
    "--core",
    metavar="FOLDER",
    required=True,
    type=click.Path(path_type=Path),
    help="Where core.mjs and core.wasm are, which CMake builds with Emscripten.",
)
@json_option
def export_web(source: str, out: Path, core: Path, as_json: bool) -> None:
    """Write the model IN into the folder OUT, with a page that runs it in a browser.

    Any static server serves the folder. Weights, the graph and the tokenizer are the model's own, and
    texts are those of oxibonsai run --raw.
    """
    checkpoint = open_model(source)
    params = asdict(recommend(checkpoint.file, checkpoint.path).params(None))
    neutral = asdict(SamplingParams())
    warnings = [
        f"{name} {value}, which is recommended for the model, is not exported"
        for name, value in params.items()
        if name not in SAMPLING and value != neutral[name]
    ]
    name = checkpoint.file.get("general.name")
    made = write_web_folder(
        checkpoint,
        out,
        core=core,
        kv_type=default_kv_type(describe(checkpoint).paged_layers),
        sampling=params,
        name=name if isinstance(name, str) and name else checkpoint.path.stem,
    )
    warn(warnings)
    if as_json:
        click.echo(json.dumps({"files": [file_facts(file) for file in made], "warnings": warnings}))
        return
    size = sum(file.stat().st_size for file in made)
    click.echo(
        f"{out}: {len(made)} files, {size / 1e6:.1f} MB; serve it: python -m http.server -d {out}"
    )
