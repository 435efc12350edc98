"""Prometheus metrics of the engines and of generation requests."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from oxibonsai.engine import EnginePool, Sequence
    from oxibonsai.engine.engine_core import StepCounts
    from oxibonsai.engine.state_store import StateStore

_SECONDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)
_GAP_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)


class GenerationMetrics(Collector):
    """Counts requests that reached the engines, once at their end and not for each token.

    Args:
        registry: The server's registry.
        pools: The engines of all loaded models, whose state is shown.
    """

    def __init__(self, registry: CollectorRegistry, pools: Callable[[], list[EnginePool]]) -> None:
        def histogram(name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
            return Histogram(f"oxibonsai_{name}", text, buckets=buckets, registry=registry)

        self.first_token = histogram(
            "time_to_first_token_seconds", "From a request's arrival to its first token.", _SECONDS
        )
        self.gap = histogram(
            "inter_token_seconds", "Mean time between the tokens of a choice.", _GAP_SECONDS
        )
        self.queue = histogram(
            "queue_seconds", "From a request's arrival to its first step.", _SECONDS
        )
        self.whole = histogram(
            "generation_seconds", "From a request's arrival to its last token.", _SECONDS
        )
        self._pools = pools
        from oxibonsai.engine.engine_core import StepCounts

        self._retired = StepCounts()
        self._lock = threading.Lock()
        self._prompt_tokens = self._cached_tokens = self._new_tokens = 0
        self._decoded_tokens = self._longest = 0
        self._prompt_seconds = self._decode_seconds = 0.0
        registry.register(self)

    def embedded(self, tokens: int) -> None:
        """Count the tokens of texts that were embedded."""
        with self._lock:
            self._prompt_tokens += tokens

    def ended(self, sequences: list[Sequence], *, arrived: float, prompt_tokens: int) -> None:
        """Count a request that is over, however it ended.

        Args:
            sequences: One for each sample; none if the request never reached an engine.
            arrived: When the request came, in seconds of ``time.perf_counter``.
            prompt_tokens: Tokens of the prompt that the samples share.
        """
        with self._lock:
            for index, sequence in enumerate(sequences):
                self._count(sequence, arrived, prompt_tokens if index == 0 else None)

    def _count(self, sequence: Sequence, arrived: float, prompt_tokens: int | None) -> None:
        times, count = sequence.times, sequence.num_generated
        self._new_tokens += count
        self._longest = max(self._longest, len(sequence.history))
        if prompt_tokens is not None and times.started is not None:
            self._prompt_tokens += prompt_tokens - sequence.num_cached
            self._cached_tokens += sequence.num_cached
            self.queue.observe(times.started - arrived)
        if times.first_token is None or times.started is None:
            return
        self.first_token.observe(times.first_token - arrived)
        self._prompt_seconds += times.first_token - times.started
        if times.finished is None:
            return
        self.whole.observe(times.finished - arrived)
        if count > 1:
            seconds = times.finished - times.first_token
            self.gap.observe(seconds / (count - 1))
            self._decode_seconds += seconds
            self._decoded_tokens += count - 1

    def retired(self, pool: EnginePool) -> None:
        """Keep the counts of a model that has been unloaded."""
        with self._lock:
            self._retired = self._totals([pool])

    def _totals(self, pools: list[EnginePool]) -> StepCounts:
        """Count of all steps, those of unloaded models among them."""
        return sum((e.counts for pool in pools for e in pool.engines), self._retired)

    def collect(self) -> Iterator[Metric]:
        """Yield the counters, and the current state of the engines."""
        counters = {
            "prompt_tokens": ("Prompt tokens that were computed.", self._prompt_tokens),
            "prefix_cache_hit_tokens": (
                "Prompt tokens found in the prefix cache.",
                self._cached_tokens,
            ),
            "generation_tokens": ("Tokens generated.", self._new_tokens),
            "prompt_seconds": ("Time from first steps to first tokens.", self._prompt_seconds),
            "decode_seconds": ("Time from first tokens to last tokens.", self._decode_seconds),
        }
        pools = self._pools()
        total = self._totals(pools)
        counters |= {
            "steps": ("Forward passes of the model.", total.steps),
            "step_sequences": ("Sequences in all steps.", total.sequences),
            "step_rows": ("Tokens in all steps.", total.rows),
            "preemptions": ("Preempted sequences.", total.preemptions),
        }
        if pools:
            yield from _state(pools)
        stores = _stores(pools)
        counters |= {
            "snapshot_hits": (
                "Prompts continued from a snapshot of recurrent state.",
                sum(s.counts.hits for s in stores),
            ),
            "state_spilled_bytes": (
                "Snapshots and pages written to disk.",
                sum(s.counts.spilled_bytes for s in stores),
            ),
            "state_restored_bytes": (
                "Snapshots and pages read from disk.",
                sum(s.counts.restored_bytes for s in stores),
            ),
            "state_dropped": (
                "Snapshots and pages that neither memory nor disk had room for.",
                sum(s.counts.dropped for s in stores),
            ),
        }
        for name, (text, value) in counters.items():
            yield CounterMetricFamily(f"oxibonsai_{name}", text, value=value)

    def as_llamacpp(self) -> str:
        """Return the metrics under llama-server's names, in Prometheus' text format."""
        pools = self._pools()
        total = self._totals(pools)
        steps = total.steps
        lines: list[str] = []

        def add(name: str, kind: str, text: str, value: float) -> None:
            full = f"llamacpp:{name}"
            lines.extend([f"# HELP {full} {text}", f"# TYPE {full} {kind}", f"{full} {value}"])

        prompt, cached = self._prompt_tokens, self._cached_tokens
        add("prompt_tokens_total", "counter", "Prompt tokens that were computed.", prompt)
        add(
            "prompt_tokens_cached_total",
            "counter",
            "Prompt tokens found in the prefix cache.",
            cached,
        )
        add("prompt_seconds_total", "counter", "Time spent on prompts.", self._prompt_seconds)
        add("tokens_predicted_total", "counter", "Tokens generated.", self._new_tokens)
        seconds = self._decode_seconds
        add("tokens_predicted_seconds_total", "counter", "Time spent on generated tokens.", seconds)
        add("n_decode_total", "counter", "Forward passes of the model.", steps)
        add("n_tokens_max", "counter", "Longest sequence so far, in tokens.", self._longest)
        for what, text, value in (
            ("draft_tokens", "Tokens that were proposed.", total.draft_tokens),
            ("accepted_tokens", "Proposed tokens that were accepted.", total.accepted_tokens),
            ("drafts", "Proposals.", total.drafts),
        ):
            add(f"spec_decode_num_{what}_total", "counter", text, value)
        rate = prompt / self._prompt_seconds if self._prompt_seconds else 0.0
        add("prompt_tokens_seconds", "gauge", "Prompt tokens per second.", rate)
        rate = self._decoded_tokens / seconds if seconds else 0.0
        add(
            "predicted_tokens_seconds",
            "gauge",
            "Generated tokens per second of one sequence.",
            rate,
        )
        running, waiting = sum(p.running for p in pools), sum(p.waiting for p in pools)
        add("requests_processing", "gauge", "Running requests.", running)
        add("requests_deferred", "gauge", "Waiting requests.", waiting)
        busy = total.sequences / steps if steps else 0.0
        add("n_busy_slots_per_decode", "gauge", "Mean number of sequences in a step.", busy)
        return "\n".join(lines) + "\n"


def _stores(pools: list[EnginePool]) -> list[StateStore]:
    """Return what keeps state beside the KV caches; the engines of a pool share it."""
    stores = [pool.engines[0].cache.store for pool in pools]
    return [store for store in stores if store is not None]


def _state(pools: list[EnginePool]) -> Iterator[Metric]:
    engines = [e for pool in pools for e in pool.engines]
    slots = [e.cache.slots for e in engines if e.cache.slots is not None]
    stores = _stores(pools)
    gauges = {
        "requests_running": ("Requests on the engines.", sum(p.running for p in pools)),
        "requests_waiting": ("Requests in the queue.", sum(p.waiting for p in pools)),
        "sequences_running": ("Sequences in the batch.", sum(e.num_running for e in engines)),
        "sequences_waiting": ("Sequences without pages.", sum(e.num_waiting for e in engines)),
        "kv_cache_usage_ratio": (
            "Share of the KV cache that sequences use.",
            sum(e.cache.used_bytes for e in engines) / max(sum(e.cache.budget for e in engines), 1),
        ),
        "kv_pressure_ratio": (
            "Smoothed share of the KV cache in use, of the engine where it is highest; 0 without "
            "--kv-pressure.",
            max((e.policy.smoothed for e in engines if e.policy is not None), default=0.0),
        ),
        "kv_cache_idle_pages": (
            "Pages kept only as prefix cache.", sum(e.cache.idle_pages for e in engines)
        ),
        "recurrent_state_used_bytes": (
            "Slots of recurrent state that sequences hold.", sum(s.used_bytes for s in slots)
        ),
        "snapshots": (
            "Snapshots of recurrent state in host memory.", sum(s.num_snapshots for s in stores)
        ),
        "recurrent_state_snapshot_bytes": (
            "Their bytes, with the pages that are partly written there.",
            sum(s.snapshot_bytes for s in stores),
        ),
        "state_ram_bytes": (
            "Snapshots and pages in host memory beside the KV cache.", sum(s.used_bytes for s in stores)
        ),
        "state_disk_bytes": (
            "Snapshots and pages on disk.", sum(s.disk_bytes for s in stores)
        ),
    }  # fmt: skip
    for name, (text, value) in gauges.items():
        yield GaugeMetricFamily(f"oxibonsai_{name}", text, value=value)
