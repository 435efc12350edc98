"""Decoders behind an encoder: the logits of transformers, one arithmetic, and generation."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import gguf_copy
import oxibonsai
from oxibonsai import FormatError, RequestError, SamplingParams, UnsupportedError, _core
from oxibonsai.architectures.t5 import causal_bucket_of
from oxibonsai.checkpoint import Checkpoint
from oxibonsai.convert.language_model import convert
from oxibonsai.distributed import Group, Layout, RankPlan
from oxibonsai.engine import ContextShift, Engine, Options
from oxibonsai.loading import open_model
from oxibonsai.models import load_model

pytest.importorskip("transformers", reason="needs transformers and torch (extra: test)")
import conversions
import encoder_models as em
from make_llama_cpp_encoders import RECORDED
from seq2seq_runs import DECODED, START, Runs

pytestmark = pytest.mark.hf
LLAMA_CPP = json.loads(RECORDED.read_text())
MT5 = replace(em.SEQ2SEQ[2], name="mt5", kind="MT5")
GREEDY = SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("seq2seq")


def file_of(case: em.Encoder, folder: Path, dtype: str = "f32") -> Path:
    path = folder / f"{case.name}.{dtype}.gguf"
    if not (folder / case.name).exists():
        em.save(case, folder / case.name)
    if not path.exists():
        convert(folder / case.name, path, dtype=dtype)
    return path


@pytest.mark.parametrize("case", [*em.SEQ2SEQ, MT5], ids=lambda c: c.name)
def test_logits_are_those_of_transformers(case: em.Encoder, folder: Path) -> None:
    model = em.save(case, folder / case.name)
    truth = em.seq2seq_logits(model, em.IDS, DECODED)
    other = em.seq2seq_logits(model, em.IDS[::-1], DECODED)
    assert np.abs(truth - other).max() > 0.05 * np.abs(truth).max()  # the encoder counts
    runs = Runs(file_of(case, folder), _core.CpuDevice(2))
    runs.encode(em.IDS)
    found = runs.decode((0, len(em.IDS), 0, len(DECODED)))
    assert np.abs(found - truth).max() <= 1e-4 * np.abs(truth).max()


@pytest.mark.parametrize("case", em.SEQ2SEQ, ids=lambda c: c.name)
def test_the_converted_file_is_that_of_llama_cpp(case: em.Encoder, folder: Path) -> None:
    found = conversions.summary(file_of(case, folder))
    theirs = LLAMA_CPP[f"converted {case.name}"]
    assert found["tensors"] == theirs["tensors"]
    assert conversions.different_keys(found, theirs) == set(case.differences)


@pytest.mark.parametrize(
    ("name", "stated", "message"),
    [
        ("t5", {"scale_decoder_outputs": False}, "no lm_head.weight, .* are not scaled"),
        ("t5", {"tie_word_embeddings": False, "scale_decoder_outputs": ...}, "are not scaled"),
        ("t5-gated", {"scale_decoder_outputs": True}, "an lm_head.weight, .* are scaled"),
        ("umt5", {"tie_word_embeddings": True}, "an lm_head.weight, .* are scaled"),
        ("t5", {"model_type": "mt5", "scale_decoder_outputs": ...}, "are not scaled"),
    ],
)
def test_a_scale_of_logits_that_a_file_cannot_express_is_refused(
    name: str, stated: dict[str, object], message: str, tmp_path: Path
) -> None:
    case = next(c for c in em.SEQ2SEQ if c.name == name)
    em.save(replace(case, extra=stated), tmp_path)
    with pytest.raises(UnsupportedError, match=message):
        convert(tmp_path, tmp_path / "m.gguf", dtype="f32")


@pytest.mark.parametrize("dtype", ["f32", "q8_0"])
@pytest.mark.parametrize("case", em.SEQ2SEQ[:2], ids=lambda c: c.name)
def test_tiers_threads_chunks_and_company_do_not_change_a_byte(
    case: em.Encoder, dtype: str, folder: Path
) -> None:
    path, n = file_of(case, folder, dtype), len(em.IDS)
    alone = Runs(path, _core.CpuDevice(1, "scalar"))
    alone.encode(em.IDS)
    truth = alone.decode((0, n, 0, len(DECODED)))
    for tier in _core.cpu.tiers():
        runs = Runs(path, _core.CpuDevice(2, tier))
        runs.encode(em.IDS[:7], em.IDS, em.IDS[5:70])
        for size in (1, 7, 64):
            cut = [(1, n, a, min(a + size, len(DECODED))) for a in range(0, len(DECODED), size)]
            rows = np.concatenate([runs.decode(span) for span in cut])
            assert rows.tobytes() == truth.tobytes(), (tier, size)
        beside = runs.decode((0, 7, 0, 9), (1, n, 0, 20), (2, 65, 0, 1))
        assert beside[9:29].tobytes() == truth[:20].tobytes(), tier


@pytest.fixture(scope="module")
def engine(folder: Path) -> Engine:
    return oxibonsai.load(file_of(em.SEQ2SEQ[1], folder))


def test_an_engine_generates_what_transformers_does(engine: Engine, folder: Path) -> None:
    found = list(engine.generate_tokens(em.IDS, GREEDY))
    truth = em.save(em.SEQ2SEQ[1], folder / "again")
    decoded = [START]
    for token in found:
        logits = em.seq2seq_logits(truth, em.IDS, decoded)[-1]
        assert logits[token] >= logits.max() - 1e-4 * np.abs(logits).max()
        decoded.append(token)
    assert len(set(found)) > 3


def test_texts_in_company_and_again_are_the_same(engine: Engine) -> None:
    texts = [em.IDS, em.IDS[:64], em.IDS[:9], em.IDS[::-1], em.IDS]
    params = SamplingParams(temperature=1.0, seed=5, max_tokens=70, ignore_eos=True)
    alone = [list(engine.generate_tokens(ids, params)) for ids in texts]
    together = [engine.submit(ids, params) for ids in texts]
    while engine.has_work:
        engine.step()
    assert [s.generated for s in together] == alone
    assert alone[0] == alone[-1] != alone[3]
    fresh = oxibonsai.load(engine.model.weights.checkpoint.path, prefix_cache=False)
    assert [list(fresh.generate_tokens(ids, params)) for ids in texts] == alone


def test_a_sequence_that_gave_way_goes_on_as_if_nothing_had_happened(engine: Engine) -> None:
    wanted = list(engine.generate_tokens(em.IDS, GREEDY))
    s = engine.submit(em.IDS, GREEDY)
    while s.num_generated < 5:
        engine.step()
    s.paused = True
    engine.step()
    assert s.num_computed == 0
    s.paused = False
    while engine.has_work:
        engine.step()
    assert s.generated == wanted


def test_what_knows_no_encoder_says_so(engine: Engine, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="has an encoder and a decoder"):
        engine.logits(em.IDS)
    with pytest.raises(UnsupportedError, match="no embeddings"):
        engine.embedder.embed([em.IDS])
    shift = Options(shift=ContextShift())
    with pytest.raises(UnsupportedError, match="no context shift"):
        engine.submit(em.IDS, GREEDY, shift)
    with pytest.raises(RequestError, match="behind those of its encoder"):
        engine.model.run(_batch(first=0, encoded=4), engine.cache.pools)
    with pytest.raises(RequestError, match="behind those of its encoder"):
        engine.model.run(_batch(first=4, encoded=0), engine.cache.pools)


def test_processes_that_share_a_model_refuse_an_encoder(folder: Path) -> None:
    group = Group(Layout(2, 1, 0), 1.0, None, None, None)
    with pytest.raises(UnsupportedError, match="no division over devices or processes"):
        load_model(open_model(file_of(em.SEQ2SEQ[0], folder)), RankPlan(group, 1))


def _batch(first: int, encoded: int) -> _core.Batch:
    batch = _core.Batch()
    batch.add([1, 2], first=first, pages=[0], outputs=1, encoded=encoded)
    return batch


@pytest.mark.parametrize("buckets", [16, 32])
def test_buckets_of_distances_are_those_of_transformers(buckets: int) -> None:
    import torch
    from transformers.models.t5.modeling_t5 import T5Attention

    distances = torch.arange(-300, 1)
    theirs = T5Attention._relative_position_bucket(
        distances, bidirectional=False, num_buckets=buckets, max_distance=128
    )
    assert [causal_bucket_of(int(d), buckets) for d in distances] == theirs.tolist()


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("t5.decoder_block_count", (1 << 30, "u32"), "more than tensors"),
        ("t5.decoder_start_token_id", (131, "u32"), "no token"),
        ("t5.attention.relative_buckets_count", (64, "u32"), "need"),
    ],
)
def test_keys_that_do_not_fit_are_refused(
    key: str, value: tuple[int, str], message: str, folder: Path, tmp_path: Path
) -> None:
    gguf_copy.copy(file_of(em.SEQ2SEQ[1], folder), tmp_path / "m.gguf", keys={key: value})
    with pytest.raises(FormatError, match=message):
        load_model(Checkpoint(tmp_path / "m.gguf"), _core.CpuDevice(1))
