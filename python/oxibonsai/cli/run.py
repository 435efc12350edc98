"""``oxibonsai run``: one prompt in, streamed text out."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import rich_click as click

from oxibonsai.cli.options import (
    engine_options,
    json_option,
    load_engine,
    model_options,
    sampling_options,
    split_sampling,
)
from oxibonsai.engine import Engine
from oxibonsai.errors import RequestError
from oxibonsai.sampling import SamplingParams
from oxibonsai.tokenizer import StreamDecoder


@click.command()
@model_options
@click.argument("text", metavar="[PROMPT]", required=False)
@click.option("--prompt", "-p", help="The prompt; also as an argument, a file or on stdin.")
@click.option("--file", "-f", type=click.Path(path_type=Path), help="Read the prompt from a file.")
@click.option("--raw", is_flag=True, help="Take the prompt as it stands, without a chat template.")
@click.option("--system", metavar="TEXT", help="System message of the chat template.")
@engine_options
@sampling_options
@json_option
def run(
    model: str | None,
    quant_type: str,
    text: str | None,
    prompt: str | None,
    file: Path | None,
    raw: bool,
    system: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Continue a prompt and stream the text to stdout; timings go to stderr.

    The model's chat template is used where it has one, unless --raw is given.
    """
    message = read_prompt(text, prompt, file)
    params = split_sampling(options)
    started = time.perf_counter()
    engine = load_engine(model, quant_type, **options)
    load_seconds = time.perf_counter() - started
    ids = prompt_ids(engine, message, raw=raw, system=system)
    result = _generate(engine, ids, params, show=not as_json)
    result["timings"]["load_s"] = round(load_seconds, 4)
    if as_json:
        click.echo(json.dumps(result, ensure_ascii=False))
        return
    t = result["timings"]
    click.echo(
        f"prompt: {len(ids)} tokens, {t['prompt_tok_s']:.1f} tok/s; generated: "
        f"{len(result['tokens'])} tokens, {t['tok_s']:.1f} tok/s; load: {load_seconds:.2f} s",
        err=True,
    )


def read_prompt(argument: str | None, option: str | None, file: Path | None) -> str:
    """The prompt from the one place that was named, else from stdin."""
    given = [argument is not None, option is not None, file is not None]
    if sum(given) > 1:
        raise RequestError("give the prompt once: as an argument, with --prompt or with --file")
    try:
        if file is not None:
            text = file.read_text(encoding="utf-8")
        elif option is not None or argument is not None:
            text = option if option is not None else argument or ""
        elif sys.stdin.isatty():
            raise RequestError(
                "no prompt: give it as an argument, with --prompt, --file or on stdin"
            )
        else:
            text = sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError as e:
        raise RequestError(f"the prompt is not UTF-8 text (byte {e.start})") from e
    except OSError as e:
        raise RequestError(f"cannot read the prompt from {file}: {e.strerror}") from e
    if not text.strip():
        raise RequestError("the prompt is empty: there is nothing to continue")
    return text


def prompt_ids(engine: Engine, message: str, *, raw: bool, system: str | None) -> list[int]:
    """Token ids of a prompt, in the chat format where the model has one."""
    if raw or engine.chat_template is None:
        if system is not None:
            raise RequestError(
                "--system needs a chat template: this model has none, or --raw is given"
            )
        return engine.tokenizer.encode(message)
    messages = [{"role": "system", "content": system}] if system is not None else []
    messages.append({"role": "user", "content": message})
    text = engine.chat_template.render(messages)
    return engine.tokenizer.encode(text, add_special=False, parse_special=True)


def _generate(
    engine: Engine, ids: list[int], params: SamplingParams, *, show: bool
) -> dict[str, Any]:
    """Runs to the end; prints pieces as they come if asked to."""
    stream = StreamDecoder(engine.tokenizer, continues=True)
    pieces: list[str] = []

    def emit(piece: str) -> None:
        pieces.append(piece)
        if show and piece:
            sys.stdout.write(piece)
            sys.stdout.flush()

    started = time.perf_counter()
    first = started
    tokens: list[int] = []
    for token in engine.generate_tokens(ids, params):
        if not tokens:
            first = time.perf_counter()
        tokens.append(token)
        emit(stream.feed(token))
    emit(stream.flush())
    finished = time.perf_counter()
    if show:
        sys.stdout.write("\n")
    decode = finished - first
    sequence = engine.last
    return {
        "prompt_tokens": ids,
        "tokens": tokens,
        "text": "".join(pieces),
        "finish_reason": None if sequence is None else sequence.finish_reason,
        "seed": None if sequence is None else sequence.sampler.seed,
        "timings": {
            "prompt_s": round(first - started, 4),
            "prompt_tok_s": round(len(ids) / max(first - started, 1e-9), 2),
            "decode_s": round(decode, 4),
            # The first token comes with the prompt.
            "tok_s": round((len(tokens) - 1) / decode, 2) if len(tokens) > 1 else 0.0,
        },
    }
