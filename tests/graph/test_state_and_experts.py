"""A toy network with a recurrent slot, pages and experts: one graph, the same bytes however it runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from oxibonsai import _core
from oxibonsai.errors import RequestError
from oxibonsai.graph import Builder
from oxibonsai.models.parity import compare_ops

VOCABULARY, HIDDEN, FF, EXPERTS, CHOSEN, TAPS, HEAD_DIM = 97, 64, 96, 6, 2, 4, 16
IDS = [int(i) for i in np.random.default_rng(5).integers(0, VOCABULARY, 100)]
TIERS = _core.cpu.tiers()
Rows = npt.NDArray[np.float32]


@dataclass
class Toy:
    graph: _core.Graph
    tensors: dict[str, Rows]  # as float32, of the stored values
    conv: Rows


@pytest.fixture(scope="module", params=["F32", "Q8_0"])
def toy(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Toy:
    return make_toy(tmp_path_factory.mktemp("toy") / "toy.gguf", request.param)


def make_toy(path: Path, quant_type: str) -> Toy:
    random = np.random.default_rng(8)
    shapes = {
        "embed": (VOCABULARY, HIDDEN),
        "q": (HIDDEN, HIDDEN),
        "k": (HIDDEN // 2, HIDDEN),
        "v": (HIDDEN // 2, HIDDEN),
        "router": (EXPERTS, HIDDEN),
        "gate": (EXPERTS, FF, HIDDEN),
        "up": (EXPERTS, FF, HIDDEN),
        "down": (EXPERTS, HIDDEN, FF),
    }
    writer = _core.GgufWriter(path.open("wb"))
    gguf_id = next(t["gguf_id"] for t in _core.quant_types() if t["name"] == quant_type)
    blocks, tensors = {}, {}
    for name, shape in shapes.items():
        values = random.standard_normal(shape, dtype=np.float32) * shape[-1] ** -0.5 * 2
        rows = values.reshape(-1, shape[-1])
        blocks[name] = rows.view(np.uint8) if gguf_id == 0 else _core.encode(rows, quant_type)
        stored = rows if gguf_id == 0 else _core.decode(quant_type, blocks[name])
        tensors[name] = np.asarray(stored, dtype=np.float32).reshape(shape)
        writer.add_tensor(name, shape, gguf_id, blocks[name].nbytes)
    writer.write_header()
    for data in blocks.values():
        writer.write_tensor(data)
    writer.close()
    file = _core.GgufFile(str(path))
    weight = {name: _core.Weight(file, name) for name in shapes}
    conv = random.standard_normal((HIDDEN, TAPS), dtype=np.float32)
    ones = np.ones(HIDDEN, np.float32)

    g = Builder()
    h = g.embed(weight["embed"])
    h = g.add(h, g.conv1d(g.rms_norm(h, ones, 1e-6), conv))
    q, k, v = g.linear(h, weight["q"], weight["k"], weight["v"])
    a = g.attention(q, k, v, layer=0, head_dim=HEAD_DIM, scale=HEAD_DIM**-0.5)
    x = g.add(h, g.rms_norm(h, ones, 1e-6))
    (scores,) = g.linear(x, weight["router"])
    routing = g.route(scores, CHOSEN, normalize=True)
    rows = g.dispatch(x, routing)
    gate, up = (g.expert_linear(rows, routing, weight[n]) for n in ("gate", "up"))
    x = g.combine(g.expert_linear(g.swiglu(gate, up), routing, weight["down"]), routing)
    g.output("mixed", g.select_outputs(x))
    g.output("attended", g.select_outputs(a))
    return Toy(g.graph, tensors, conv)


@dataclass
class Runs:
    """An executable and the state of a few sequences."""

    executable: _core.Executable
    pages: _core.KvPages
    slots: _core.Slots

    @classmethod
    def of(cls, toy: Toy, tier: str, threads: int = 2) -> Runs:
        device = _core.CpuDevice(threads, tier)
        return cls(
            device.compile(toy.graph),
            _core.KvPages(toy.graph.paged_layers, "f32", 8),
            _core.Slots(toy.graph.slot_entries, 4),
        )

    def run(self, *spans: tuple[int, int, int]) -> bytes:
        """Positions first .. last - 1 of the sequence in each slot; all rows of both results."""
        batch = _core.Batch()
        for slot, first, last in spans:
            pages = [2 * slot, 2 * slot + 1]
            batch.add(IDS[first:last], first=first, pages=pages, slot=slot, outputs=last - first)
        results = self.executable.run(batch, [self.pages], self.slots)
        return results["mixed"].tobytes() + results["attended"].tobytes()


@pytest.fixture(scope="module")
def truth(toy: Toy) -> bytes:
    return Runs.of(toy, "scalar", 1).run((0, 0, 100))


@pytest.mark.parametrize("tier", TIERS)
def test_every_tier_gives_the_bytes_of_scalar(toy: Toy, truth: bytes, tier: str) -> None:
    assert Runs.of(toy, tier).run((0, 0, 100)) == truth
    devices = _core.CpuDevice(2, tier), _core.CpuDevice(1, "scalar")
    assert compare_ops(toy.graph, *devices) == []


@pytest.mark.parametrize("tier", TIERS)
def test_a_sequence_is_the_same_alone_and_beside_others(toy: Toy, tier: str) -> None:
    alone = Runs.of(toy, tier)
    parts = [alone.run((0, 0, 7)), alone.run((0, 7, 8)), alone.run((0, 8, 100))]
    beside = Runs.of(toy, tier, 3)
    beside.run((1, 0, 40), (0, 0, 7), (2, 0, 3))
    mixed = beside.run((2, 3, 4), (0, 7, 8), (1, 40, 41))
    again = Runs.of(toy, tier)
    again.run((0, 0, 8))
    assert again.run((0, 8, 100)) == parts[2]
    row = HIDDEN * 4  # bytes of a row: the second span's, in each of the two results
    assert mixed[row : 2 * row] + mixed[4 * row : 5 * row] == parts[1][:row] + parts[1][row:]


@pytest.mark.parametrize("tier", TIERS)
def test_a_sequence_goes_on_from_a_snapshot_of_its_slot(toy: Toy, tier: str) -> None:
    runs = Runs.of(toy, tier)
    runs.run((0, 0, 64))
    runs.slots.copy(0, 3)
    saved = runs.slots.read(0)
    wanted = runs.run((0, 64, 80))
    runs.run((0, 80, 90))  # and back to position 64
    runs.slots.copy(3, 0)
    assert runs.run((0, 64, 80)) == wanted
    runs.slots.write(0, saved)
    assert runs.run((0, 64, 80)) == wanted


def test_a_sequence_begins_with_an_empty_state_whatever_the_slot_holds(toy: Toy) -> None:
    runs = Runs.of(toy, TIERS[-1])
    first = runs.run((0, 0, 20))
    assert runs.run((0, 0, 20)) == first


def test_convolution_and_experts_are_what_their_formulas_say(tmp_path: Path) -> None:
    toy = make_toy(tmp_path / "toy.gguf", "F32")
    runs = Runs.of(toy, "scalar", 1)
    found = np.frombuffer(runs.run((0, 0, 100)), np.float32)[: 100 * HIDDEN].reshape(100, HIDDEN)
    t = {name: v.astype(np.float64) for name, v in toy.tensors.items()}
    h = t["embed"][IDS]

    def norm(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6)

    padded = np.concatenate([np.zeros((TAPS - 1, HIDDEN)), norm(h)])
    h = h + sum(padded[j : j + 100] * toy.conv[:, j] for j in range(TAPS))
    x = h + norm(h)
    scores = x @ t["router"].T
    p = np.exp(scores - scores.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    for r in range(100):
        chosen = np.argsort(-p[r])[:CHOSEN]
        wanted = np.zeros(HIDDEN)
        for e in chosen:
            gate, up = t["gate"][e] @ x[r], t["up"][e] @ x[r]
            wanted += (
                p[r, e] / p[r, chosen].sum() * (t["down"][e] @ (gate / (1 + np.exp(-gate)) * up))
            )
        assert np.abs(found[r] - wanted).max() < 1e-5 * np.abs(wanted).max(), r


def test_two_spans_cannot_share_a_slot(toy: Toy) -> None:
    with pytest.raises(RequestError, match="two spans use the slot 1"):
        Runs.of(toy, "scalar").run((1, 0, 3), (1, 3, 4))
