"""Runs what ``oxibonsai run`` was asked for, shows it as it comes, and reports on it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from oxibonsai.chat import ChatRequest, prepare
from oxibonsai.chat_template import ChatTemplate
from oxibonsai.cli.progress import read_prompt_of
from oxibonsai.engine import (
    Engine,
    Options,
    Sequence,
    beam_search,
    best_samples,
    submit_samples,
)
from oxibonsai.output import Delta, OutputParser
from oxibonsai.output.tools import CallIds, call_ids
from oxibonsai.sampling import SamplingParams


@dataclass(frozen=True)
class Job:
    """A prompt and how to continue it.

    Attributes:
        parser: Makes what sorts the text of a chat's answer; None for plain text.
        opening: Words that the text goes on from, which are shown before it.
        shows_reasoning: Print reasoning to stderr.
    """

    engine: Engine
    params: SamplingParams
    options: Options
    ids: list[int]
    parser: Callable[[CallIds], OutputParser] | None = None
    opening: str = ""
    shows_reasoning: bool = True

    @classmethod
    def of_chat(
        cls,
        engine: Engine,
        template: ChatTemplate,
        params: SamplingParams,
        options: Options,
        request: ChatRequest,
    ) -> Job:
        """Return the job that a conversation makes."""
        prepared = prepare(engine, request, options, template=template)
        return cls(engine, params, prepared.options, prepared.ids, prepared.parser)


def run_samples(job: Job, samples: int, best_of: int | None, *, show: bool) -> dict[str, Any]:
    """Make one text or several; a single one is shown as it comes."""
    params = job.params if best_of is None else replace(job.params, logprobs=True)
    started = time.perf_counter()
    sequences = submit_samples(
        job.engine, job.ids, params, job.options, n=max(best_of or 1, samples)
    )
    streams = show and len(sequences) == 1
    results = []
    try:
        for s in sequences:
            printer = _Printer(streams, streams and job.shows_reasoning)
            if show:
                read_prompt_of(job.engine, s)
            if streams:
                print(end=job.opening, flush=True)
            for delta in _deltas(job, s):
                printer.put(delta)
            results.append(_result(s, printer, started))
    finally:
        for s in sequences:
            job.engine.cancel(s)
    if best_of is not None:
        results = [results[sequences.index(s)] for s in best_samples(sequences, samples)]
    if show:
        for i, result in enumerate(results if len(sequences) > 1 else []):
            print(f"--- {i + 1} (seed {result['seed']})\n{job.opening}{result['text']}")
        print(end="\n" if streams else "")
        if streams and job.shows_reasoning and "reasoning_content" in results[0]:
            print(file=sys.stderr)
        _report(job, results)
    first = {"prompt_tokens": job.ids, **results[0]}
    return first if samples == 1 else {"prompt_tokens": job.ids, "samples": results}


def run_beams(job: Job, width: int, length_penalty: float, *, show: bool) -> dict[str, Any]:
    """Search the likeliest texts."""
    limit = job.params.max_tokens or job.engine.ctx_size
    beams = beam_search(
        job.engine,
        job.ids,
        width=width,
        max_new_tokens=limit,
        length_penalty=length_penalty,
        images=job.options.images,
    )
    if show:
        print(job.opening + beams[0].text)
    return {"prompt_tokens": job.ids, "beams": [asdict(b) for b in beams]}


class _Printer:
    """Collects an answer, and shows it if asked to: reasoning and calls go to stderr."""

    def __init__(self, show: bool, show_reasoning: bool) -> None:
        self._show = show
        self._show_reasoning = show_reasoning
        self.text: list[str] = []
        self.reasoning: list[str] = []
        self.calls: list[dict[str, str]] = []

    def put(self, delta: Delta) -> None:
        if delta.content:
            self.text.append(delta.content)
            if self._show:
                sys.stdout.write(delta.content)
                sys.stdout.flush()
        if delta.reasoning_content:
            self.reasoning.append(delta.reasoning_content)
            if self._show_reasoning:
                print(delta.reasoning_content, end="", file=sys.stderr, flush=True)
        call = delta.tool_call
        if call is not None:
            if call.id is not None:
                self.calls.append({"id": call.id, "name": call.name or "", "arguments": ""})
            self.calls[-1]["arguments"] += call.arguments


def _deltas(job: Job, sequence: Sequence) -> Iterator[Delta]:
    pieces = job.engine.follow_text(sequence)
    if job.parser is None:
        yield from (Delta(content=piece) for piece in pieces)
        return
    parser = job.parser(call_ids(str(sequence.sampler.seed)))
    for piece in pieces:
        yield from parser.feed(piece)
    yield from parser.finish(cut=sequence.finish_reason == "length")


def _result(s: Sequence, printer: _Printer, started: float) -> dict[str, Any]:
    first = s.times.first_token or started
    decode = (s.times.finished or first) - first
    prompt = first - started
    result: dict[str, Any] = {
        "tokens": s.generated,
        "text": "".join(printer.text),
        "finish_reason": s.finish_reason,
        "seed": s.sampler.seed,
        "cached_tokens": s.num_cached,
        "timings": {
            "prompt_s": round(prompt, 4),
            "prompt_tok_s": round((s.num_prompt_tokens - s.num_cached) / max(prompt, 1e-9), 2),
            "decode_s": round(decode, 4),
            # The first token comes with the prompt.
            "tok_s": round((s.num_generated - 1) / decode, 2) if s.num_generated > 1 else 0.0,
        },
    }
    if printer.reasoning:
        result["reasoning_content"] = "".join(printer.reasoning)
    if printer.calls:
        result["tool_calls"] = printer.calls
        if s.finish_reason == "stop":
            result["finish_reason"] = "tool_calls"
    if s.constraint is not None and s.constraint.decides_end:
        result["complete"] = s.complete
    if s.params.logprobs:
        result["logprobs"] = [t._asdict() for t in s.logprobs]
    if s.shifts:
        result["context_shifts"] = [asdict(shift) for shift in s.shifts]
    if s.speculator is not None:
        lookahead = s.speculator.lookahead
        result["speculation"] = {"proposed": lookahead.proposed, "accepted": lookahead.accepted}
    return result


def _report(job: Job, results: list[dict[str, Any]]) -> None:
    for result in results:
        for call in result.get("tool_calls", []):
            print(f"call {call['name']}({call['arguments']})", file=sys.stderr)
        if not result.get("complete", True):
            end = "token limit" if result["finish_reason"] == "length" else "stop string or token"
            print(f"the text was cut at a {end}: it is not complete", file=sys.stderr)
        for shift in result.get("context_shifts", []):
            print(
                f"context shift after {shift['num_generated']} tokens: {shift['dropped']} left out",
                file=sys.stderr,
            )
        t = result["timings"]
        line = (
            f"prompt: {_tokens(len(job.ids))}, {t['prompt_tok_s']:.1f} tok/s; generated: "
            f"{_tokens(len(result['tokens']))}"
        )
        if t["tok_s"]:  # a single token has no rate
            line += f", {t['tok_s']:.1f} tok/s"
        if "speculation" in result:
            line += "; accepted {accepted} of {proposed} proposals".format(**result["speculation"])
        print(line, file=sys.stderr)


def _tokens(count: int) -> str:
    return "1 token" if count == 1 else f"{count} tokens"
