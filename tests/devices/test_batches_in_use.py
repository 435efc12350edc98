"""A batch that another thread changes while a step runs."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from oxibonsai import _core
from oxibonsai.graph import Builder

Floats = npt.NDArray[np.float32]
HEIGHT, WIDTH, CHANNELS = 4, 6, 32


def graph_of_a_picture() -> _core.Graph:
    """A layer whose rows two ranks share, then a convolution, which asks the batch for its grid."""
    rng = np.random.default_rng(0)
    blocks = rng.standard_normal((CHANNELS, CHANNELS), np.float32).view(np.uint8)
    kernel = rng.standard_normal((8, CHANNELS, 3, 3), np.float32)
    g = Builder()
    weight = _core.Weight.from_blocks("w", "F32", blocks, CHANNELS)
    shared = g.linear(g.input("x", CHANNELS), weight)[0]
    g.output("y", g.conv2d(shared, kernel, np.zeros(8, np.float32), pad=1))
    return g.graph


def batch_of_a_picture() -> _core.Batch:
    batch = _core.Batch()
    batch.add_span(HEIGHT * WIDTH)
    batch.set_grid(WIDTH)
    batch.set_input(
        "x", np.random.default_rng(1).standard_normal((HEIGHT * WIDTH, CHANNELS), np.float32)
    )
    return batch


def test_a_step_runs_the_batch_as_it_was_when_the_step_began() -> None:
    def run(change: bool) -> tuple[Floats, _core.Batch]:
        batch = batch_of_a_picture()

        def all_gather(own: Floats, everything: Floats) -> None:
            everything.reshape(2, -1)[:] = own
            if change:
                batch.set_grid(1)
                batch.add_span(HEIGHT * WIDTH)

        share = _core.Sharding(_core.Exchange(2, 0, all_gather)).share(graph_of_a_picture())
        return _core.CpuDevice(1).compile(share).run(batch)["y"], batch

    (alone, _), (meanwhile, changed) = run(False), run(True)
    np.testing.assert_array_equal(meanwhile, alone)
    assert len(changed) == 2 * HEIGHT * WIDTH  # of the next step
