"""Drafters of EAGLE-3: torch's logits and tokens, and texts that are the model's all the same."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gguf_copy
import oxibonsai
from oxibonsai import FormatError, SamplingParams, UnsupportedError, _core
from oxibonsai.checkpoint import Checkpoint
from oxibonsai.engine import EagleDraft, Options
from oxibonsai.engine.sequence import Wanted
from oxibonsai.engine.speculation.methods import choose_speculation
from oxibonsai.models import read_config
from oxibonsai.models.eagle_drafter import EagleDrafter

pytest.importorskip("torch", reason="needs torch (extra: test)")
sys.path.insert(0, str(Path(__file__).parents[1] / "models"))
import drafting_models
import eagle_drafters
import rotated_models
from drafted_texts import (
    DRAWN,
    GREEDY,
    HIDDEN,
    IDS,
    check_proposals_behind_a_found_beginning,
    run,
    states_of,
    target,
    write_targets,
)
from eagle_drafters import Drafter
from rotated_models import VOCABULARY

pytestmark = pytest.mark.hf

COUNT = 4

_SOME = np.sort(np.random.default_rng(2).permutation(VOCABULARY)[:150]).astype(np.int64)
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "of fewer tokens": {"ids": _SOME},
    "with norms before": {"norm_before_fc": True, "norm_before_residual": True},
    "narrower, with a table, an older key": {
        "hidden": 96, "own_table": True, "ids": _SOME, "layers_key": "extract_layers",
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def twins(tmp_path_factory: pytest.TempPathFactory) -> rotated_models.Twins:
    return write_targets(tmp_path_factory.mktemp("target"))


def drafter(name: str, folder: Path, **more: Any) -> tuple[Drafter, Checkpoint]:
    sizes = {"hidden": HIDDEN, "target_hidden": HIDDEN, "vocabulary": VOCABULARY}
    made = Drafter(**(sizes | KINDS[name] | more))
    return made, Checkpoint(made.write(folder / "drafter.gguf"))


@pytest.mark.parametrize("model", ["plain", "folded"])
@pytest.mark.parametrize("name", KINDS)
def test_logits_and_tokens_are_torch_s(
    name: str, model: str, twins: rotated_models.Twins, tmp_path: Path
) -> None:
    engine, table = target(twins, model), twins.plain["token_embd.weight"]
    made, file = drafter(name, tmp_path)
    states = states_of(engine, IDS[:-1], made.target_layers)
    wanted, tokens = eagle_drafters.reference(made, states, IDS[1:], table, COUNT)
    usual = wanted > -1e29
    assert wanted[usual].std() > 0.3

    own = EagleDrafter(engine.model, file)
    pools, n = [own.new_pages("f32", 2)], len(states)
    for first, end in ((0, 40), (40, n)):
        batch = _core.Batch()
        batch.add(IDS[1 + first : 1 + end], first=first, pages=[0, 1], outputs=1)
        logits, state = own.read_text(batch, pools, states[first:end])
    found = [logits[0]]
    for i, token in enumerate(tokens[:-1]):
        batch = _core.Batch()
        batch.add([token], first=n + i, pages=[0, 1], outputs=1)
        logits, state = own.read_draft(batch, pools, state)
        found.append(logits[0])
    rows = np.stack(found)
    assert ((rows > -1e29) == usual).all()
    assert np.abs(rows - wanted)[usual].max() <= 1e-4 * np.abs(wanted[usual]).max()

    draft = EagleDraft(engine, file, threshold=0.0, length=COUNT)
    proposed: list[tuple[list[int], list[int]]] = []
    propose = draft.propose

    def noted(asked: list[Wanted]) -> list[list[int]]:
        (drafted,) = propose(asked)
        proposed.append((list(asked[0].sequence.tokens), drafted))
        return [drafted]

    draft.propose = noted  # type: ignore[method-assign]
    engine.submit(IDS[:-1], GREEDY, Options(speculate=draft.speculator))
    for _ in range(8):
        engine.step()
    assert len(proposed) > 2  # those after the first one behind tokens that a proposal was of
    for text, drafted in proposed:
        states = states_of(engine, text[:-1], made.target_layers)
        _, tokens = eagle_drafters.reference(made, states, text[1:], table, len(drafted))
        assert len(drafted) == COUNT
        assert drafted == tokens
    engine.cancel_all()


@pytest.mark.parametrize("params", [GREEDY, DRAWN], ids=["greedy", "drawn"])
@pytest.mark.parametrize("name", ["plain", "of fewer tokens"])
def test_texts_are_those_without_a_drafter(
    name: str, params: SamplingParams, twins: rotated_models.Twins, tmp_path: Path
) -> None:
    prompts = [IDS, IDS[:1], IDS[10:50], IDS[:64]]
    wanted, _ = run(target(twins, parallel=4, prefix_cache=False), prompts, params, Options())
    engine = target(twins, parallel=4)
    _, file = drafter(name, tmp_path)
    draft = EagleDraft(engine, file, threshold=0.0, length=4)
    for _ in range(2):  # the second time with pages of the first
        found, sequences = run(engine, prompts, params, Options(speculate=draft.speculator))
        assert found == wanted
    assert sum(s.speculator.lookahead.proposed for s in sequences) > 100
    assert draft.cache.used_bytes == 0


def test_a_layer_that_adds_nothing_gives_the_model_s_own_logits(
    twins: rotated_models.Twins, tmp_path: Path
) -> None:
    """Its state is then the last layer's output, and norm and output matrix are the model's."""
    made, _ = drafter("plain", tmp_path, target_layers=(3,))
    for name in ("blk.0.attn_output.weight", "blk.0.ffn_down.weight"):
        made.tensors[name] = np.zeros_like(made.tensors[name])
    made.tensors["fc.weight"] = np.eye(HIDDEN, dtype=np.float32)
    made.tensors["output_norm.weight"] = twins.plain["output_norm.weight"].astype(np.float32)
    made.tensors["output.weight"] = twins.plain["output.weight"].astype(np.float32)
    engine = target(twins)
    own = EagleDrafter(engine.model, Checkpoint(made.write(tmp_path / "identity.gguf")))
    states = states_of(engine, IDS[:-1], (3,))
    batch = _core.Batch()
    batch.add(IDS[1:], pages=[0, 1], outputs=len(states))
    logits, state = own.read_text(batch, [own.new_pages("f32", 2)], states)
    wanted = engine.logits(IDS[:-1])
    assert np.abs(state - states).max() <= 1e-6 * np.abs(states).max()
    assert np.abs(logits - wanted).max() <= 1e-4 * np.abs(wanted).max()


def test_a_drafter_that_knows_the_text_is_right_throughout(
    twins: rotated_models.Twins, tmp_path: Path
) -> None:
    """Its output matrix is fitted to the text: from other states or tokens it proposes others."""
    prompt, length, depth = IDS[:20], 24, 3
    further = SamplingParams(temperature=0, max_tokens=length + depth, ignore_eos=True)
    ((generated, _),), _ = run(target(twins), [prompt], further, Options())
    text, table = [*prompt, *generated], twins.plain["token_embd.weight"]

    made, _ = drafter("plain", tmp_path)
    tensors = made.tensors | {"output.weight": np.eye(HIDDEN, dtype=np.float32)}
    inner = replace(made, vocabulary=HIDDEN, tensors=tensors)
    engine = target(twins)
    states = states_of(engine, text, made.target_layers)
    rows, tokens = [], []
    for end in range(len(prompt) + 1, len(prompt) + length):
        then = text[end : end + depth]
        read = text[1:end]
        rows.append(eagle_drafters.reference(inner, states[: end - 1], read, table, depth, then)[0])
        tokens += then
    wanted_logits = np.eye(VOCABULARY, dtype=np.float32)[tokens]
    solution, _, rank, _ = np.linalg.lstsq(np.concatenate(rows), wanted_logits, rcond=None)
    assert rank == len(tokens) < HIDDEN
    made.tensors["output.weight"] = np.ascontiguousarray(solution.T)
    file = Checkpoint(made.write(tmp_path / "fitted.gguf"))

    params = replace(further, max_tokens=length)
    draft = EagleDraft(engine, file, threshold=0.0, length=depth)
    before = engine.counts.steps
    options = Options(speculate=draft.speculator)
    ((found, _),), (sequence,) = run(engine, [prompt], params, options)
    assert found == generated[:length]
    lookahead = sequence.speculator.lookahead
    assert lookahead.accepted == lookahead.proposed >= 15
    assert engine.counts.steps - before <= 8


@pytest.mark.parametrize(
    ("changes", "without", "error", "message"),
    [
        ({"target_layers": ([0, 1, 9], "arr[i32]")}, (), FormatError, "layer 9, but .* has 3"),
        ({"target_hidden_size": (96, "u32")}, (), FormatError, "of 96 columns .* has 128 columns"),
        ({"new_key": (1, "u32")}, (), UnsupportedError, "eagle3.new_key"),
        ({"block_count": (2, "u32")}, (), UnsupportedError, "known are drafters of one"),
        ({"embedding_length": (64, "u32")}, (), FormatError, "no vocabulary of its own"),
        ({}, ("eagle3.target_layers",), FormatError, "target_layers is None"),
        ({}, ("fc.weight",), FormatError, "lacks the tensor fc.weight"),
        ({}, ("blk.0.attn_norm_2.weight",), FormatError, "lacks the tensor blk.0.attn_norm_2"),
    ],
)
def test_a_drafter_that_does_not_fit_is_refused(
    changes: dict[str, Any], without: tuple[str, ...], error: type[Exception], message: str,
    twins: rotated_models.Twins, tmp_path: Path,
) -> None:  # fmt: skip
    drafter("plain", tmp_path)
    keys = {f"eagle3.{key}": value for key, value in changes.items()}
    gguf_copy.copy(tmp_path / "drafter.gguf", tmp_path / "other.gguf", keys=keys, without=without)
    with pytest.raises(error, match=message):
        EagleDraft(target(twins), Checkpoint(tmp_path / "other.gguf"))


@pytest.mark.parametrize("ids", [[0, 0], [0, VOCABULARY], [-1, 0]])
def test_ids_that_are_no_tokens_are_refused(
    ids: list[int], twins: rotated_models.Twins, tmp_path: Path
) -> None:
    _, file = drafter("plain", tmp_path, ids=np.array(ids))
    with pytest.raises(FormatError, match="d2t is no list of different tokens"):
        EagleDraft(target(twins), file)


@pytest.mark.parametrize("count", [150, 151])
def test_ids_of_another_type_are_refused(
    count: int, twins: rotated_models.Twins, tmp_path: Path
) -> None:
    made, _ = drafter("plain", tmp_path, ids=np.arange(count))
    made.tensors["d2t"] = made.tensors["d2t"].astype(np.float32)
    file = Checkpoint(made.write(tmp_path / "floats.gguf"))
    with pytest.raises(FormatError, match="tensor d2t is of type F32; token ids are I64"):
        EagleDraft(target(twins), file)


def test_a_file_says_which_speculation_it_is_for(
    twins: rotated_models.Twins, tmp_path: Path
) -> None:
    drafter("plain", tmp_path)
    engine, path = target(twins), str(tmp_path / "drafter.gguf")
    assert choose_speculation(engine, "auto", path).kinds == ("draft-eagle3",)
    both = choose_speculation(engine, "ngram-simple,draft-eagle3", path, length=4, threshold=0.0)
    assert both.make is not None
    wanted, _ = run(engine, [IDS], GREEDY, Options())
    found, (sequence,) = run(engine, [IDS], GREEDY, Options(speculate=both.make))
    assert found == wanted
    assert sequence.speculator.lookahead.proposed > 20
    with pytest.raises(oxibonsai.RequestError, match="is for draft-eagle3, not for draft-simple"):
        choose_speculation(engine, "draft-simple", path)
    with pytest.raises(UnsupportedError, match=r"is a drafter .* give it with --draft-model"):
        oxibonsai.load(path)


def test_proposals_behind_a_found_beginning_are_those_of_the_whole_text(
    tmp_path: Path,
) -> None:
    path = drafting_models.make("qwen35", tmp_path).path
    config = read_config(Checkpoint(path))
    made = Drafter(
        hidden=config.hidden_size, target_hidden=config.hidden_size,
        vocabulary=config.vocab_size, target_layers=(0, 1, config.num_hidden_layers),
    )  # fmt: skip
    file = Checkpoint(made.write(tmp_path / "drafter.gguf"))
    check_proposals_behind_a_found_beginning(
        path, config.vocab_size, lambda engine: EagleDraft(engine, file, threshold=0.0, length=3)
    )
