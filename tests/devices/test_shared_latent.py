"""Heads that all read the same keys and values are shared; what they read is kept by every process."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt
import pytest
from test_tensor_parallel import Meeting

from oxibonsai import _core
from oxibonsai.devices import open_device
from oxibonsai.graph import Builder, RopeConfig

HEADS, NOPE, ROPE, LATENT, VALUES, INPUT = 6, 32, 16, 64, 32, 64


def matrix(rows: int, cols: int, seed: int, heads: int = 1) -> _core.Weight:
    values = np.random.default_rng(seed).standard_normal((heads * rows, cols), dtype=np.float32)
    blocks = _core.encode(values, "Q8_0", None)
    return _core.Weight.from_blocks(f"{seed}.weight", "Q8_0", blocks, cols, heads)


def latent_attention() -> _core.Graph:
    b = Builder()
    x, rope = b.input("x", INPUT), RopeConfig(ROPE, theta=10000.0)
    q, kv = b.linear(x, matrix(HEADS * (NOPE + ROPE), INPUT, 1), matrix(LATENT + ROPE, INPUT, 2))
    latent = b.select_columns(kv, 0, LATENT, LATENT + ROPE)
    k_rope = b.rope(b.select_columns(kv, LATENT, ROPE, LATENT + ROPE), rope, ROPE)
    q_rope = b.rope(b.select_columns(q, NOPE, ROPE, NOPE + ROPE), rope, ROPE)
    q_nope = b.select_columns(q, 0, NOPE, NOPE + ROPE)
    q = b.join_heads(b.head_linear(q_nope, matrix(LATENT, NOPE, 3, HEADS)), q_rope, HEADS)
    a = b.attention(
        q, b.join_heads(latent, k_rope, 1), None, layer=0, head_dim=LATENT + ROPE,
        value_dim=LATENT, scale=0.1,
    )  # fmt: skip
    (out,) = b.linear(
        b.head_linear(a, matrix(VALUES, LATENT, 4, HEADS)), matrix(INPUT, HEADS * VALUES, 5)
    )
    b.output("out", out)
    return b.graph


def multi_query_attention() -> _core.Graph:
    b, dim = Builder(), 32
    x = b.input("x", INPUT)
    q, k, v = b.linear(
        x, matrix(HEADS * dim, INPUT, 1), matrix(dim, INPUT, 2), matrix(dim, INPUT, 3)
    )
    a = b.attention(q, k, v, layer=0, head_dim=dim, scale=0.1)
    (out,) = b.linear(a, matrix(INPUT, HEADS * dim, 4))
    b.output("out", out)
    return b.graph


GRAPHS = {"latent": latent_attention, "multi-query": multi_query_attention}


def run(graph: _core.Graph) -> list[bytes]:
    """Of a prompt, and of a token behind it."""
    device = open_device("cpu", 1)
    executable = device.compile(graph)
    pools = [device.make_pages(graph.paged_layers, "f16", 2)]
    results = []
    for first, rows in ((0, 70), (70, 1)):
        batch = _core.Batch()
        batch.add_span(rows, first=first, pages=[0, 1])
        random: npt.NDArray[np.float32] = np.random.default_rng(rows).standard_normal(
            (rows, INPUT), dtype=np.float32
        )
        batch.set_input("x", random)
        results.append(executable.run(batch, pools)["out"].tobytes())
    return results


@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize("name", GRAPHS)
def test_a_share_has_the_bytes_of_one_process(name: str, ranks: int) -> None:
    graph, meeting = GRAPHS[name](), Meeting(ranks)
    shares = [_core.Sharding(meeting.exchange(rank)).share(graph) for rank in range(ranks)]
    whole = run(graph)
    with ThreadPoolExecutor(ranks) as threads:
        for of_rank in threads.map(run, shares):
            assert of_rank == whole


def test_each_process_has_the_matrices_of_its_heads_and_the_whole_cache() -> None:
    graph = latent_attention()
    shares = [_core.Sharding(Meeting(3).exchange(rank)).share(graph) for rank in range(3)]
    total = sum(w.nbytes for w in graph.matrices)
    own = [sum(w.nbytes for w in share.matrices) for share in shares]
    assert sum(own) == total
    assert own == pytest.approx([total / 3] * 3, rel=0.01)
    share = shares[1]
    assert share.paged_layers == graph.paged_layers
    # The queries are never put together; what all heads read is, in a message of its own.
    messages = [columns for _, columns in _core.Sharding.messages(share)]
    assert messages == [(LATENT + ROPE) // 3 + 1, HEADS // 3 * VALUES, INPUT // 3 + 1]
