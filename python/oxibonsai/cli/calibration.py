"""Options of ``oxibonsai quantize`` that read a text, and what it does with them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

import rich_click as click

from oxibonsai.calibrate import choose_types, encode_with_feedback
from oxibonsai.cli.options import Command, apply, load_engine
from oxibonsai.cli.perplexity import check_windows, read_text
from oxibonsai.engine import Engine
from oxibonsai.errors import RequestError
from oxibonsai.evaluate import cut_windows, text_tokens
from oxibonsai.evaluate.windows import MIN_CTX_SIZE
from oxibonsai.files.step_progress import step_progress
from oxibonsai.imatrix import Imatrix, collect
from oxibonsai.quantize import Plan, TypeRules, make_plan
from oxibonsai.quantize.blocks import Encoded
from oxibonsai.quantize.type_choice import Tensor

_DEFAULT_CTX_SIZE = 512
_DEFAULT_WINDOWS = 32
_DEFAULT_LAYERS_AT_ONCE = 4

Rules = Callable[[Sequence[tuple[str, str]]], TypeRules]


@dataclass(frozen=True)
class CalibrationOptions:
    """Values of the options.

    Attributes:
        text: The calibration text; None: nothing is calibrated.
        feedback: Encode with error feedback.
        target_bits: Choose types for so many bits a weight; None: those of the mix.
        ctx_size: Tokens of a window of the text.
        windows: Windows of the text that are read.
        layers_at_once: Layers whose inputs are collected in one pass over the text.
    """

    text: Path | None
    feedback: bool
    target_bits: float | None
    ctx_size: int
    windows: int
    layers_at_once: int

    @property
    def wanted(self) -> bool:
        """Whether anything is calibrated."""
        return self.feedback or self.target_bits is not None


@dataclass(frozen=True)
class Calibrated:
    """The plan, and the tensors that are encoded already."""

    plan: Plan
    encoded: Mapping[str, Encoded]


def calibration_options(command: Command) -> Command:
    """Add the options to a command, which is given them as ``calibration``."""

    @wraps(command)
    def given(
        *args: Any,
        calibration_text: Path | None,
        gptq: bool,
        target_bits: float | None,
        calibration_ctx_size: int | None,
        calibration_windows: int | None,
        layers_at_once: int | None,
        **options: Any,
    ) -> Any:
        if calibration_text is None and (gptq or target_bits is not None):
            raise click.UsageError("--gptq and --target-bits need a text: give --calibration FILE")
        if target_bits is not None and math.isnan(target_bits):
            raise click.UsageError("--target-bits is nan; it is a number from 1 to 16")
        alone = {
            "--calibration": calibration_text,
            "--calibration-ctx-size": calibration_ctx_size,
            "--calibration-windows": calibration_windows,
        }
        for name, value in alone.items():
            if value is not None and not gptq and target_bits is None:
                raise click.UsageError(f"{name} has an effect with --gptq or --target-bits alone")
        if not gptq and layers_at_once is not None:
            raise click.UsageError("--layers-at-once has an effect with --gptq alone")
        calibration = CalibrationOptions(
            calibration_text,
            gptq,
            target_bits,
            calibration_ctx_size or _DEFAULT_CTX_SIZE,
            calibration_windows or _DEFAULT_WINDOWS,
            layers_at_once or _DEFAULT_LAYERS_AT_ONCE,
        )
        return command(*args, calibration=calibration, **options)

    options = [
        click.option(
            "--gptq",
            is_flag=True,
            help="Let each weight's rounding make up for that of the weights before it, for what the "
            "layers read in the calibration text.",
        ),
        click.option(
            "--target-bits",
            type=click.FloatRange(1.0, 16.0),
            metavar="BITS",
            help="Choose types for the matrices of the layers by what they cost, with so many bits a "
            "weight on average; all others are TYPE's.",
        ),
        click.option(
            "--calibration",
            "calibration_text",
            type=click.Path(path_type=Path, dir_okay=False, exists=True),
            metavar="FILE",
            help="The text, in UTF-8: like what the model will be used for.",
        ),
        click.option(
            "--calibration-ctx-size",
            type=click.IntRange(MIN_CTX_SIZE),
            help="Tokens of a window of it; each is read from an empty context.  "
            f"[default: {_DEFAULT_CTX_SIZE}]",
        ),
        click.option(
            "--calibration-windows",
            type=click.IntRange(1),
            help=f"Windows that are read of it, evenly spaced.  [default: {_DEFAULT_WINDOWS}]",
        ),
        click.option(
            "--layers-at-once",
            type=click.IntRange(1),
            help="Layers whose inputs are collected in one pass over the text, behind those that are "
            f"rounded already.  [default: {_DEFAULT_LAYERS_AT_ONCE}]",
        ),
    ]
    return apply(options, given)


def calibrate(
    source: str,
    rules: Rules,
    imatrix: Imatrix | None,
    calibration: CalibrationOptions,
    threads: int,
    *,
    encode: bool,
) -> Calibrated:
    """Plan a model's types and encode its layers for a text.

    Args:
        source: The model.
        rules: Given patterns that come before the user's, returns the rules.
        imatrix: The importance of columns; None: it is computed over the text.
        calibration: The options.
        threads: Share out the rows.
        encode: Whether the layers are encoded, or only planned.

    Raises:
        RequestError: The text is too short, its windows are longer than the model's context, or the
            bits are too few.
    """
    assert calibration.text is not None
    text, size = read_text(calibration.text), calibration.ctx_size
    engine = load_engine(source, "", ctx_size=size, parallel=1, threads=threads)
    check_windows(engine, size, f"give --calibration-ctx-size {engine.ctx_size} or less")
    windows = _windows(engine, calibration.text, text, size, calibration.windows)
    if imatrix is None:
        with step_progress("Reading the text", "windows") as progress:
            for imatrix in collect(engine, windows, datasets=[calibration.text.name]):
                progress(imatrix.chunk_count, len(windows), "")
        assert imatrix is not None
    file = engine.model.weights.checkpoint.file
    asked = rules(())
    plan = make_plan(file, asked, imatrix)
    if calibration.target_bits is not None:

        def fixed(tensor: Tensor) -> bool:
            return any(pattern.search(tensor.name) for pattern, _ in asked.patterns)

        with step_progress("Choosing types", "steps") as progress:
            chosen = choose_types(
                engine.model,
                engine.kv_type,
                plan,
                imatrix,
                windows,
                calibration.target_bits,
                fixed=fixed,
                feedback=calibration.feedback,
                threads=threads,
                progress=progress,
            )
        patterns = [(f"^{re.escape(name)}$", kind) for name, kind in chosen.types.items()]
        plan = make_plan(file, rules(patterns), imatrix)
    encoded: Mapping[str, Encoded] = {}
    if calibration.feedback and encode:
        with step_progress("Rounding", "layers") as progress:
            encoded = encode_with_feedback(
                engine.model,
                engine.kv_type,
                plan,
                windows,
                layers_at_once=calibration.layers_at_once,
                threads=threads,
                progress=progress,
            )
    return Calibrated(plan, encoded)


def _windows(engine: Engine, path: Path, text: str, size: int, count: int) -> list[tuple[int, ...]]:
    """Return windows of a text, as many as asked for where it is long enough, evenly spaced.

    Args:
        engine: Its tokenizer cuts the text.
        path: The text's, for errors.
        text: What it says.
        size: Tokens of a window.
        count: How many at most.

    Raises:
        RequestError: The text has fewer tokens than two windows.
    """
    bos = engine.tokenizer.vocabulary.leading_bos
    tokens = text_tokens(engine.tokenizer, text)
    if len(tokens) < 2 * size:
        raise RequestError(
            f"{path} has {len(tokens)} tokens; to calibrate takes {2 * size} at least: give a longer text"
        )
    cut = cut_windows(tokens, size, bos)
    taken = min(count, len(cut))
    return [cut[i * len(cut) // taken].inputs for i in range(taken)]
