"""A small random model, plain and folded, whose texts drafters propose; what its tests share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import rotated_models
from rotated_models import VOCABULARY, Shape

import oxibonsai
from oxibonsai import SamplingParams, _core
from oxibonsai.engine import Engine, Options, Sequence
from oxibonsai.engine.sequence import Wanted

Floats = npt.NDArray[np.float32]
HIDDEN = 128
SHAPE = Shape("qwen3", block=64, hidden=HIDDEN, ff=192, layers=3)
IDS: list[int] = np.random.default_rng(7).integers(0, VOCABULARY, 90).tolist()
GREEDY = SamplingParams(temperature=0, max_tokens=40, ignore_eos=True)
DRAWN = SamplingParams(temperature=0.9, top_k=0, seed=3, max_tokens=40, ignore_eos=True)


def write_targets(folder: Path) -> rotated_models.Twins:
    made = rotated_models.twins(SHAPE)
    made.write_plain(folder / "plain.gguf")
    made.write_folded(folder / "folded.gguf")
    made.changes["folder"] = folder
    return made


def target(twins: rotated_models.Twins, name: str = "plain", **options: Any) -> Engine:
    return load(twins.changes["folder"] / f"{name}.gguf", **options)


def load(path: Path, **options: Any) -> Engine:
    settings = {"ctx_size": 192, "threads": 2, "parity": "off", "kv_type": "f32", **options}
    return oxibonsai.load(path, **settings)


def states_of(engine: Engine, ids: list[int], taps: tuple[int, ...]) -> Floats:
    batch = _core.Batch()
    batch.add(ids, pages=[0, 1], outputs=1)
    pools = [engine.model.new_pages("f32", 2)]
    return np.concatenate(engine.model.run_with_hidden_states(batch, pools, None, taps)[1], axis=1)


def run(engine: Engine, prompts: list[list[int]], params: SamplingParams, options: Options) -> Any:
    """What is told of the texts of all prompts, and their sequences."""
    sequences = [engine.submit(p, params, options) for p in prompts]
    while not all(s.finished for s in sequences):
        engine.step()
    return [(s.generated, s.finish_reason) for s in sequences], sequences


def check_proposals_behind_a_found_beginning(
    path: Path, vocabulary: int, make: Callable[[Engine], Any]
) -> None:
    """They are those of the whole text: for a model with recurrent state, and a drafter for its engine."""
    proposed: dict[tuple[int, ...], list[int]] = {}

    def proposals(engine: Engine, draft: Any, prompt: list[int], options: Options) -> Sequence:
        propose = type(draft).propose

        def noted(asked: list[Wanted]) -> list[list[int]]:
            (tokens,) = propose(draft, asked)
            proposed[tuple(asked[0].sequence.tokens)] = tokens
            return [tokens]

        draft.propose = noted
        proposed.clear()
        (sequence,) = run(engine, [prompt], GREEDY, options)[1]
        assert sequence.error is None
        return sequence  # type: ignore[no-any-return]

    ids = [i % vocabulary for i in IDS]
    prompt = [*ids[:77], 5, 6, 7]
    cold = load(path, prefix_cache=False)
    draft = make(cold)
    proposals(cold, draft, prompt, Options(speculate=draft.speculator))
    wanted = dict(proposed)
    engine = load(path)
    draft = make(engine)
    proposals(engine, draft, ids, Options(speculate=draft.speculator, borders=(70, 77)))
    found = proposals(engine, draft, prompt, Options(speculate=draft.speculator))
    assert found.num_cached == 77
    both = [text for text in wanted if text in proposed and wanted[text] and proposed[text]]
    assert len(both) > 5
    for text in both:
        count = min(len(wanted[text]), len(proposed[text]))
        assert proposed[text][:count] == wanted[text][:count]
