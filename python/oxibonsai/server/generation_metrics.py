"""What the engines' work looks like from outside, for Prometheus."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Histogram

if TYPE_CHECKING:
    from oxibonsai.server.generation import Answers

_SECONDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)
_GAP_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)


class GenerationMetrics:
    """Counts of requests that reached the engines; one look at the end of each, none a token."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def histogram(name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
            return Histogram(f"oxibonsai_{name}", text, buckets=buckets, registry=registry)

        def counter(name: str, text: str) -> Counter:
            return Counter(f"oxibonsai_{name}", text, registry=registry)

        self.first_token = histogram(
            "time_to_first_token_seconds", "From a request's arrival to its first token.", _SECONDS
        )
        self.gap = histogram(
            "inter_token_seconds", "Mean gap between the tokens of an answer.", _GAP_SECONDS
        )
        self.queue = histogram(
            "queue_seconds", "From a request's arrival to its first step.", _SECONDS
        )
        self.whole = histogram(
            "generation_seconds", "From a request's arrival to its last token.", _SECONDS
        )
        self.prompt_tokens = counter("prompt_tokens", "Tokens of prompts, cached ones included.")
        self.cached_tokens = counter("prefix_cache_hit_tokens", "Of these, found in the cache.")
        self.new_tokens = counter("generation_tokens", "Tokens generated.")
        self.prompt_seconds = counter("prompt_seconds", "From first steps to first tokens.")
        self.decode_seconds = counter("decode_seconds", "From first tokens to last ones.")
        self.decode_steps = counter("decode_tokens", "Tokens after the first of each answer.")

    def embedded(self, tokens: int) -> None:
        """Texts have been made to vectors."""
        self.prompt_tokens.inc(tokens)

    def ended(self, answers: Answers) -> None:
        """A request is over, one way or another."""
        for choice in answers.choices:
            sequence = choice.sequence
            times, count = sequence.times, sequence.num_generated
            self.new_tokens.inc(count)
            if choice.index == 0 and times.started is not None:
                self.prompt_tokens.inc(answers.prompt_tokens)
                self.cached_tokens.inc(sequence.num_cached)
                self.queue.observe(times.started - answers.arrived)
            if times.first_token is None or times.started is None:
                continue
            self.first_token.observe(times.first_token - answers.arrived)
            self.prompt_seconds.inc(times.first_token - times.started)
            if times.finished is None:
                continue
            self.whole.observe(times.finished - answers.arrived)
            if count > 1:
                seconds = times.finished - times.first_token
                self.gap.observe(seconds / (count - 1))
                self.decode_seconds.inc(seconds)
                self.decode_steps.inc(count - 1)
