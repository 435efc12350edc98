"""``oxibonsai run``: one prompt in, streamed text out."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import rich_click as click

from oxibonsai.chat import ChatRequest
from oxibonsai.cli.chat_options import (
    reasoning_options,
    system_option,
    take_template,
    take_tools,
    template_options,
    tool_options,
)
from oxibonsai.cli.generation import Job, run_beams, run_samples
from oxibonsai.cli.generation_options import (
    context_shift_options,
    speculation_options,
    take_context_shift,
    take_speculation,
)
from oxibonsai.cli.image_options import (
    check_is_no_picture,
    check_sees,
    image_option,
    vision_options,
    with_images,
)
from oxibonsai.cli.llama_cpp_names import conversation_option
from oxibonsai.cli.options import engine_options, json_option, load_engine, model_options
from oxibonsai.cli.prompt import read_prompt
from oxibonsai.cli.sampling_options import sampling_options, split_sampling
from oxibonsai.cli.structure_options import split_structure, structure_options
from oxibonsai.engine import Options
from oxibonsai.errors import RequestError
from oxibonsai.sampling import SamplingParams


@click.command()
@model_options
@click.argument("text", metavar="[PROMPT]", required=False)
@click.option(
    "--prompt", "-p", help="The prompt; also as an argument or a file; - or nothing: stdin."
)
@click.option("--file", "-f", type=click.Path(path_type=Path), help="Read the prompt from a file.")
@click.option(
    "--raw",
    "--no-conversation",
    "-no-cnv",
    "raw",
    is_flag=True,
    help="Take the prompt as it stands, without a chat template.",
)
@conversation_option("oxibonsai chat is for conversations", single_turn=True)
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
def run(
    model: str | None,
    quant_type: str,
    text: str | None,
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
    enable_thinking: bool | None,
    thinking_budget: int | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Continue a prompt and stream the text to stdout; timings go to stderr.

    Text on stdin goes before a prompt that is given: `oxibonsai run "Summarise this:" < FILE`.

    The model's chat template is used where it has one, unless --raw is given.
    """
    if images:
        check_is_no_picture(text)
    message = read_prompt(text, prompt, file, joins_stdin=True)
    params = split_sampling(options)
    tools, tool_choice = take_tools(options)
    speculates = options["speculate"] != "off" or options["draft_model"] is not None
    make_speculate = take_speculation(options)
    request = ChatRequest(
        messages=[
            *([{"role": "system", "content": system}] if system is not None else []),
            {"role": "user", "content": with_images(message, images)},
        ],
        tools=tools,
        tool_choice=tool_choice,
        structure=split_structure(options),
        enable_thinking=enable_thinking,
        thinking_budget=thinking_budget,
    )
    own = Options(shift=take_context_shift(options))
    if params.logprobs and not as_json:
        raise RequestError("--logprobs needs --json: the probabilities are part of the object")
    if beams is not None:
        if request.structure or tools or samples > 1 or best_of is not None:
            raise RequestError("--beams goes with no structure, tools, --samples or --best-of")
        _check_beams(params, others=own.shift is not None or speculates)
    if best_of is not None and best_of < samples:
        raise RequestError(f"--best-of {best_of} is less than --samples {samples}")
    if raw and images:
        raise RequestError("--raw takes no --image: pictures have their place in a chat template")
    if raw and (options["chat_template"] or options["chat_template_file"]):
        raise RequestError("--raw takes no chat template: leave out one of them")
    choose = take_template(options)
    engine = load_engine(model, quant_type, **options)
    own = replace(own, speculate=make_speculate(engine))
    template = choose(engine)
    if images:
        check_sees(engine)
    if raw or template is None:
        if system is not None or tools or images:
            name = "--tools" if tools else "--image" if images else "--system"
            raise RequestError(
                f"{name} needs a chat template: leave out --raw, and where the model has none, give "
                "one with --chat-template (chatml, or Jinja) or --chat-template-file"
            )
        ids = engine.tokenizer.encode(message)
        job = Job(engine, params, replace(own, structure=request.structure), ids)
    else:
        job = Job.of_chat(engine, template, params, own, request)
    # Behind an encoder a text begins anew.
    continues = engine.model.config.decoder is None
    continues = continues and engine.tokenizer.decode(job.ids).endswith(message)
    if display_prompt and continues and request.structure is None:
        job = replace(job, opening=message)
    if beams is not None:
        result = run_beams(job, beams, length_penalty, show=not as_json)
    else:
        result = run_samples(job, samples, best_of, show=not as_json)
    if as_json:
        click.echo(json.dumps(result, ensure_ascii=False))


def _check_beams(params: SamplingParams, *, others: bool) -> None:
    """Refuses what a search would pass over."""
    if others or replace(params, max_tokens=None) != SamplingParams():
        raise RequestError(
            "--beams takes no samples: of the options about sampling, speculation and context "
            "shift it goes with --max-tokens alone"
        )
