"""``oxibonsai export-web``: a model as a folder that runs it in a browser."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import rich_click as click

from oxibonsai.chat.template import load_template
from oxibonsai.checkpoint import Checkpoint
from oxibonsai.cli.foreign_options import Command
from oxibonsai.cli.options import json_option
from oxibonsai.cli.output import OutputFolder, file_facts, warn
from oxibonsai.engine.memory import default_kv_type
from oxibonsai.export.web_folder import SAMPLING, ChatFormat, write_web_folder
from oxibonsai.known_models.recommendation import recommend
from oxibonsai.loading import open_model
from oxibonsai.models import describe
from oxibonsai.output import find_reasoning_tags
from oxibonsai.sampling import SamplingParams
from oxibonsai.tokenizer import Tokenizer


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

    Any static server serves the folder. Weights, the graph, the tokenizer and the chat template are the
    model's own, and texts are those of oxibonsai run.
    """
    checkpoint = open_model(source)
    params = asdict(recommend(checkpoint.file, checkpoint.path).params(None))
    neutral = asdict(SamplingParams())
    warnings = [
        f"{name} {value}, which is recommended for the model, is not exported"
        for name, value in params.items()
        if name not in SAMPLING and value != neutral[name]
    ]
    chat = _chat_format(checkpoint, warnings)
    name = checkpoint.file.get("general.name")
    made = write_web_folder(
        checkpoint,
        out,
        core=core,
        kv_type=default_kv_type(describe(checkpoint).paged_layers),
        sampling=params,
        name=name if isinstance(name, str) and name else checkpoint.path.stem,
        chat=chat,
    )
    warn(warnings)
    if as_json:
        click.echo(json.dumps({"files": [file_facts(file) for file in made], "warnings": warnings}))
        return
    size = sum(file.stat().st_size for file in made)
    click.echo(
        f"{out}: {len(made)} files, {size / 1e6:.1f} MB; serve it: python -m http.server -d {out}"
    )


def _chat_format(checkpoint: Checkpoint, warnings: list[str]) -> ChatFormat | None:
    """Return how the model's conversations are written; None where it has no chats in a browser."""
    if checkpoint.file.get("tokenizer.ggml.model") is None:
        return None  # the folder has no tokenizer either, which its writer refuses
    tokenizer = Tokenizer.from_gguf(checkpoint.file)
    template = load_template(checkpoint, tokenizer)
    if template is None:
        warnings.append("the model has no chat template: its texts can be continued, not answered")
        return None
    tags = find_reasoning_tags(template.source)
    if tags is None:
        return ChatFormat(template)
    hidden = {tokenizer.vocabulary.texts[i] for i in tokenizer.special_ids} & tags.marks
    if hidden:
        warnings.append(
            f"the model marks its reasoning by control tokens ({', '.join(sorted(hidden))}), which a "
            "browser's text does not show: its texts can be continued, not answered"
        )
        return None
    return ChatFormat(template, (tags.open, tags.close))
