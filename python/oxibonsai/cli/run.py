"""``oxibonsai run``: one prompt in, streamed text out."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import rich_click as click

from oxibonsai.chat import ChatRequest
from oxibonsai.cli.chat_options import (
    guess_template,
    reasoning_options,
    system_option,
    take_reasoning,
    take_template,
    take_tools,
    template_options,
    tool_options,
)
from oxibonsai.cli.foreign_options import Command
from oxibonsai.cli.generation import Job, run_beams, run_samples
from oxibonsai.cli.generation_options import (
    context_shift_options,
    speculation_options,
    take_context_shift,
    take_speculation,
)
from oxibonsai.cli.image_options import (
    check_is_no_image,
    check_sees,
    image_option,
    vision_options,
    with_images,
)
from oxibonsai.cli.options import engine_options, json_option, load_engine, model_options
from oxibonsai.cli.prompt import escape_option, file_option, prompt_option, read_prompt, split_model
from oxibonsai.cli.sampling_options import GivenSampling, sampling_options, split_sampling
from oxibonsai.cli.structure_options import split_structure, structure_options
from oxibonsai.engine import Options
from oxibonsai.engine.speculation.methods import AUTO
from oxibonsai.errors import RequestError
from oxibonsai.structured import DescribedJson


@click.command(cls=Command)
@model_options
@click.argument("words", metavar="[MODEL] [PROMPT]", nargs=-1)
@prompt_option("The prompt; also as an argument or a file; - or nothing: stdin.")
@file_option("Read the prompt from a file.")
@escape_option
@click.option(
    "--raw",
    "--no-conversation",
    "-no-cnv",
    "raw",
    is_flag=True,
    help="Take the prompt as it stands, without a chat template.",
)
@click.option(
    "--display-prompt/--no-display-prompt",
    "display_prompt",
    default=True,
    help="Print the prompt before the text that continues it, as with --raw. A question, or the "
    "prompt of structured output, is never printed.",
)
@system_option
@image_option
@vision_options
@click.option("--samples", type=click.IntRange(1, 128), default=1, help="Texts to make.")
@click.option("--best-of", type=click.IntRange(1, 128), help="Make so many, show the likeliest.")
@click.option("--beams", type=click.IntRange(1, 64), help="Search the likeliest text with beams.")
@click.option(
    "--length-penalty", type=float, default=1.0, show_default=True, help="Of beam search."
)
@engine_options
@sampling_options
@structure_options
@template_options
@tool_options
@reasoning_options
@speculation_options
@context_shift_options
@json_option
@click.pass_context
def run(
    ctx: click.RichContext,
    /,
    model: str | None,
    quant_type: str,
    words: tuple[str, ...],
    prompt: str | None,
    file: Path | None,
    raw: bool,
    display_prompt: bool,
    system: str | None,
    images: list[Path],
    samples: int,
    best_of: int | None,
    beams: int | None,
    length_penalty: float,
    hide_thinking: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Continue a prompt and stream the text to stdout; timings go to stderr.

    Text on stdin goes before a prompt that is given: `oxibonsai run "Summarise this:" < FILE`.

    The model's chat template is used where it has one, unless --raw is given.
    """
    prompted = prompt is not None or file is not None
    model, text = split_model(ctx, model, words, prompted=prompted)
    if images:
        check_is_no_image(text)
    message = read_prompt(text, prompt, file, joins_stdin=True)
    sampling = split_sampling(options)
    tools, tool_choice = take_tools(options)
    speculates = options["speculate"] != AUTO or options["draft_model"] is not None
    make_speculate = take_speculation(options)
    request = ChatRequest(
        messages=[
            *([{"role": "system", "content": system}] if system is not None else []),
            {"role": "user", "content": with_images(message, images)},
        ],
        tools=tools,
        tool_choice=tool_choice,
        structure=split_structure(options),
        **take_reasoning(options),
    )
    own = Options(shift=take_context_shift(options))
    if sampling.given.get("logprobs") and not as_json:
        raise RequestError("--logprobs needs --json: the probabilities are part of the object")
    if beams is not None:
        if request.structure or tools or samples > 1 or best_of is not None:
            raise RequestError("--beams goes with no structure, tools, --samples or --best-of")
        _check_beams(sampling, others=own.shift is not None or speculates)
    if best_of is not None and best_of < samples:
        raise RequestError(f"--best-of {best_of} is less than --samples {samples}")
    if raw and images:
        raise RequestError("--raw takes no --image: pictures have their place in a chat template")
    if raw and (options["chat_template"] or options["chat_template_file"]):
        raise RequestError("--raw takes no chat template: leave out one of them")
    choose = take_template(options)
    engine = load_engine(model, quant_type, **options)
    if beams is None:
        own = replace(own, speculate=make_speculate(engine))
    template = choose(engine)
    if images:
        check_sees(engine)
    asks = [("--tools", tools), ("--image", images), ("--system", system is not None)]
    needs = next((name for name, given in asks if given), None)
    if raw and needs:
        raise RequestError(f"{needs} needs a chat template: leave out --raw")
    if template is None and needs:
        template = guess_template(engine)
    if raw or template is None:
        params = sampling.params(engine.recommended, None)
        ids = engine.tokenizer.encode(message)
        job = Job(engine, params, replace(own, structure=request.structure), ids)
    else:
        params = sampling.params(engine.recommended, request.thinks)
        job = Job.of_chat(engine, template, params, own, request)
    # Behind an encoder a text begins anew.
    continues = engine.model.config.decoder is None
    continues = continues and engine.tokenizer.decode(job.ids).endswith(message)
    if display_prompt and continues and request.structure is None:
        job = replace(job, opening=message)
    if hide_thinking:
        job = replace(job, shows_reasoning=False)
    if beams is not None:
        result = run_beams(job, beams, length_penalty, show=not as_json)
    else:
        result = run_samples(job, samples, best_of, show=not as_json)
        if isinstance(request.structure, DescribedJson):
            _check_answers(request.structure, result.get("samples", [result]))
    if as_json:
        click.echo(json.dumps(result, ensure_ascii=False))


def _check_answers(structure: DescribedJson, answers: Sequence[Mapping[str, Any]]) -> None:
    """Say where whole answers break what the schema says and no grammar enforces."""
    for answer in answers:
        problem = structure.problem(answer["text"]) if answer["finish_reason"] == "stop" else ""
        if problem:
            click.echo(f"oxibonsai: the answer breaks the JSON schema: {problem}", err=True)


def _check_beams(sampling: GivenSampling, *, others: bool) -> None:
    """Refuse what a search would pass over."""
    if others or not sampling.only_length:
        raise RequestError(
            "--beams takes no samples: of the options about sampling, speculation and context "
            "shift it goes with --max-tokens alone"
        )
