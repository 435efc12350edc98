"""``oxibonsai tokenize`` and ``detokenize``; files and folders with a vocabulary alone are enough."""

from __future__ import annotations

import json
from pathlib import Path

import rich_click as click

from oxibonsai.cli.foreign_options import Command
from oxibonsai.cli.options import json_option, model_options
from oxibonsai.cli.prompt import escape_option, file_option, prompt_option, read_prompt
from oxibonsai.errors import RequestError
from oxibonsai.loading import open_model
from oxibonsai.tokenizer import Tokenizer
from oxibonsai.tokenizer.files.loading import open_tokenizer, tokenizer_folder


def _tokenizer(model: str | None, quant_type: str) -> Tokenizer:
    folder = tokenizer_folder(model)
    if folder is not None:
        return open_tokenizer(folder)
    return Tokenizer.from_gguf(open_model(model, quant_type, vocabulary_only=True).file)


@click.command(cls=Command)
@model_options
@click.argument("text", required=False)
@prompt_option("The text; also as an argument, a file or on stdin.")
@file_option("Read the text from a file.")
@escape_option
@click.option("--no-special", "--no-bos", "no_special", is_flag=True, help="Add no bos or eos.")
@click.option("--parse-special", is_flag=True, help="Turn the text of special tokens into them.")
@json_option
def tokenize(
    model: str | None,
    quant_type: str,
    text: str | None,
    prompt: str | None,
    file: Path | None,
    no_special: bool,
    parse_special: bool,
    as_json: bool,
) -> None:
    """Turn text into token ids: one line an id with its text."""
    content = read_prompt(text, prompt, file)
    tokenizer = _tokenizer(model, quant_type)
    ids = tokenizer.encode(content, add_special=not no_special, parse_special=parse_special)
    pieces = [tokenizer.token_bytes(i).decode("utf-8", "replace") for i in ids]
    if as_json:
        click.echo(json.dumps({"tokens": ids, "pieces": pieces}, ensure_ascii=False))
        return
    for token, piece in zip(ids, pieces, strict=True):
        click.echo(f"{token}\t{piece!r}")


@click.command(cls=Command)
@model_options
@click.argument("ids", nargs=-1, type=int)
@click.option("--keep-special", is_flag=True, help="Write control tokens as their text.")
@json_option
def detokenize(
    model: str | None, quant_type: str, ids: tuple[int, ...], keep_special: bool, as_json: bool
) -> None:
    """Turn token ids into text."""
    if not ids:
        raise RequestError("no token ids: give them as arguments")
    text = _tokenizer(model, quant_type).decode(ids, skip_special=not keep_special)
    click.echo(json.dumps({"text": text}, ensure_ascii=False) if as_json else text)
