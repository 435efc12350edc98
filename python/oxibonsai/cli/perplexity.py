"""``oxibonsai perplexity``: how well a model predicts a text, how far it is from another model."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
from oxibonsai.cli.output import OutputFile
from oxibonsai.engine import Engine
from oxibonsai.errors import CapacityError, RequestError
from oxibonsai.evaluate import (
    Divergence,
    Estimate,
    KlBase,
    KlBaseWriter,
    Perplexity,
    base_bytes,
    cut_windows,
    measure_divergence,
    measure_perplexity,
    text_tokens,
)
from oxibonsai.files.step_progress import step_progress
from oxibonsai.files.whole_file import is_replaced, make_room, written_whole

_DEFAULT_CTX_SIZE = 512


chunks_option = click.option(
    "--chunks",
    type=click.IntRange(-1),
    callback=lambda _, __, value: value if value is not None and value > 0 else None,
    help="Windows at most. Default: all.",
)


@click.command(cls=Command)
@model_argument
@model_options
@click.option("--file", "-f", type=click.Path(path_type=Path), help="The text, in UTF-8.")
@click.option(
    "--kl-base",
    type=click.Path(path_type=Path),
    metavar="BASE",
    help="Compare with the log-probabilities of another model that this file holds (also one that "
    "llama-perplexity wrote). Its text is used; a --file must be the same.",
)
@click.option(
    "--save-kl-base",
    type=OutputFile(),
    metavar="BASE",
    help="Write the log-probabilities to a file, to compare other models with.",
)
@click.option(
    "--kl-divergence",
    is_flag=True,
    hidden=True,
    help="llama.cpp's: --kl-divergence-base is compared with, not written.",
)
@click.option(
    "--kl-divergence-base",
    "--save-all-logits",
    "all_logits",
    type=click.Path(path_type=Path),
    metavar="BASE",
    hidden=True,
    help="llama.cpp's: --save-kl-base, or --kl-base with --kl-divergence.",
)
@click.option(
    "--ctx-size",
    "-c",
    type=click.IntRange(1),
    help=f"Tokens of a window. Default: {_DEFAULT_CTX_SIZE}, with --kl-base that file's.",
)
@chunks_option
@click.option(
    "--stride",
    "--ppl-stride",
    "stride",
    type=click.IntRange(1),
    help="Overlapping windows that begin every so many tokens. Default: side by side.",
)
@lora_options
@machine_options
@json_option
def perplexity(
    model: str | None,
    quant_type: str,
    file: Path | None,
    kl_base: Path | None,
    save_kl_base: Path | None,
    kl_divergence: bool,
    all_logits: Path | None,
    ctx_size: int | None,
    chunks: int | None,
    stride: int | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Measure perplexity, or divergence from a base, as llama-perplexity defines them."""
    if kl_divergence and all_logits is None:
        raise RequestError("--kl-divergence needs --kl-divergence-base, or give --kl-base alone")
    if kl_divergence:
        kl_base = kl_base or all_logits
    elif all_logits is not None:
        save_kl_base = save_kl_base or OutputFile().convert(
            str(all_logits), None, click.get_current_context()
        )
    text = None if file is None else read_text(file)
    if stride is not None and (kl_base is not None or save_kl_base is not None):
        raise RequestError("--stride does not go with --kl-base or --save-kl-base")
    if kl_base is None:
        if text is None:
            raise RequestError("no text: name a file with --file")
        size = ctx_size or _DEFAULT_CTX_SIZE
        longest = size + (stride or 0) // 2
        engine = load_engine(model, quant_type, ctx_size=longest, parallel=1, **options)
        check_windows(
            engine, longest, "give a smaller --ctx-size" + (" or --stride" if stride else "")
        )
        result = _perplexity(engine, text, size, chunks, stride, save_kl_base)
        _show(result, engine, size, as_json)
        return
    if save_kl_base is not None:
        raise RequestError("give one of --kl-base (compare) and --save-kl-base (write)")
    base = KlBase(kl_base)
    if ctx_size not in (None, base.ctx_size):
        raise RequestError(f"{kl_base} has windows of {base.ctx_size} tokens, not {ctx_size}")
    engine = load_engine(model, quant_type, ctx_size=base.ctx_size, parallel=1, **options)
    check_windows(engine, base.ctx_size, f"make {kl_base} with a smaller --ctx-size")
    _show(_divergence(engine, text, base, chunks), engine, base.ctx_size, as_json)


def check_windows(engine: Engine, size: int, advice: str) -> None:
    """Raise `RequestError` if windows of so many tokens are more than the model's context."""
    if size > engine.ctx_size:
        raise RequestError(
            f"windows of {size} tokens are more than the model's context of {engine.ctx_size}: {advice}"
        )


