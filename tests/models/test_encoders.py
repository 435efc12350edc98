"""Encoders and classifiers: the hidden states and scores of transformers, and one arithmetic for all."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import gguf_copy
from oxibonsai import FormatError, UnsupportedError, _core
from oxibonsai.architectures.t5 import bucket_of
from oxibonsai.checkpoint import Checkpoint
from oxibonsai.convert.language_model import convert
from oxibonsai.engine.pooled_states import Ids, PooledStates
from oxibonsai.models import Model, load_model
from oxibonsai.models.passes import EMBED, SCORES

pytest.importorskip("transformers", reason="needs transformers and torch (extra: test)")
import conversions
import encoder_models as em
from make_llama_cpp_encoders import POSITIONS, RECORDED

pytestmark = pytest.mark.hf
LLAMA_CPP = json.loads(RECORDED.read_text())
ALL = [c.name for c in (*em.ENCODERS, *em.REMOTE)]
# llama.cpp takes GELU from a table of float16.
_GELU_TABLE = 1e-3


class Saved:
    """Folders and files of all cases, each made once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._cases = {c.name: c for c in (*em.ENCODERS, *em.CLASSIFIERS)}
        self._remote = {c.name: c for c in em.REMOTE}

    def truth(self, name: str) -> object:
        """Transformers' model; makes the folder."""
        return em.save(self._cases[name], self.folder / name)

    def file(self, name: str, dtype: str = "f32") -> Path:
        """The converted folder, or a file of an architecture that transformers lacks."""
        path = self.folder / f"{name}.{dtype}.gguf"
        if not path.exists() and name in self._remote:
            em.write(self._remote[name], path)
        elif not path.exists():
            if not (self.folder / name).exists():
                self.truth(name)
            convert(self.folder / name, path, dtype=dtype)
        return path


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Saved:
    return Saved(tmp_path_factory.mktemp("encoders"))


def load(path: Path, threads: int = 2) -> Model:
    return load_model(Checkpoint(path), _core.CpuDevice(threads))


def states(executable: _core.Executable, *texts: list[int]) -> npt.NDArray[np.float32]:
    batch = _core.Batch()
    for ids in texts:
        batch.add(ids, outputs=len(ids))
    return executable.run(batch)["hidden"]


def scores(model: Model, ids: list[int], first: int | None = None) -> npt.NDArray[np.float32]:
    head = model.config.classifier
    assert head is not None
    pooled = PooledStates(model).run([Ids(ids, first)], head.pooling)
    return model.run_pooled(SCORES, pooled)[0]


@pytest.mark.parametrize("case", em.ENCODERS, ids=lambda c: c.name)
def test_states_are_those_of_transformers(case: em.Encoder, saved: Saved) -> None:
    truth = em.states(saved.truth(case.name), em.IDS)
    found = states(load(saved.file(case.name)).program(EMBED), em.IDS)
    assert truth.std(axis=0).mean() > 0.1  # states that hardly change with the text prove nothing
    assert np.abs(found - truth).max() <= 1e-4 * np.abs(truth).max()


@pytest.mark.parametrize("case", em.REMOTE, ids=lambda c: c.name)
def test_states_are_those_of_llama_cpp(case: em.RemoteEncoder, saved: Saved) -> None:
    truth = np.array(LLAMA_CPP[case.name])
    found = states(load(saved.file(case.name)).program(EMBED), em.IDS)[list(POSITIONS)]
    assert np.abs(truth[1] - truth[0]).mean() > 0.1
    assert np.abs(found - truth).max() <= _GELU_TABLE * np.abs(truth).max()


@pytest.mark.parametrize("case", em.CLASSIFIERS, ids=lambda c: c.name)
def test_scores_are_those_of_transformers(case: em.Encoder, saved: Saved) -> None:
    model = saved.truth(case.name)
    two = case.kind == "Bert"  # tells the texts of a pair apart
    segments = [int(i >= 30) for i in range(len(em.IDS))]
    truth = em.scores(model, em.IDS, segments if two else None)
    loaded = load(saved.file(case.name))
    found = scores(loaded, em.IDS, 30)
    assert np.abs(found - truth).max() <= 1e-4 * max(np.abs(truth).max(), 0.1)
    other = scores(loaded, em.IDS)
    assert np.array_equal(found, other) is not two
    if two:
        plain = em.scores(model, em.IDS)
        assert np.abs(other - plain).max() <= 1e-4 * max(np.abs(plain).max(), 0.1)


