"""One model over several processes: what it sends, measured on loopback, and what that would cost.

The messages and bytes of a token are measured and compared with what the graph predicts. Tokens per
second on other machines and links are a prediction, computed from these and from the bandwidth of
memory and network that you give; nothing of that is measured here.

    python bench/scale.py MODEL.gguf --layout 2x1 --layout 1x2 --latency-us 50 --network-gbit 10
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
from oxibonsai.models import Model, load_model
from oxibonsai.opening import open_model

TOKENS, PROMPT_TOKENS = 32, 64


@dataclass(frozen=True)
class Machine:
    """Of each process: bytes a second of memory and network, seconds until a message arrives."""

    memory: float
    network: float
    latency: float


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


def predicted(model: Model, layout: Layout) -> list[StepTraffic]:
    """A token's traffic of each rank."""
    layers = model.config.num_hidden_layers
    return [
        predict(model.graph, layers, Layout(layout.tensor, layout.pipeline, rank))
        for rank in range(layout.world)
    ]


def seconds(of_ranks: list[StepTraffic], layout: Layout, machine: Machine) -> float:
    """A token's time: the stages one after the other, in each the slowest rank."""
    total = 0.0
    for stage in range(layout.pipeline):
        ranks = [of_ranks[r] for r in layout.tensor_group(stage)]
        slowest = max(t.weight_bytes for t in ranks) / machine.memory
        # Every rank's part goes once around the others.
        rounds = layout.tensor - 1
        gathers = ranks[0].gathers * machine.latency + ranks[0].gathered_bytes / machine.network
        sends = ranks[0].sends * machine.latency + ranks[0].sent_bytes / machine.network
        total += slowest + rounds * gathers + sends
    command = machine.latency * (layout.world - 1).bit_length()
    return total + command


def report(model: str, layout: Layout, machine: Machine, loaded: Model) -> dict[str, object]:
    """Measured and predicted traffic of rank 0, and the predicted speed."""
    of_ranks = predicted(loaded, layout)
    found = measure(model, layout)
    sent = found["sent_in_text"]
    tokens = found["tokens"]
    assert isinstance(sent, dict)
    assert isinstance(tokens, int)
    measured = {k: sent[k] / tokens for k in ("gathers", "gathered_bytes", "sends", "sent_bytes")}
    expected = {k: float(getattr(of_ranks[0], k)) for k in measured}
    one = predicted(loaded, Layout(1, 1, 0))
    return {
        "layout": f"{layout.tensor}x{layout.pipeline}",
        "measured_a_token": measured,
        "predicted_a_token": expected,
        "equal": measured == expected,
        "weight_bytes_by_rank": [t.weight_bytes for t in of_ranks],
        "loopback_tokens_per_second": found["tokens_per_second"],
        "PREDICTION_tokens_per_second": 1 / seconds(of_ranks, layout, machine),
        "PREDICTION_tokens_per_second_of_one": 1 / seconds(one, Layout(1, 1, 0), machine),
    }


def main() -> None:
    """Prints one line of JSON for each layout."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--layout", action="append", required=True, metavar="TxP")
    parser.add_argument("--memory-gb", type=float, default=40.0, help="GB/s of each machine")
    parser.add_argument("--network-gbit", type=float, default=10.0)
    parser.add_argument("--latency-us", type=float, default=50.0)
    options = parser.parse_args()
    machine = Machine(
        options.memory_gb * 1e9, options.network_gbit * 1e9 / 8, options.latency_us * 1e-6
    )
    loaded = load_model(open_model(options.model), open_device("cpu", 1))
    for text in options.layout:
        tensor, pipeline = (int(n) for n in text.split("x"))
        print(json.dumps(report(options.model, Layout(tensor, pipeline, 0), machine, loaded)))


if __name__ == "__main__":
    main()
