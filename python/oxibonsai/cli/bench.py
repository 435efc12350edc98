"""``oxibonsai bench``: prompt and generation speed, and their share of the machine's limits."""

from __future__ import annotations

import json
import platform
import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import rich_click as click
from click.core import ParameterSource

from oxibonsai import _core
from oxibonsai.cli.bench_image import image
from oxibonsai.cli.bench_rounds import Measure, Share, run_rounds
from oxibonsai.cli.bench_serve import serve
from oxibonsai.cli.bench_speculation import speculation
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

_BANDWIDTH_BYTES = 1 << 30
_PASSES = 3  # the fastest counts
# Limits: bytes that are read, and multiply-adds of bytes, per second.
_BANDWIDTH, _PEAK = "bandwidth", "int8_peak"


class _Bench(click.RichGroup):
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
@click.option("-p", "--n-prompt", type=click.IntRange(0), default=512, show_default=True)
@click.option("-n", "--n-gen", type=click.IntRange(0), default=128, show_default=True)
@click.option("-r", "--repetitions", type=click.IntRange(1), default=5, show_default=True)
@engine_options
@profile_option
@json_option
@click.pass_context
def bench(
    ctx: click.RichContext,
    /,
    model: str | None,
    quant_type: str,
    n_prompt: int,
    n_gen: int,
    repetitions: int,
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
    options["prefix_cache"] = False  # a repeated prompt is to be computed again
    engine = load_engine(model, quant_type, **options)
    device = engine.model.device
    if max(n_prompt, n_gen + 1) > engine.ctx_size:
        raise RequestError(f"-p and -n must fit in the context of {engine.ctx_size}")
    limits = _limits(device)
    work: dict[str, Measure] = {}
    if n_prompt:
        work[f"pp{n_prompt}"] = lambda: measure_prompt(engine, n_prompt)
    if n_gen:
        work[f"tg{n_gen}"] = lambda: measure_generation(engine, n_gen)
    with step_progress("Measuring", "rounds") as progress:
        found, rates = run_rounds(limits, work, repetitions, progress)
    rows = [_row(test, rates[test]) for test in rates]
    for row in rows:
        is_prompt = row["test"].startswith("pp")
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
    click.echo(json.dumps(report) if as_json else _table(report, profiles))


bench.add_command(image)
bench.add_command(serve)
bench.add_command(speculation)


def _limits(device: Device) -> dict[str, Measure]:
    """How to measure what a processor can do; of a GPU, bench/gpu.py knows."""
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


def measure_prompt(engine: Engine, tokens: int) -> float:
    """Tokens per second of reading a prompt, up to its first new token."""
    prompt = prompt_ids(engine, tokens)
    started = time.perf_counter()
    for _ in engine.generate_tokens(prompt, SamplingParams(temperature=0.0, max_tokens=1)):
        pass
    return tokens / (time.perf_counter() - started)


def measure_generation(engine: Engine, tokens: int, depth: int = 1) -> float:
    """Tokens per second after the first, which follows a prompt of ``depth`` tokens."""
    params = SamplingParams(temperature=GREEDY.temperature, max_tokens=tokens + 1, ignore_eos=True)
    stream = engine.generate_tokens(prompt_ids(engine, depth), params)
    next(stream)
    started = time.perf_counter()
    count = sum(1 for _ in stream)
    return count / (time.perf_counter() - started)


def prompt_ids(engine: Engine, tokens: int) -> list[int]:
    """Ordinary ids, spread over the vocabulary."""
    return [(i * 7919 + 1) % engine.model.config.vocab_size for i in range(tokens)]


def read_bandwidth(pool: _core.ThreadPool) -> float:
    """Bytes per second that the pool's threads read from memory: what bounds generation."""
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
        lines = cpuinfo.read_text().splitlines()
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
