"""``oxibonsai bench``: prompt and generation speed, and their share of the machine's limits."""

from __future__ import annotations

import json
import math
import platform
import re
import statistics
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any

import rich_click as click
from click.core import ParameterSource

from oxibonsai import __version__, _core
from oxibonsai.cli.bench_image import image
from oxibonsai.cli.bench_output import FORMATS, Record, Test, records
from oxibonsai.cli.bench_serve import serve
from oxibonsai.cli.bench_speculation import speculation
from oxibonsai.cli.foreign_options import Group
from oxibonsai.cli.model_choice import name_model
from oxibonsai.cli.options import (
    engine_options,
    json_option,
    load_engine,
    model_options,
    profile_option,
)
from oxibonsai.devices import CPU, Device, OpShare, profile, profile_lines
from oxibonsai.engine import Engine
from oxibonsai.errors import RequestError
from oxibonsai.files.step_progress import step_progress
from oxibonsai.sampling import GREEDY, SamplingParams

Measure = Callable[[], float]

MOST_SPREAD = 0.25  # of the shares of the rounds, beside their median


def run_rounds(
    limits: Mapping[str, Measure],
    work: Mapping[str, Measure],
    rounds: int,
    progress: Callable[[int, int, str], None] | None = None,
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Measure the limits, then the work, round after round.

    On a shared machine both change from one second to the next, and only figures of the same moment
    make a share.

    Args:
        limits: What bounds the work, by its name.
        work: Rates by the test's name; each runs once before, to warm up.
        rounds: How often each is measured.
        progress: Told, between measurements, the rounds that are done, all of them, and what is
            known so far.

    Returns:
        The limits, each the better of what was measured before and after a round; and the work.
    """
    for measure in work.values():
        measure()
    found: dict[str, list[float]] = {name: [] for name in limits}
    done: dict[str, list[float]] = {name: [] for name in work}
    for done_rounds in range(rounds):
        _measure(limits, found)
        _measure(work, done)
        if progress is not None:
            rates = (
                f"{name} {statistics.median(values):.1f} tok/s" for name, values in done.items()
            )
            progress(done_rounds + 1, rounds, ", ".join(rates))
    _measure(limits, found)
    return {name: [max(pair) for pair in pairwise(values)] for name, values in found.items()}, done


def _measure(measures: Mapping[str, Measure], into: dict[str, list[float]]) -> None:
    for name, measure in measures.items():
        into[name].append(measure())


@dataclass(frozen=True)
class Share:
    """Work as a share of its limit.

    Attributes:
        value: The median of the rounds; None where it would mean nothing.
        spread: Of the rounds, largest less smallest, beside the median.
        doubt: Why there is no value; empty where there is one.
    """

    value: float | None
    spread: float
    doubt: str = ""

    @classmethod
    def of(cls, work: Sequence[float], limit: Sequence[float]) -> Share:
        """Return the share of each round, work and limit in the same unit."""
        shares = [w / most for w, most in zip(work, limit, strict=True)]
        middle = statistics.median(shares)
        spread = (max(shares) - min(shares)) / middle
        if spread > MOST_SPREAD:
            return cls(
                None,
                spread,
                f"the machine was too noisy for a share: the rounds differ by {spread:.0%}",
            )
        if max(shares) > 1.0:
            return cls(
                None,
                spread,
                f"no share: {max(shares):.0%} of what was measured as the limit; the weights stay in "
                "a cache, or others used the machine",
            )
        return cls(middle, spread)


_BANDWIDTH_BYTES = 1 << 30
_PASSES = 3  # the fastest counts
# Limits: bytes that are read, and multiply-adds of bytes, per second.
_BANDWIDTH, _PEAK = "bandwidth", "int8_peak"


_RANGE = re.compile(r"(\d+)-(\d+)(?:([+*])(\d+))?")


def _counts(_: click.Context, __: click.Parameter, value: str) -> list[int]:
    """Return the numbers of ``64,128``, ``1-4``, ``64-256+64`` or ``1-64*2``, as llama-bench has them."""
    found: list[int] = []
    for part in value.split(","):
        span = _RANGE.fullmatch(part.strip())
        if span is None and not part.strip().isdecimal():
            raise click.BadParameter(
                f"{part!r} is no number of tokens, such as 64, 64,128 or 1-64*2"
            )
        if span is None:
            found.append(int(part))
            continue
        number, last, step = int(span[1]), int(span[2]), int(span[4] or 1)
        grows = step > 1 and number > 0 if span[3] == "*" else step > 0
        if not grows:
            raise click.BadParameter(f"{part!r} never ends: its step does not grow")
        while number <= last:
            found.append(number)
            number = number * step if span[3] == "*" else number + step
    return found


def _pairs(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> list[tuple[int, int]]:
    pairs = []
    for value in values:
        match = re.fullmatch(r"(\d+),(\d+)", value)
        if match is None:
            raise click.BadParameter(f"{value!r} is not PP,TG, such as 512,128")
        pairs.append((int(match[1]), int(match[2])))
    return pairs


class _Bench(Group):
    """A group whose first argument may be a model, as that of the other commands."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        rest = self.make_parser(ctx).parse_args(args=list(args))[1]
        if rest and self.get_command(ctx, rest[0]) is None and not ctx.resilient_parsing:
            name_model(ctx, rest[0])
            args = args[: len(args) - len(rest)] + rest[1:]
        return super().parse_args(ctx, args)


@click.group(
    cls=_Bench, invoke_without_command=True, subcommand_metavar="[MODEL] | serve [OPTIONS]"
)
@model_options
@click.option(
    "-p",
    "--n-prompt",
    default="512",
    show_default=True,
    metavar="N,N",
    callback=_counts,
    help="Tokens of a prompt to read; several, as 64,128, are measured one after the other.",
)
@click.option(
    "-n",
    "--n-gen",
    default="128",
    show_default=True,
    metavar="N,N",
    callback=_counts,
    help="Tokens to generate.",
)
@click.option(
    "-pg",
    "both",
    multiple=True,
    metavar="PP,TG",
    callback=_pairs,
    help="Read a prompt and generate, in one measurement.",
)
@click.option(
    "-d",
    "--n-depth",
    default="0",
    show_default=True,
    metavar="N,N",
    callback=_counts,
    help="Tokens of the context before what is measured.",
)
@click.option("-r", "--repetitions", type=click.IntRange(1), default=5, show_default=True)
@click.option(
    "-o",
    "--output",
    "output_format",
    type=click.Choice(list(FORMATS)),
    help="Print the results in a format of llama-bench.",
)
@click.option(
    "-oe",
    "--output-err",
    "error_format",
    type=click.Choice(list(FORMATS)),
    help="Print them to stderr in such a format, too.",
)
@engine_options
@profile_option
@json_option
@click.pass_context
def bench(
    ctx: click.RichContext,
    /,
    model: str | None,
    quant_type: str,
    n_prompt: list[int],
    n_gen: list[int],
    both: list[tuple[int, int]],
    n_depth: list[int],
    repetitions: int,
    output_format: str | None,
    error_format: str | None,
    with_profile: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Measure like llama-bench: ppN reads a prompt of N tokens, tgN generates N tokens.

    `bench serve` measures a running server instead, `bench speculation` what drafts bring there,
    `bench image` a model that draws.
    """
    if ctx.invoked_subcommand is not None:
        _refuse_options(ctx)
        return
    if as_json and output_format is not None:
        raise RequestError("--json and --output exclude each other")
    tests = _tests(n_prompt, n_gen, both, n_depth)
    # A repeated prompt is to be computed again, the context before it only once.
    options["prefix_cache"] = any(n_depth)
    engine = load_engine(model, quant_type, **options)
    device = engine.model.device
    longest = max(t.depth + t.prompt + t.generated + 1 for t in tests.values())
    if longest > engine.ctx_size:
        raise RequestError(
            f"{longest} positions are to be measured, more than the context of {engine.ctx_size}: "
            "choose smaller -p, -n and -d, or another --ctx-size"
        )
    limits = _limits(device)
    work: dict[str, Measure] = {
        name: partial(_measure_test, engine, t) for name, t in tests.items()
    }
    began = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    with step_progress("Measuring", "rounds") as progress:
        found, rates = run_rounds(limits, work, repetitions, progress)
    rows = [_row(test, rates[test]) for test in rates]
    for row in rows:
        test = tests[row["test"]]
        if test.depth or (test.prompt and test.generated):
            continue
        is_prompt = bool(test.prompt)
        if is_prompt and _PEAK in found:
            row["int8_products_per_token"] = engine.model.products_per_token
            _add_share(row, _PEAK, rates[row["test"]], engine.model.products_per_token, found)
        if not is_prompt and _BANDWIDTH in found:
            row["weight_bytes_per_token"] = engine.model.bytes_per_token
            _add_share(row, _BANDWIDTH, rates[row["test"]], engine.model.bytes_per_token, found)
    profiles = {t: profile(device, work[t]) for t in work} if with_profile else {}
    for row in rows:
        if with_profile:
            row["profile"] = [op.as_json() for op in profiles[row["test"]]]
    report = {
        "machine": machine(device.threads),
        "device": device.name,
        "model": str(engine.model.weights.checkpoint.path),
        "kv_type": engine.kv_type,
        "read_gb_s": round(max(found[_BANDWIDTH]) / 1e9, 3) if _BANDWIDTH in found else None,
        "int8_gmac_s": round(max(found[_PEAK]) / 1e9, 1) if _PEAK in found else None,
        "rows": rows,
    }
    formatted = {output_format, error_format} - {None}
    if formatted:
        results = records(
            _facts(engine, report), began, [(tests[name], rates[name]) for name in rates]
        )
    if error_format is not None:
        click.echo(FORMATS[error_format](results), err=True)
    if output_format is not None:
        click.echo(FORMATS[output_format](results))
    else:
        click.echo(json.dumps(report) if as_json else _table(report, profiles))


def _tests(
    prompts: list[int], generated: list[int], both: list[tuple[int, int]], depths: list[int]
) -> dict[str, Test]:
    """Return what is measured by its name, in llama-bench's order: of each depth prompts first.

    Raises:
        RequestError: There is nothing to measure.
    """
    tests = [
        test
        for depth in depths
        for test in (
            *(Test(n, 0, depth) for n in prompts),
            *(Test(0, n, depth) for n in generated),
            *(Test(pp, tg, depth) for pp, tg in both),
        )
        if test.prompt or test.generated
    ]
    if not tests:
        raise RequestError("there is nothing to measure: give -p, -n or -pg a number above 0")
    return {test.name: test for test in tests}


def _facts(engine: Engine, report: Mapping[str, Any]) -> Record:
    """Return what llama-bench's records say of the model and the machine."""
    checkpoint = engine.model.weights.checkpoint
    tensors = checkpoint.file.tensors
    sizes = Counter[str]()  # bytes of each type: the largest names the model
    for tensor in tensors:
        sizes[tensor.quant_type] += tensor.nbytes
    return {
        "build": f"oxibonsai {__version__}",
        "cpu_info": report["machine"]["cpu"],
        "backends": report["device"].upper(),
        "model_filename": report["model"],
        "model_type": f"{checkpoint.file.get('general.architecture')} {sizes.most_common(1)[0][0]}",
        "model_size": checkpoint.file.size,
        "model_n_params": sum(math.prod(tensor.shape) for tensor in tensors),
        "n_threads": report["machine"]["threads"],
        "type_k": engine.kv_type or "",
        "type_v": engine.kv_type or "",
    }


bench.add_command(image)
bench.add_command(serve)
bench.add_command(speculation)


def _limits(device: Device) -> dict[str, Measure]:
    """Return how to measure what a processor can do; of a GPU, bench/gpu.py knows."""
    if not isinstance(device, _core.CpuDevice):
        return {}
    limits: dict[str, Measure] = {_BANDWIDTH: lambda: read_bandwidth(device.pool)}
    if _core.cpu.name() != "scalar":  # which has no such instruction
        limits[_PEAK] = lambda: device.pool.int8_peak(_core.cpu.name(), _PASSES)
    return limits


def _refuse_options(ctx: click.Context) -> None:
    given = [name for name in ctx.params if _is_given(ctx, name)]
    if given:
        names = ", ".join("--" + name.replace("_", "-") for name in given)
        raise RequestError(
            f"{names} belongs to bench itself; put options of {ctx.invoked_subcommand} behind it"
        )


def _is_given(ctx: click.Context, name: str) -> bool:
    return ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE


def _add_share(
    row: dict[str, Any],
    limit: str,
    rates: list[float],
    cost: float,
    limits: dict[str, list[float]],
) -> None:
    """Add the share of a limit that a test reached, or why there is none.

    Args:
        row: Of the test.
        limit: Its name.
        rates: Tokens per second of each round.
        cost: Bytes or products of a token.
        limits: Bytes or products per second, by round.
    """
    share = Share.of([rate * cost for rate in rates], limits[limit])
    row[f"share_of_{limit}"] = None if share.value is None else round(share.value, 4)
    row["share_spread"] = round(share.spread, 4)
    if share.doubt:
        row["no_share"] = share.doubt


def _measure_test(engine: Engine, test: Test) -> float:
    if test.prompt and test.generated:
        return _measure_both(engine, test)
    if test.prompt:
        return measure_prompt(engine, test.prompt, test.depth)
    return measure_generation(engine, test.generated, max(test.depth, 1))


def measure_prompt(engine: Engine, tokens: int, depth: int = 0) -> float:
    """Return tokens per second of reading a prompt, up to its first new token.

    Args:
        engine: With a prefix cache where there is a depth.
        tokens: Of the prompt.
        depth: Tokens before it, which are computed first and do not count.
    """
    prompt = prompt_ids(engine, tokens)
    if depth:
        before = prompt_ids(engine, depth)
        _first_token(engine, before)
        # Other tokens each time: nothing but the context before them is known already.
        prompt = before + prompt_ids(engine, tokens, start=time.perf_counter_ns())
    started = time.perf_counter()
    known = _first_token(engine, prompt)
    return (len(prompt) - known) / (time.perf_counter() - started)


def _first_token(engine: Engine, prompt: list[int]) -> int:
    """Generate one token; return how many tokens of the prompt had been computed before."""
    sequence = engine.submit(prompt, SamplingParams(temperature=0.0, max_tokens=1))
    for _ in engine.follow_tokens(sequence):
        pass
    return sequence.num_cached


def _measure_both(engine: Engine, test: Test) -> float:
    """Return the tokens per second of reading a prompt and generating after it, together."""
    before = prompt_ids(engine, test.depth)
    if before:
        _first_token(engine, before)
    start = time.perf_counter_ns() if before else 0
    prompt = before + prompt_ids(engine, test.prompt, start=start)
    params = SamplingParams(temperature=0.0, max_tokens=test.generated, ignore_eos=True)
    started = time.perf_counter()
    sequence = engine.submit(prompt, params)
    count = sum(1 for _ in engine.follow_tokens(sequence))
    tokens = len(prompt) - sequence.num_cached + count
    return tokens / (time.perf_counter() - started)


def measure_generation(engine: Engine, tokens: int, depth: int = 1) -> float:
    """Return tokens per second after the first, which follows a prompt of ``depth`` tokens."""
    params = SamplingParams(temperature=GREEDY.temperature, max_tokens=tokens + 1, ignore_eos=True)
    stream = engine.generate_tokens(prompt_ids(engine, depth), params)
    next(stream)
    started = time.perf_counter()
    count = sum(1 for _ in stream)
    return count / (time.perf_counter() - started)


def prompt_ids(engine: Engine, tokens: int, start: int = 0) -> list[int]:
    """Return ordinary ids, spread over the vocabulary; another start gives others."""
    return [(i * 7919 + 1 + start) % engine.model.config.vocab_size for i in range(tokens)]


def read_bandwidth(pool: _core.ThreadPool) -> float:
    """Return bytes per second that the pool's threads read from memory: what bounds generation."""
    return pool.read_bandwidth(_BANDWIDTH_BYTES, _PASSES)


def _row(test: str, rates: list[float]) -> dict[str, Any]:
    return {
        "test": test,
        "tok_s": round(statistics.mean(rates), 3),
        "stdev": round(statistics.stdev(rates), 3) if len(rates) > 1 else 0.0,
        "median": round(statistics.median(rates), 3),
    }


def machine(threads: int) -> dict[str, Any]:
    """Return the facts about the machine that a result needs beside it."""
    name = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = cpuinfo.read_text(encoding="utf-8").splitlines()
        name = next((x.split(":")[1].strip() for x in lines if x.startswith("model name")), name)
    return {"cpu": name, "system": platform.system(), "threads": threads, "tier": _core.cpu.name()}


def _table(
    report: dict[str, Any], profiles: Mapping[str, Sequence[OpShare]] = MappingProxyType({})
) -> str:
    machine = report["machine"]
    lines = [f"{machine['cpu']}, {machine['threads']} threads, {machine['tier']}"]
    if report["device"] != CPU:
        lines[0] += f", device {report['device']}"
    if report["read_gb_s"] is not None:
        lines[0] += f", reads {report['read_gb_s']:.1f} GB/s"
    if report["int8_gmac_s"] is not None:
        lines[0] += f", multiplies {report['int8_gmac_s']:.0f} G int8/s"
    for row in report["rows"]:
        line = f"{row['test']:>8}  {row['tok_s']:10.2f} ± {row['stdev']:.2f} tok/s"
        for limit, words in ((_BANDWIDTH, "bandwidth"), (_PEAK, "the int8 peak")):
            share = row.get(f"share_of_{limit}")
            if share is not None:
                line += f"  {share:.1%} of {words}"
        if "no_share" in row:
            line += f"  ({row['no_share']})"
        lines.append(line)
    peak = report["int8_gmac_s"]
    for test, ops in profiles.items():
        lines += [f"{test}:", *profile_lines(ops, peak and peak * 1e9)]
    return "\n".join(lines)
