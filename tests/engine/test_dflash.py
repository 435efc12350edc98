"""Drafters that propose blocks: torch's logits and tokens, and texts that are the model's all the same."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gguf_copy
import oxibonsai
from oxibonsai import FormatError, SamplingParams, UnsupportedError, _core
from oxibonsai.checkpoint import Checkpoint
from oxibonsai.engine import DflashDraft, Engine, Options
from oxibonsai.engine.sequence import Wanted
from oxibonsai.engine.speculation.methods import choose_speculation
from oxibonsai.models import read_config
from oxibonsai.models.block_drafter import BlockDrafter
from oxibonsai.models.passes import FINAL

pytest.importorskip("torch", reason="needs torch (extra: test)")
sys.path.insert(0, str(Path(__file__).parents[1] / "models"))
import block_drafters
import drafting_models
import rotated_models
from block_drafters import Drafter
from drafted_texts import (
    DRAWN,
    GREEDY,
    HIDDEN,
    IDS,
    Floats,
    check_proposals_behind_a_found_beginning,
    run,
    states_of,
    target,
    write_targets,
)
from rotated_models import VOCABULARY

pytestmark = pytest.mark.hf


_SOME = np.sort(np.random.default_rng(2).permutation(VOCABULARY)[:150]).astype(np.int64)
KINDS: dict[str, dict[str, Any]] = {
    "dflash": {"kind": "dflash"},
    "dflash of the last layer's output, causal": {
        "kind": "dflash", "target_layers": (0, 2, 3), "causal": True,
    },
    "dflash with windows and a vocabulary": {"kind": "dflash", "window": 8, "own_vocabulary": True},
    "dspark": {"kind": "dspark"},
    "dspark with a bonus token": {"kind": "dspark", "anchored": False},
    "dspark of fewer tokens": {"kind": "dspark", "ids": _SOME},
    "dflash2": {"kind": "dflash2", "window": 32},
}  # fmt: skip


@pytest.fixture(scope="module")
def twins(tmp_path_factory: pytest.TempPathFactory) -> rotated_models.Twins:
    return write_targets(tmp_path_factory.mktemp("target"))


def drafter(name: str, folder: Path) -> tuple[Drafter, Checkpoint]:
    made = Drafter(hidden=HIDDEN, vocabulary=VOCABULARY, **KINDS[name])
    return made, Checkpoint(made.write(folder / "drafter.gguf"))


def one_block(engine: Engine, file: Checkpoint, made: Drafter, ids: list[int], rows: int) -> Floats:
    """The drafter's logits behind a text, of which it has read all but the last token in two parts."""
    own = BlockDrafter(engine.model, file)
    pools, slots = [own.new_pages("f32", 2)], own.new_slots(2)
    states = states_of(engine, ids[:-1], made.target_layers)
    n = len(states)
    for first, end in ((0, n // 2), (n // 2, n)):
        batch = _core.Batch()
        batch.add(ids[first:end], first=first, pages=[0, 1])
        own.observe(batch, pools, states[first:end])
    batch = _core.Batch()
    batch.add(
        [ids[-1], *[made.mask] * (rows - 1)],
        first=n,
        pages=[0, 1],
        slot=-1 if slots is None else 1,
        outputs=rows - made.first_wanted,
        blocks=[] if made.causal else [(n, n + rows)],
    )
    return own.draft(batch, pools, slots)[0]


def test_hidden_states_are_those_between_the_layers_of_transformers(tmp_path: Path) -> None:
    import dense_models
    import torch

    from oxibonsai.convert.language_model import convert

    case = next(c for c in dense_models.CASES if c.name == "phi3")
    model = dense_models.save(case, tmp_path / "model")
    convert(tmp_path / "model", tmp_path / "model.gguf", dtype="f32")
    engine = oxibonsai.load(tmp_path / "model.gguf", threads=1, parity="off", kv_type="f32")
    layers = engine.model.config.num_hidden_layers
    ids = dense_models.IDS[:40]
    with torch.no_grad():
        truth = model.model(torch.tensor([ids]), output_hidden_states=True).hidden_states
    # transformers' last one is behind the final norm.
    for tap, wanted in [*enumerate(truth[:-1]), (FINAL, truth[-1])]:
        found = states_of(engine, ids, (tap,))
        assert np.abs(found - wanted[0].numpy()).max() <= 1e-4 * wanted.abs().max()
    with pytest.raises(UnsupportedError, match=f"has {layers} layers"):
        states_of(engine, ids, (layers + 1,))


@pytest.mark.parametrize("model", ["plain", "folded"])
@pytest.mark.parametrize("name", KINDS)
def test_logits_and_tokens_are_torch_s(
    name: str, model: str, twins: rotated_models.Twins, tmp_path: Path
) -> None:
    engine = target(twins, model)
    made, file = drafter(name, tmp_path)
    states = states_of(engine, IDS[:-1], made.target_layers)
    wanted = block_drafters.reference(
        made, states, IDS[-1], made.block, twins.plain["token_embd.weight"],
        twins.plain["output.weight"],
    )  # fmt: skip
    found = one_block(engine, file, made, IDS, made.block)
    usual = wanted.logits > -1e29
    assert wanted.logits[usual].std() > 0.3
    assert ((found > -1e29) == usual).all()
    assert np.abs(found - wanted.logits)[usual].max() <= 1e-4 * np.abs(wanted.logits[usual]).max()

    draft = DflashDraft(engine, file, threshold=0.0, length=len(wanted.tokens))
    proposed: list[tuple[int, list[int]]] = []
    propose = draft.propose

    def noted(asked: list[Wanted]) -> list[list[int]]:
        (tokens,) = propose(asked)
        proposed.append((asked[0].sequence.tokens[-1], tokens))
        return [tokens]

    draft.propose = noted  # type: ignore[method-assign]
    engine.submit(IDS[:-1], GREEDY, Options(speculate=draft.speculator))
    while not proposed:
        engine.step()
    last, tokens = proposed[0]
    wanted = block_drafters.reference(
        made, states, last, made.block, twins.plain["token_embd.weight"],
        twins.plain["output.weight"],
    )  # fmt: skip
    assert tokens == wanted.tokens
    engine.cancel_all()


@pytest.mark.parametrize("params", [GREEDY, DRAWN], ids=["greedy", "drawn"])
@pytest.mark.parametrize("name", ["dflash", "dspark", "dflash2"])
def test_texts_are_those_without_a_drafter(
    name: str, params: SamplingParams, twins: rotated_models.Twins, tmp_path: Path
) -> None:
    prompts = [IDS, IDS[:1], IDS[10:50], IDS[:64]]
    wanted, _ = run(target(twins, parallel=4, prefix_cache=False), prompts, params, Options())
    engine = target(twins, parallel=4)
    _, file = drafter(name, tmp_path)
    draft = DflashDraft(engine, file, threshold=0.0, length=4)
    for _ in range(2):  # the second time with pages of the first
        found, sequences = run(engine, prompts, params, Options(speculate=draft.speculator))
        assert found == wanted
    assert sum(s.speculator.lookahead.proposed for s in sequences) > 100
    assert draft.cache.used_bytes == 0


def test_confidence_and_probabilities_end_a_draft(
    twins: rotated_models.Twins, tmp_path: Path
) -> None:
    made, file = drafter("dspark", tmp_path)
    engine = target(twins)
    states = states_of(engine, IDS[:-1], made.target_layers)
    block = block_drafters.reference(
        made, states, IDS[-1], made.block, twins.plain["token_embd.weight"],
        twins.plain["output.weight"],
    )  # fmt: skip
    own = BlockDrafter(engine.model, file)
    rows, _ = own.markov([IDS[-1], *block.tokens[:-1]])
    assert own.has_confidence
    assert len(block.confidence) == len(rows) == made.block
    for threshold in (0.0, 0.999999):
        draft = DflashDraft(engine, file, threshold=threshold, length=6)
        _, (sequence,) = run(engine, [IDS], GREEDY, Options(speculate=draft.speculator))
        assert (sequence.speculator.lookahead.proposed > 0) == (threshold == 0.0)


@pytest.mark.parametrize(
    ("changes", "without", "error", "message"),
    [
        ({"target_layers": ([9], "arr[i32]")}, (), FormatError, "layer 9, but .* has 3 layers"),
        ({"new_key": (1, "u32")}, (), UnsupportedError, "dflash.new_key"),
        ({"block_size": (1, "u32")}, (), FormatError, "block_size is 1"),
        ({}, ("tokenizer.ggml.mask_token_id",), FormatError, "its mask token is None"),
        ({}, ("dflash.target_layers",), FormatError, "target_layers is None"),
        ({}, ("fc.weight",), FormatError, "lacks the tensor fc.weight"),
    ],
)
def test_a_drafter_that_does_not_fit_is_refused(
    changes: dict[str, Any], without: tuple[str, ...], error: type[Exception], message: str,
    twins: rotated_models.Twins, tmp_path: Path,
) -> None:  # fmt: skip
    drafter("dflash", tmp_path)
    keys = {f"dflash.{key}": value for key, value in changes.items()}
    gguf_copy.copy(tmp_path / "drafter.gguf", tmp_path / "other.gguf", keys=keys, without=without)
    with pytest.raises(error, match=message):
        DflashDraft(target(twins), Checkpoint(tmp_path / "other.gguf"))


def test_tensors_that_are_not_known_are_refused(
    twins: rotated_models.Twins, tmp_path: Path
) -> None:
    drafter("dflash", tmp_path)
    more = {"log_snr_fc1.weight": np.zeros((4, 4), np.float32)}
    gguf_copy.copy(tmp_path / "drafter.gguf", tmp_path / "other.gguf", more=more)
    with pytest.raises(UnsupportedError, match=r"log_snr_fc1\.weight"):
        DflashDraft(target(twins), Checkpoint(tmp_path / "other.gguf"))


@pytest.mark.parametrize(
    ("name", "kind"),
    [("dflash", "draft-dflash"), ("dspark", "draft-dspark"), ("dflash2", "draft-dflash")],
)
def test_a_file_says_which_speculation_it_is_for(
    name: str, kind: str, twins: rotated_models.Twins, tmp_path: Path
) -> None:
    drafter(name, tmp_path)
    engine, path = target(twins), str(tmp_path / "drafter.gguf")
    assert choose_speculation(engine, "auto", path).kinds == (kind,)
    both = choose_speculation(engine, f"ngram-simple,{kind}", path, length=4, threshold=0.0)
    assert both.make is not None
    wanted, _ = run(engine, [IDS], GREEDY, Options())
    found, (sequence,) = run(engine, [IDS], GREEDY, Options(speculate=both.make))
    assert found == wanted
    assert sequence.speculator.lookahead.proposed > 20
    with pytest.raises(oxibonsai.RequestError, match=f"is for {kind}, not for draft-simple"):
        choose_speculation(engine, "draft-simple", path)
    with pytest.raises(UnsupportedError, match=r"is a drafter .* give it with --draft-model"):
        oxibonsai.load(path)


def test_the_old_format_is_refused_with_the_command_that_converts_it(
    twins: rotated_models.Twins, tmp_path: Path
) -> None:
    drafter("dspark", tmp_path)
    keys = {"general.architecture": ("dspark", "str")}
    gguf_copy.copy(tmp_path / "drafter.gguf", tmp_path / "old.gguf", keys=keys)
    with pytest.raises(UnsupportedError, match="gguf-dspark-to-dflash --drop-shared-tensors"):
        choose_speculation(target(twins), "auto", str(tmp_path / "old.gguf"))


def test_proposals_behind_a_found_beginning_are_those_of_the_whole_text(
    tmp_path: Path,
) -> None:
    path = drafting_models.make("qwen35", tmp_path).path
    config = read_config(Checkpoint(path))
    made = Drafter(kind="dflash", hidden=config.hidden_size, vocabulary=config.vocab_size)
    file = Checkpoint(made.write(tmp_path / "drafter.gguf"))
    check_proposals_behind_a_found_beginning(
        path, config.vocab_size, lambda engine: DflashDraft(engine, file, threshold=0.0, length=3)
    )
