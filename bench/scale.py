"""One model over several processes: what it sends, measured on loopback, and what that would cost.

The messages and bytes of a token are measured and compared with what the graph predicts. Tokens per
second on other machines and links are a prediction, computed from these and from the bandwidth of
memory and network that you give; nothing of that is measured here. With --sequences they are those of
all sequences together, with --replicas of engines whose steps follow each other through the stages.

    python bench/scale.py MODEL.gguf --layout 2x1 --layout 1x2 --latency-us 50 --network-gbit 10
    python bench/scale.py MODEL.gguf --layout 1x2 --sequences 16 --replicas 2 --row-us 400
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import subprocess
import sys
from dataclasses import dataclass

from oxibonsai.devices import open_device
from oxibonsai.distributed.layout import Layout
from oxibonsai.distributed.traffic import StepTraffic, predict
from oxibonsai.loading import open_model
from oxibonsai.models import Model, load_model

TOKENS, PROMPT_TOKENS = 32, 64


@dataclass(frozen=True)
class Machine:
    """Of each process: bytes a second of memory and network, seconds until a message arrives, and
    seconds that the whole model computes for a row, where that takes longer than reading it.
    """

    memory: float
    network: float
    latency: float
    row: float = 0.0


@dataclass(frozen=True)
class Load:
    """Sequences that decode, and the engines that they are shared out among."""

    sequences: int = 1
    engines: int = 1


def measure(model: str, layout: Layout) -> dict[str, object]:
    """What ``oxibonsai.distributed bench`` prints for processes on this machine."""
    command = [
        sys.executable, "-m", "torch.distributed.run", "--nnodes", "1", "--nproc-per-node",
        str(layout.world), "--master-port", str(29000 + os.getpid() % 1000), "-m",
        "oxibonsai.distributed", "bench", "--tensor-parallel", str(layout.tensor),
        "--pipeline-parallel", str(layout.pipeline), "--interface", "lo", "--model", model,
        "--tokens", str(TOKENS), "--prompt-tokens", str(PROMPT_TOKENS), "--threads", "1",
        "--parity", "off",
    ]  # fmt: skip
    environment = {**os.environ, "OXIBONSAI_GROUP_SECRET": secrets.token_hex(16)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(done.stderr[-2000:])
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return found


def predicted(model: Model, layout: Layout, rows: int = 1) -> list[StepTraffic]:
    """The traffic of each rank in a step that decodes so many sequences."""
    layers = model.config.num_hidden_layers
    return [
        predict(model.graph, layers, Layout(layout.tensor, layout.pipeline, rank), rows, rows)
        for rank in range(layout.world)
    ]


def stage_seconds(model: Model, layout: Layout, machine: Machine, rows: int) -> list[float]:
    """How long each stage works on such a step, with what it sends; in each the slowest rank."""
    of_ranks = predicted(model, layout, rows)
    whole = sum(w.nbytes for w in model.graph.matrices)
    times = []
    for stage in range(layout.pipeline):
        ranks = [of_ranks[r] for r in layout.tensor_group(stage)]
        weights = max(t.weight_bytes for t in ranks)
        busy = max(weights / machine.memory, rows * machine.row * weights / whole)
        # Every rank's part goes once around the others.
        rounds = layout.tensor - 1
        gathers = ranks[0].gathers * machine.latency + ranks[0].gathered_bytes / machine.network
        sends = ranks[0].sends * machine.latency + ranks[0].sent_bytes / machine.network
        times.append(busy + rounds * gathers + sends)
    return times


def tokens_per_second(model: Model, layout: Layout, machine: Machine, load: Load) -> float:
    """Of all sequences: an engine waits for its step, and a stage works on one step at a time."""
    rows = load.sequences // load.engines
    stages = stage_seconds(model, layout, machine, rows)
    command = machine.latency if layout.world > 1 else 0.0
    step = max(sum(stages) + command, load.engines * max(stages))
    return load.sequences / step


def report(
    model: str, layout: Layout, machine: Machine, load: Load, loaded: Model
) -> dict[str, object]:
    """Measured and predicted traffic of rank 0, and the predicted speed."""
    of_ranks = predicted(loaded, layout)
    found = measure(model, layout)
    sent = found["sent_in_text"]
    tokens = found["tokens"]
    assert isinstance(sent, dict)
    assert isinstance(tokens, int)
    measured = {k: sent[k] / tokens for k in ("gathers", "gathered_bytes", "sends", "sent_bytes")}
    expected = {k: float(getattr(of_ranks[0], k)) for k in measured}
    one = tokens_per_second(loaded, Layout(1, 1, 0), machine, Load(load.sequences))
    return {
        "layout": f"{layout.tensor}x{layout.pipeline}",
        "measured_a_token": measured,
        "predicted_a_token": expected,
        "equal": measured == expected,
        "weight_bytes_by_rank": [t.weight_bytes for t in of_ranks],
        "loopback_tokens_per_second": found["tokens_per_second"],
        "PREDICTION_tokens_per_second": tokens_per_second(loaded, layout, machine, load),
        "PREDICTION_tokens_per_second_of_one": one,
    }


def main() -> None:
    """Prints one line of JSON for each layout."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--layout", action="append", required=True, metavar="TxP")
    parser.add_argument("--memory-gb", type=float, default=40.0, help="GB/s of each machine")
    parser.add_argument("--network-gbit", type=float, default=10.0)
    parser.add_argument("--latency-us", type=float, default=50.0)
    parser.add_argument(
        "--row-us", type=float, default=0.0,
        help="that one process computes for each sequence of a large batch",
    )  # fmt: skip
    parser.add_argument("--sequences", type=int, default=1, help="that decode at the same time")
    parser.add_argument("--replicas", type=int, default=1, help="engines that share them out")
    options = parser.parse_args()
    if options.replicas < 1 or options.sequences % options.replicas:
        parser.error("each replica needs as many sequences as the others")
    machine = Machine(
        options.memory_gb * 1e9,
        options.network_gbit * 1e9 / 8,
        options.latency_us * 1e-6,
        options.row_us * 1e-6,
    )
    load = Load(options.sequences, options.replicas)
    loaded = load_model(open_model(options.model), open_device("cpu", 1))
    for text in options.layout:
        tensor, pipeline = (int(n) for n in text.split("x"))
        print(json.dumps(report(options.model, Layout(tensor, pipeline, 0), machine, load, loaded)))


if __name__ == "__main__":
    main()