@pytest.mark.parametrize(
    "case",
    [c for c in (*em.ENCODERS, *em.CLASSIFIERS) if c.converted_by_llama_cpp],
    ids=lambda c: c.name,
)
def test_the_converted_file_is_that_of_llama_cpp(case: em.Encoder, saved: Saved) -> None:
    found = conversions.summary(saved.file(case.name))
    theirs = LLAMA_CPP[f"converted {case.name}"]
    more = {n: found["tensors"].pop(n) for n in case.more_tensors}
    assert not more.keys() & theirs["tensors"].keys()
    assert found["tensors"] == theirs["tensors"]
    assert conversions.different_keys(found, theirs) == set(case.differences)


@pytest.mark.parametrize("dtype", ["f32", "q8_0"])
@pytest.mark.parametrize("name", ALL)
def test_tiers_threads_and_company_do_not_change_a_byte(
    name: str, dtype: str, saved: Saved
) -> None:
    if dtype != "f32" and name in {c.name for c in em.REMOTE}:
        pytest.skip("the file is written in float32")
    path = saved.file(name, dtype)
    texts = [em.IDS, em.IDS[:1], em.IDS[5:70], em.IDS[:64]]
    found = set()
    for threads in (1, 3):
        model = load(path, threads)
        tiers = _core.cpu.tiers() if threads == 1 else ["scalar"]
        devices = [model.device, *(model.device.with_tier(tier) for tier in tiers)]
        for device in devices:
            executable = device.compile(model.graph)
            alone = [states(executable, ids) for ids in texts]
            assert states(executable, *texts).tobytes() == np.concatenate(alone).tobytes()
            found.add(alone[0].tobytes())
    assert len(found) == 1


@pytest.mark.parametrize("buckets", [16, 32, 64])
def test_buckets_of_distances_are_those_of_transformers(buckets: int) -> None:
    import torch
    from transformers.models.t5.modeling_t5 import T5Attention

    distances = torch.arange(-300, 301)
    truth = T5Attention._relative_position_bucket(distances, True, buckets, 128).tolist()
    assert [bucket_of(d, buckets) for d in range(-300, 301)] == truth


@pytest.mark.parametrize(
    ("name", "key", "value", "message"),
    [
        ("modern-bert", "modern-bert.hidden_activation", ("relu", "str"), "known are gelu, silu"),
        ("modern-bert", "modern-bert.attention.causal", (True, "bool"), "causal is True"),
        ("modern-bert", "modern-bert.hidden_activation", (["silu"] * 2, "arr[str]"), "known are"),
        ("modern-bert", "modern-bert.attention.sliding_window", (1, "u32"), "window of one token"),
        ("nomic-bert", "nomic-bert.pooling_type", (4, "u32"), "pooling_type is 4"),
        ("nomic-bert", "nomic-bert.pooling_type", ([1, 1], "arr[u32]"), "pooling_type is"),
        ("t5encoder", "t5encoder.attention.relative_buckets_count", (6, "u32"), "buckets"),
        ("t5encoder", "t5encoder.attention.relative_buckets_count", (64, "u32"), "need"),
        ("gemma-embedding", "gemma-embedding.dense_2_feat_out", (8, "u32"), "dense_2"),
        ("nomic-bert-moe", "nomic-bert-moe.moe_every_n_layers", (1, "u32"), "known are 2"),
        ("nomic-bert-moe", "nomic-bert-moe.expert_used_count", (9, "u32"), "more than 8"),
        ("bert-classifier", "bert.classifier.output_labels", ([1], "arr[u32]"), "no list of texts"),
        ("bert-classifier", "bert.classifier.output_labels", (3, "u32"), "no list of texts"),
        ("bert-classifier", "bert.classifier.output_labels", ("abc", "str"), "no list of texts"),
        ("modern-bert-reranker", "modern-bert.classifier.pooling_type", (9, "u32"), "pooling_type"),
        ("bert", "bert.expert_count", (8, "u32"), "does not know"),
        ("bert", "bert.expert_count", ([0, 0], "arr[u32]"), "does not know"),
    ],
)
def test_a_key_that_makes_no_sense_is_one_typed_error(
    name: str, key: str, value: tuple[object, str], message: str, saved: Saved, tmp_path: Path
) -> None:
    gguf_copy.copy(saved.file(name), tmp_path / "m.gguf", keys={key: value})
    with pytest.raises((FormatError, UnsupportedError), match=message):
        load(tmp_path / "m.gguf")
