"""``generate``: what the engine does itself, as one batch, and what transformers' own loop does."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from collections.abc import Sequence as Items
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import numpy as np

from oxibonsai.engine import (
    DraftModel,
    Engine,
    Options,
    beam_search,
    submit_samples,
)
from oxibonsai.engine import Sequence as EngineSequence
from oxibonsai.errors import RequestError
from oxibonsai.hf.arrays import as_columns, as_embeds, is_torch, like
from oxibonsai.sampling import SamplingParams
from oxibonsai.vision import PlacedImage

DEFAULT_NEW_TOKENS = 20  # as transformers has it

# Options that the engine has; a value of None is as if it was not given.
NATIVE: dict[str, Any] = {
    "max_new_tokens": None,
    "max_length": None,
    "min_new_tokens": None,
    "max_time": None,
    "stop_strings": None,
    "do_sample": False,
    "temperature": 1.0,
    "top_k": 50,
    "top_p": 1.0,
    "min_p": 0.0,
    "typical_p": 1.0,
    "epsilon_cutoff": 0.0,
    "eta_cutoff": 0.0,
    "repetition_penalty": 1.0,
    "num_return_sequences": 1,
    "num_beams": 1,
    "length_penalty": 1.0,
    "early_stopping": False,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}
# Of these any value is right: transformers wants it for what the engine does by itself.
_NEEDLESS = ("use_cache", "tokenizer", "transformers_version", "_from_model_config")
# Not done in a beam search of the engine.
_NOT_WITH_BEAMS = ("min_new_tokens", "max_time", "stop_strings", "repetition_penalty")


class Streamer(Protocol):
    """The interface of transformers' ``TextStreamer`` and ``TextIteratorStreamer``."""

    def put(self, value: Any) -> None:
        """Take the prompt first, then each token."""

    def end(self) -> None:
        """Note that nothing more will come."""


@dataclass(frozen=True)
class Prompts:
    """The prompts to continue.

    Attributes:
        rows: As given, padding included: [batch, width]; empty rows where embeddings were given.
        shown: Tokens of each row without padding.
        example: What came in; results are of its kind.
        images: Images, or the embeddings of all tokens, of each prompt.
        width: Columns that count against ``max_length``.
        uncounted: No penalty counts the prompts' tokens.
    """

    rows: list[list[int]]
    shown: list[list[int]]
    example: Any
    images: Items[tuple[PlacedImage, ...]]
    width: int
    uncounted: bool = False

    def options(self, **more: Any) -> list[Options]:
        """Return the options of each prompt's sequences."""
        return [
            Options(images=own, uncounted=len(ids) if self.uncounted else 0, **more)
            for ids, own in zip(self.shown, self.images, strict=True)
        ]


def read_prompts(
    input_ids: Any, attention_mask: Any, options: Mapping[str, Any], ends: frozenset[int]
) -> Prompts:
    """Return prompts and the mask that transformers would infer where none is given."""
    if input_ids is None:
        start = options["bos_token_id"]
        if start is None:
            raise RequestError(
                "input_ids is missing, and this model has no bos token to start from"
            )
        return Prompts([[start]], [[start]], None, [()], 1)
    ids, mask = as_columns(input_ids, attention_mask, 0)
    pad = options["pad_token_id"]
    if attention_mask is None and pad is not None and pad not in ends:
        mask = ids != pad
    shown = [row[m].tolist() for row, m in zip(ids, mask, strict=True)]
    return Prompts(ids.tolist(), shown, input_ids, [()] * len(shown), ids.shape[1])


def read_embeds(engine: Engine, inputs_embeds: Any, attention_mask: Any) -> Prompts:
    """Return prompts of embeddings: [n, hidden] or [batch, n, hidden]; results are new tokens alone."""
    embeds = as_embeds(inputs_embeds)
    batch, width = embeds.shape[:2]
    _, mask = as_columns(np.zeros((batch, width), np.int64), attention_mask, 0)
    prompts = [engine.embedded_prompt(e[m]) for e, m in zip(embeds, mask, strict=True)]
    shown, images = [ids for ids, _ in prompts], [options.images for _, options in prompts]
    return Prompts([[] for _ in prompts], shown, inputs_embeds, images, width, True)


