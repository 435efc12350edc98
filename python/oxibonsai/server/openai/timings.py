"""Timings and token counts of a response, in llama-server's and OpenAI's formats."""

from __future__ import annotations

import time
from typing import Any

from oxibonsai.server.generation import Generation
from oxibonsai.server.response_choice import Choice
from oxibonsai.tokenizer import Tokenizer


def timings(generation: Generation, choice: Choice) -> dict[str, float]:
    """Count, milliseconds and rates of one choice so far; those of drafts only if there were any.

    The first token is produced by the last step of the prompt, so the decode rate counts the steps
    after it; a single token has no rate.
    """
    times = choice.sequence.times
    now = time.perf_counter() if times.finished is None else times.finished
    computed = generation.prompt_tokens - choice.sequence.num_cached
    prompt_ms = decode_ms = 0.0
    if times.first_token is None:
        computed = 0
    elif times.started is not None:
        prompt_ms = 1e3 * (times.first_token - times.started)
        decode_ms = 1e3 * (now - times.first_token)
    count = choice.sequence.num_generated
    steps = max(count - 1, 0)
    found = {
        "cache_n": choice.sequence.num_cached,
        "prompt_n": computed,
        "prompt_ms": prompt_ms,
        "prompt_per_token_ms": prompt_ms / computed if computed else 0.0,
        "prompt_per_second": 1e3 * computed / prompt_ms if prompt_ms else 0.0,
        "predicted_n": count,
        "predicted_ms": decode_ms,
        "predicted_per_token_ms": decode_ms / steps if steps else 0.0,
        "predicted_per_second": 1e3 / decode_ms * steps if decode_ms else 0.0,
    }
    speculator = choice.sequence.speculator
    if speculator is not None and (proposed := speculator.lookahead.proposed):
        found |= {"draft_n": proposed, "draft_n_accepted": speculator.lookahead.accepted}
    return found


def usage(group: list[Generation]) -> dict[str, Any]:
    """Return OpenAI's ``usage`` over all prompts of one HTTP request."""
    prompt = sum(a.prompt_tokens for a in group)
    new = sum(a.completion_tokens for a in group)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": new,
        "total_tokens": prompt + new,
        "prompt_tokens_details": {"cached_tokens": sum(a.cached_tokens for a in group)},
    }


def beam_usage(prompt: int, new: int) -> dict[str, Any]:
    """Return ``usage`` of a beam search: the tokens of its prompts and of the texts that it returns."""
    return {
        "prompt_tokens": prompt,
        "completion_tokens": new,
        "total_tokens": prompt + new,
        "prompt_tokens_details": {"cached_tokens": 0},
    }


def chat_usage(generation: Generation, tokenizer: Tokenizer) -> dict[str, Any]:
    """Return ``usage`` of a chat completion, with the number of reasoning tokens."""
    thoughts = {"reasoning_tokens": reasoning_tokens(generation, tokenizer)}
    return {**usage([generation]), "completion_tokens_details": thoughts}


def reasoning_tokens(generation: Generation, tokenizer: Tokenizer) -> int:
    """Return the number of reasoning tokens; their text is tokenized again, as the engine doesn't count."""
    thoughts = "".join(c.reply.reasoning_content for c in generation.choices)
    if not thoughts:
        return 0
    return min(len(tokenizer.encode(thoughts, add_special=False)), generation.completion_tokens)


class PromptProgress:
    """Reports the progress of prompt processing whenever it has changed.

    Args:
        generation: The generation that processes the prompt.
    """

    def __init__(self, generation: Generation) -> None:
        self._generation = generation
        self._last = -1

    def new_reports(self) -> list[dict[str, Any]]:
        """Return new reports; the first one has the cached tokens, the last one the whole prompt."""
        if not self._generation.choices:
            return []
        sequence = self._generation.choices[0].sequence
        times = sequence.times
        if times.started is None:
            return []
        total, cached = self._generation.prompt_tokens, sequence.num_cached
        done = total if times.first_token is not None else min(sequence.num_computed, total)
        steps = [cached, done] if self._last < 0 else [done]
        reports = []
        for processed in steps:
            if processed > self._last:
                self._last = processed
                elapsed = 0.0 if processed == cached else time.perf_counter() - times.started
                reports.append(
                    {
                        "total": total,
                        "cache": cached,
                        "processed": processed,
                        "time_ms": round(1e3 * elapsed, 3),
                    }
                )
        return reports