def read_text(file: Path) -> str:
    """Return the file's text, its line ends as they are."""
    try:
        return file.read_bytes().decode("utf-8")
    except UnicodeDecodeError as e:
        raise RequestError(f"{file} is not UTF-8 text (byte {e.start})") from e
    except OSError as e:
        raise RequestError(f"cannot read the text from {file}: {e.strerror}") from e


def _perplexity(
    engine: Engine,
    text: str,
    size: int,
    chunks: int | None,
    stride: int | None,
    save: Path | None,
) -> Perplexity:
    tokens = text_tokens(engine.tokenizer, text)
    windows = cut_windows(
        tokens, size, engine.tokenizer.vocabulary.leading_bos, chunks=chunks, stride=stride
    )
    with _estimate_progress(len(windows), "perplexity") as progress:
        if save is None:
            return measure_perplexity(engine, windows, None, progress)
        vocabulary = engine.model.config.vocab_size
        _check_room(save, base_bytes(size, vocabulary, len(windows)))
        with written_whole(save) as out:
            writer = KlBaseWriter(out, tokens[: size * len(windows)], size, vocabulary)
            return measure_perplexity(engine, windows, writer, progress)


def _check_room(place: Path, size: int) -> None:
    at = make_room(place, in_new_folder=False)
    free = shutil.disk_usage(at.parent).free
    if is_replaced(at) and free < size:
        raise CapacityError(
            f"the base needs {size} bytes, but {at.parent} has room for {free}: take fewer "
            "windows with --chunks, or another disk"
        )


def _divergence(engine: Engine, text: str | None, base: KlBase, chunks: int | None) -> Divergence:
    if text is not None:
        tokens = text_tokens(engine.tokenizer, text)[: len(base.tokens)]
        if tokens != base.tokens.tolist():
            raise RequestError(
                f"{base.path} was made of another text than --file, or with another tokenizer"
            )
    count = min(base.chunks, chunks or base.chunks)
    with _estimate_progress(count, "mean KL divergence") as progress:
        return measure_divergence(
            engine, base, engine.tokenizer.vocabulary.leading_bos, chunks, progress
        )


@contextmanager
def _estimate_progress(windows: int, name: str) -> Iterator[Callable[[int, float], None]]:
    """Show the windows that are done and the estimate so far."""
    with step_progress("Measuring", "windows") as progress:
        yield lambda done, estimate: progress(done, windows, f"{name} {estimate:.4f}")


def _show(result: Perplexity | Divergence, engine: Engine, ctx_size: int, as_json: bool) -> None:
    if as_json:
        report = {
            "model": str(engine.model.weights.checkpoint.path),
            "ctx_size": ctx_size,
            "kv_type": engine.kv_type,
            **dataclasses.asdict(result),
        }
        click.echo(json.dumps(report))
    elif isinstance(result, Perplexity):
        click.echo(f"PPL = {_text(result.ppl)}  ({result.windows} windows, {result.tokens} tokens)")
    else:
        click.echo("\n".join(_lines(result)))


def _lines(result: Divergence) -> list[str]:
    kl = result.kl_percentiles
    delta = {p: f"{100 * v:.3f} %" for p, v in result.delta_p_percentiles.items()}
    rows = [
        ("PPL", _text(result.ppl)),
        ("PPL of the base", _text(result.base_ppl)),
        ("correlation of ln(PPL)", f"{100 * result.correlation:.2f} %"),
        ("ln(PPL / base)", _text(result.log_ratio)),
        ("PPL / base", _text(result.ratio)),
        ("PPL - base", _text(result.difference)),
        ("KL mean", _text(result.kl)),
        *((f"KL {_rank(p)}", f"{v:.6f}") for p, v in kl.items()),
        ("Δp mean", _text(result.delta_p, 100, " %")),
        *((f"Δp {_rank(p)}", v) for p, v in delta.items()),
        ("Δp RMS", _text(result.delta_p_rms, 100, " %")),
        ("same top token", _text(result.same_top, 100, " %")),
        ("compared", f"{result.windows} windows, {result.tokens} tokens"),
    ]
    width = max(len(name) for name, _ in rows)
    return [f"{name:<{width}}  {value}" for name, value in rows]


def _rank(percent: str) -> str:
    return {"100": "maximum", "50": "median", "0": "minimum"}.get(percent, f"{percent} %")


def _text(estimate: Estimate, factor: float = 1, unit: str = "") -> str:
    digits = 3 if unit else 6
    return f"{factor * estimate.value:.{digits}f} ± {factor * estimate.error:.{digits}f}{unit}"