def generate(
    engine: Engine,
    prompts: Prompts,
    options: Mapping[str, Any],
    ends: frozenset[int],
    *,
    seed: int | None,
    streamer: Streamer | None,
    assistant: Engine | None,
) -> Any:
    """Generate [batch * num_return_sequences, prompt + new], all stepped together in the engine.

    Args:
        engine: Runs it.
        prompts: What to continue.
        options: Values for all of :data:`NATIVE`.
        ends: Ids that end a text.
        seed: Of the draws; None: from torch's generator where torch is imported, else random.
        streamer: Gets the prompt, then every token.
        assistant: A smaller model that proposes tokens.
    """
    samples, beams = options["num_return_sequences"], options["num_beams"]
    rows = prompts.rows
    if streamer is not None and (len(rows) > 1 or samples > 1 or beams > 1):
        raise RequestError("a streamer takes one sequence, not a batch, samples or beams")
    params = _params(options, prompts.width, ends, seed)
    if streamer is not None:
        streamer.put(like(np.array(rows, dtype=np.int64), prompts.example))
    if beams > 1:
        new = _search(engine, prompts, options, params)
    else:
        draft = None if assistant is None else DraftModel(assistant, engine).speculator
        deadline = time.monotonic() + (options["max_time"] or float("inf"))
        each = prompts.options(speculate=draft)
        new = _run(engine, prompts, params, samples, each, streamer, deadline)
    if streamer is not None:
        streamer.end()
    pad = options["pad_token_id"]
    pad = min(ends, default=0) if pad is None else pad
    longest = max(map(len, new))
    repeated = [r for r in rows for _ in range(samples)]
    full = [r + n + [pad] * (longest - len(n)) for r, n in zip(repeated, new, strict=True)]
    return like(np.array(full, dtype=np.int64), prompts.example)


def is_native(options: Mapping[str, Any]) -> bool:
    """Return whether the engine does all that these options ask for."""
    for name, value in options.items():
        if name in _NEEDLESS or value is None or (value is False and name not in NATIVE):
            continue
        if name not in NATIVE:
            return False
    beams = options.get("num_beams") or 1
    if beams == 1:
        return True
    given = {n: options[n] for n in _NOT_WITH_BEAMS if options.get(n) is not None}
    return not options.get("do_sample") and all(v == NATIVE[n] for n, v in given.items())


def completed(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return values for all of :data:`NATIVE`."""
    given = {n: v for n, v in options.items() if n in NATIVE and v is not None}
    return {**NATIVE, **given}


def torch_seed() -> int | None:
    """Return the next number of torch's generator; None in a program without torch."""
    torch = sys.modules.get("torch")
    return None if torch is None else int(torch.randint(2**63 - 1, ()))


def _params(
    options: Mapping[str, Any], width: int, ends: frozenset[int], seed: int | None
) -> SamplingParams:
    limit, do_sample, temperature = (
        options[n] for n in ("max_new_tokens", "do_sample", "temperature")
    )
    if limit is None:
        total = options["max_length"]
        limit = DEFAULT_NEW_TOKENS if total is None else total - width
    if do_sample and temperature <= 0.0:
        raise RequestError(f"temperature is {temperature}; with do_sample it must be above 0")
    stops = options["stop_strings"] or ()
    names = ("top_k", "top_p", "min_p", "typical_p", "epsilon_cutoff", "eta_cutoff")
    return SamplingParams(
        max_tokens=limit,
        min_tokens=options["min_new_tokens"] or 0,
        stop=(stops,) if isinstance(stops, str) else tuple(stops),
        temperature=temperature if do_sample else 0.0,
        repetition_penalty=options["repetition_penalty"],
        repetition_window=-1,
        seed=seed,
        ignore_eos=True,
        stop_token_ids=tuple(sorted(ends)),
        **{name: options[name] for name in names},
    )


def _search(
    engine: Engine,
    prompts: Prompts,
    options: Mapping[str, Any],
    params: SamplingParams,
) -> list[list[int]]:
    assert params.max_tokens is not None
    search: Callable[..., Any] = partial(
        beam_search,
        engine,
        width=options["num_beams"],
        max_new_tokens=params.max_tokens,
        length_penalty=options["length_penalty"],
        early_stopping=options["early_stopping"],
        stop_token_ids=params.stop_token_ids,
        n=options["num_return_sequences"],
    )
    pairs = zip(prompts.shown, prompts.images, strict=True)
    return [beam.tokens for prompt, own in pairs for beam in search(prompt, images=own)]


def _run(
    engine: Engine,
    prompts: Prompts,
    params: SamplingParams,
    samples: int,
    options: Items[Options],
    streamer: Streamer | None,
    deadline: float,
) -> list[list[int]]:
    """Return the new tokens of every sample of every prompt, stepped together."""
    sequences: list[EngineSequence] = []
    try:
        for prompt, asked in zip(prompts.shown, options, strict=True):
            own = params if params.seed is not None else replace(params, seed=torch_seed())
            sequences += submit_samples(engine, prompt, own, asked, n=samples)
        shown = 0
        while not all(s.finished for s in sequences) and time.monotonic() < deadline:
            engine.advance(next(s for s in sequences if not s.finished))
            if streamer is not None:
                for token in sequences[0].generated[shown:]:
                    streamer.put(like(np.array([token], dtype=np.int64), prompts.example))
                    shown += 1
        for s in sequences:
            s.raise_error()
    finally:
        for s in sequences:
            engine.cancel(s)
    return [s.generated for s in sequences]


def end_ids(eos_token_id: int | Items[int] | None, own: frozenset[int]) -> frozenset[int]:
    """Return the ids that end a text: those asked for, else the model's own."""
    if eos_token_id is None:
        return own
    if is_torch(eos_token_id):
        eos_token_id = eos_token_id.tolist()  # type: ignore[union-attr]
    return frozenset({eos_token_id}) if isinstance(eos_token_id, int) else frozenset(eos_token_id)
