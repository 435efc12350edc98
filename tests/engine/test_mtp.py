"""The layer of a model that predicts a further token proposes; the text is the model's all the same."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import gguf_copy
import oxibonsai
from oxibonsai import FormatError, SamplingParams, UnsupportedError, _core
from oxibonsai.checkpoint import Checkpoint
from oxibonsai.convert.language_model import convert
from oxibonsai.devices import LayerSplit, open_device
from oxibonsai.engine import ContextShift, Engine, MtpDraft, Options, Sequence, loading
from oxibonsai.engine.speculation.methods import choose_speculation
from oxibonsai.models.drafting import DraftingLayer

pytest.importorskip("transformers", reason="needs transformers and torch (extra: test)")
sys.path.insert(0, str(Path(__file__).parents[1] / "models"))
import drafting_models
from drafting_models import Drafting

pytestmark = pytest.mark.hf

Floats = npt.NDArray[np.float32]
IDS: list[int] = np.random.default_rng(7).integers(0, 131, 70).tolist()
GREEDY = SamplingParams(temperature=0, max_tokens=40, ignore_eos=True)
DRAWN = SamplingParams(temperature=0.8, top_k=0, seed=3, max_tokens=40, ignore_eos=True)


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Drafting]:
    found: dict[str, Drafting] = {}

    def get(name: str) -> Drafting:
        if name not in found:
            found[name] = drafting_models.make(name, tmp_path_factory.mktemp(name))
        return found[name]

    return get


def load(path: Path, **options: object) -> Engine:
    settings = {"ctx_size": 192, "threads": 2, "parity": "off", "kv_type": "f32", **options}
    return oxibonsai.load(path, **settings)  # type: ignore[arg-type]


def further_logits(engine: Engine, ids: list[int]) -> tuple[Floats, Floats]:
    """Logits of the model, and of its drafting layer for each token but the first."""
    layer, n = DraftingLayer(engine.model), len(ids)
    batch = _core.Batch()
    pages = list(range(n // 64 + 1))
    batch.add(ids, pages=pages, slot=0, outputs=n)
    slots = engine.model.new_slots(1) if engine.model.graph.slot_entries else None
    pools = [engine.model.new_pages("f32", len(pages))]
    logits, (states,) = engine.model.run_with_hidden_states(batch, pools, slots)
    batch = _core.Batch()
    batch.add(ids[1:], pages=pages, outputs=n - 1)
    return logits, layer.run(batch, [layer.new_pages("f32", len(pages))], states[:-1])[0]


@pytest.mark.parametrize("name", drafting_models.NAMES)
def test_logits_are_those_of_the_layer_in_transformers(
    name: str, make: Callable[[str], Drafting]
) -> None:
    drafting = make(name)
    engine = load(drafting.path)
    found, wanted = further_logits(engine, IDS), drafting_models.reference(drafting, IDS)
    for ours, truth in zip(found, wanted, strict=True):
        assert truth.std(axis=0).mean() > 0.3
        assert np.abs(ours - truth).max() <= 1e-4 * np.abs(truth).max()
    assert (found[0] == engine.logits(IDS)).all()


@pytest.mark.parametrize("name", ["glm4moe", "deepseek2-v3", "qwen35"])
def test_a_published_folder_keeps_the_layer(
    name: str, make: Callable[[str], Drafting], tmp_path: Path
) -> None:
    drafting = make(name)
    drafting_models.save_as_published(drafting, tmp_path / "model")
    convert(tmp_path / "model", tmp_path / "model.gguf", dtype="f32")
    found, wanted = (_core.GgufFile(str(p)) for p in (tmp_path / "model.gguf", drafting.path))
    assert {t.name for t in found.tensors} == {t.name for t in wanted.tensors}
    for tensor in wanted.tensors:
        ours = np.asarray(found.tensor_bytes(tensor.name))
        assert (ours == np.asarray(wanted.tensor_bytes(tensor.name))).all(), tensor.name
    a = name.partition("-")[0]
    for key in ("block_count", "nextn_predict_layers"):
        assert found.get(f"{a}.{key}") == wanted.get(f"{a}.{key}")


def told(sequence: Sequence) -> tuple[object, ...]:
    return (sequence.generated, sequence.finish_reason, sequence.shifts)


def run(
    engine: Engine, *prompts: list[int], params: SamplingParams, options: Options
) -> list[Sequence]:
    sequences = [engine.submit(p, params, options) for p in prompts]
    while not all(s.finished for s in sequences):
        engine.step()
    return sequences


@pytest.mark.parametrize("params", [GREEDY, DRAWN], ids=["greedy", "drawn"])
@pytest.mark.parametrize("name", ["glm4moe", "deepseek2-v3", "qwen35"])
def test_texts_are_those_without_speculation(
    name: str, params: SamplingParams, make: Callable[[str], Drafting]
) -> None:
    path = make(name).path
    prompts = [IDS, IDS[:1], IDS[10:50], IDS[:64]]
    wanted = [
        told(run(load(path, threads=1, prefix_cache=False), p, params=params, options=Options())[0])
        for p in prompts
    ]
    engine = load(path, parallel=4)
    draft = MtpDraft(engine, threshold=0.0, length=5)
    options = Options(speculate=draft.speculator)
    for _ in range(2):  # the second time with pages and snapshots of the first
        sequences = run(engine, *prompts, params=params, options=options)
        assert [told(s) for s in sequences] == wanted
        assert all(s.speculator is not None for s in sequences)
    assert sum(s.speculator.lookahead.proposed for s in sequences if s.speculator) > 100
    assert draft.cache.used_bytes == 0


def test_layers_on_two_devices_draft_on_the_last(
    make: Callable[[str], Drafting], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make("qwen35").path
    wanted, _ = further_logits(load(path), IDS)
    devices = LayerSplit(open_device("cpu", 1), [open_device("cpu", 1)], 2)
    monkeypatch.setattr(loading, "place_model", lambda *given: given[3](devices))
    engine = load(path, parallel=2)
    assert engine.model.device.name == "cpu+cpu"
    assert further_logits(engine, IDS)[0].tobytes() == wanted.tobytes()
    (told_alone,) = run(load(path), IDS, params=GREEDY, options=Options())
    draft = MtpDraft(engine, threshold=0.0, length=5)
    (s,) = run(engine, IDS, params=GREEDY, options=Options(speculate=draft.speculator))
    assert s.generated == told_alone.generated
    assert s.speculator is not None
    assert s.speculator.lookahead.proposed > 20


@pytest.mark.parametrize("name", ["glm4moe", "qwen35"])
def test_proposals_are_those_of_the_whole_text_at_once(
    name: str, make: Callable[[str], Drafting]
) -> None:
    engine = load(make(name).path, prefix_cache=False)
    draft = MtpDraft(engine, threshold=0.0, length=1)
    proposed: list[tuple[list[int], list[int]]] = []

    def speculator() -> object:
        found = draft.speculator()
        propose = draft.propose

        def noted(wanted: list[tuple[Sequence, int]]) -> list[list[int]]:
            drafts = propose(wanted)
            proposed.append((list(wanted[0][0].tokens), drafts[0]))
            return drafts

        draft.propose = noted  # type: ignore[method-assign]
        return found

    run(engine, IDS, params=GREEDY, options=Options(speculate=speculator))  # type: ignore[arg-type]
    assert len(proposed) > 15
    for text, tokens in proposed:
        further = further_logits(engine, text)[1]
        assert tokens == [int(further[-1].argmax())]


@pytest.mark.parametrize("evicts", [False, True], ids=["in memory", "taken pages"])
def test_proposals_behind_a_found_beginning_are_those_of_the_whole_text(
    make: Callable[[str], Drafting], evicts: bool
) -> None:
    engine = load(make("qwen35").path, ctx_size=512, parallel=1)
    draft = MtpDraft(engine, threshold=0.0, length=3)
    text = [*IDS, *reversed(IDS)]
    first = Options(speculate=draft.speculator, borders=(70, 97))
    (before,) = run(engine, text, params=GREEDY, options=first)
    if evicts:
        for caches in (engine.cache, draft.cache):
            for pool, page in caches.pages.unused:
                caches.pages.evict(pool, page)
    proposed: list[tuple[list[int], list[int]]] = []

    def speculator() -> object:
        propose = draft.propose

        def noted(wanted: list[tuple[Sequence, int]]) -> list[list[int]]:
            drafts = propose(wanted)
            proposed.append((list(wanted[0][0].tokens), drafts[0]))
            return drafts

        draft.propose = noted  # type: ignore[method-assign]
        return draft.speculator()

    options = Options(speculate=speculator)  # type: ignore[arg-type]
    for prompt, found in (
        ([*text[:97], 5, 6, 7], 97),
        ([*text, *before.generated, 9], before.num_computed),
    ):
        del proposed[:]
        (sequence,) = run(engine, prompt, params=GREEDY, options=options)
        assert sequence.num_cached == found
        assert len(proposed) > 5
        for tokens, drafted in proposed:
            further = further_logits(engine, tokens)[1]
            assert drafted[0] == int(further[-1].argmax())


def test_a_prompt_longer_than_a_pass_of_the_layer_is_read(make: Callable[[str], Drafting]) -> None:
    path = make("qwen35").path
    prompt = IDS * 5
    (wanted,) = run(load(path, ctx_size=512), prompt, params=GREEDY, options=Options())
    engine = load(path, ctx_size=512)
    options = Options(speculate=MtpDraft(engine, threshold=0.0).speculator)
    (found,) = run(engine, prompt, params=GREEDY, options=options)
    assert told(found) == told(wanted)


def test_a_layer_that_is_right_saves_steps(make: Callable[[str], Drafting], tmp_path: Path) -> None:
    """A model whose layers add nothing, so that the next token follows from the last one alone."""
    source = make("glm4moe").path
    file = _core.GgufFile(str(source))
    shapes = {t.name: t.shape for t in file.tensors}
    silent = {
        name: np.zeros(shape, np.float32)
        for name, shape in shapes.items()
        if name.split(".")[-2] in ("attn_output", "ffn_down", "ffn_down_exps", "ffn_down_shexp")
    }
    hidden = shapes["output_norm.weight"][0]
    last = max(int(n.split(".")[1]) for n in shapes if n.startswith("blk."))
    norm = file.tensor_bytes("output_norm.weight")
    blocks = {
        f"blk.{last}.nextn.enorm.weight": np.ones(hidden, np.float32),
        f"blk.{last}.nextn.eh_proj.weight": np.eye(hidden, 2 * hidden, dtype=np.float32),
        f"blk.{last}.nextn.shared_head_norm.weight": norm,
        **silent,
    }
    path = tmp_path / "bigram.gguf"
    gguf_copy.copy(source, path, tensors={name: (0, values) for name, values in blocks.items()})
    (wanted,) = run(load(path), IDS, params=GREEDY, options=Options())
    engine = load(path)
    options = Options(speculate=MtpDraft(engine, threshold=0.0, length=4).speculator)
    (found,) = run(engine, IDS, params=GREEDY, options=options)
    assert told(found) == told(wanted)
    assert found.speculator is not None
    lookahead = found.speculator.lookahead
    assert lookahead.accepted == lookahead.proposed >= 30
    assert engine.counts.steps < 12


def test_endless_texts_are_the_same(make: Callable[[str], Drafting]) -> None:
    path, texts = make("glm4moe").path, []
    params = SamplingParams(temperature=0, max_tokens=90, ignore_eos=True)
    for speculate in (False, True):
        engine = load(path, ctx_size=80)
        make_speculator = (
            MtpDraft(engine, threshold=0.0, length=5).speculator if speculate else None
        )
        options = Options(shift=ContextShift(sinks=3), speculate=make_speculator)
        (sequence,) = run(engine, IDS[:50], params=params, options=options)
        assert len(sequence.shifts) > 1
        texts.append(told(sequence))
    assert texts[0] == texts[1]


def layer_alone(source: Path, target: Path, *more: str) -> Path:
    """A file with the last layer of another one, and further tensors."""
    names = [t.name for t in _core.GgufFile(str(source)).tensors]
    last = max(int(n.split(".")[1]) for n in names if n.startswith("blk."))
    own = {n for n in names if n.startswith(f"blk.{last}.")}
    gguf_copy.copy(source, target, only={*own, *more})
    return target


@pytest.mark.parametrize(
    "more", [(), ("token_embd.weight", "output.weight")], ids=["borrowed", "own vocabulary"]
)
@pytest.mark.parametrize("name", ["glm4moe", "qwen35"])
def test_a_file_with_the_layer_alone_gives_what_the_model_s_own_gives(
    name: str, more: tuple[str, ...], make: Callable[[str], Drafting], tmp_path: Path
) -> None:
    source = make(name).path
    held = {t.name for t in _core.GgufFile(str(source)).tensors}
    alone = layer_alone(source, tmp_path / "mtp.gguf", *(n for n in more if n in held))
    engine = load(source)
    own, other = DraftingLayer(engine.model), DraftingLayer(engine.model, Checkpoint(alone))
    states = np.random.default_rng(3).normal(0, 1, (5, engine.model.config.hidden_size))
    results = []
    for layer in (own, other):
        batch = _core.Batch()
        batch.add(IDS[:5], pages=[0], outputs=5)
        pools = [layer.new_pages("f32", 1)]
        results.append([r.tobytes() for r in layer.run(batch, pools, states.astype(np.float32))])
    assert results[0] == results[1]
    chosen = choose_speculation(engine, "auto", str(alone), length=4, threshold=0.0)
    assert chosen.kinds == ("draft-mtp",)
    (wanted,) = run(load(source), IDS, params=GREEDY, options=Options())
    (found,) = run(engine, IDS, params=GREEDY, options=Options(speculate=chosen.make))
    assert told(found) == told(wanted)
    assert found.speculator is not None
    assert found.speculator.lookahead.proposed > 20
    with pytest.raises(UnsupportedError, match="predicts further tokens, and no other"):
        oxibonsai.load(alone)


def test_a_layer_of_another_model_is_refused(
    make: Callable[[str], Drafting], tmp_path: Path
) -> None:
    engine = load(make("qwen35").path)
    alone = layer_alone(make("qwen35").path, tmp_path / "mtp.gguf")
    for key, value, message in [
        ("qwen35.block_count", 9, "block_count is 9, but with its layer"),
        ("qwen35.attention.head_count", 1, "head_count is 1, but"),
    ]:
        gguf_copy.copy(alone, tmp_path / "other.gguf", keys={key: (value, "u32")})
        with pytest.raises(FormatError, match=message):
            MtpDraft(engine, Checkpoint(tmp_path / "other.gguf"))
    with pytest.raises(UnsupportedError, match=r"of architecture qwen35, but .* is of glm4moe"):
        MtpDraft(load(make("glm4moe").path), Checkpoint(alone))


def test_the_layer_of_the_model_s_file_is_used_by_itself(make: Callable[[str], Drafting]) -> None:
    chosen = choose_speculation(load(make("qwen35").path))
    assert chosen.kinds == ("draft-mtp",)
    assert "has a layer for it" in chosen.reason


def test_a_model_without_such_a_layer_says_so(tiny_path: Path) -> None:
    engine = oxibonsai.load(tiny_path, threads=1)
    with pytest.raises(UnsupportedError, match="no layer that predicts further tokens"):
        MtpDraft(engine)
