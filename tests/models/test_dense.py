"""Decoders of many architectures: the logits of transformers, and one arithmetic for all."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import gguf_copy
import oxibonsai
from oxibonsai import _core
from oxibonsai.checkpoint import Checkpoint
from oxibonsai.convert import convert
from oxibonsai.errors import UnsupportedError
from oxibonsai.models import ARCHITECTURES, load_model, read_config

pytest.importorskip("transformers", reason="needs transformers and torch (extra: test)")
import conversions
import dense_models as dm
from test_same_bytes import TIERS, check_threads, digest, digests_by_tier, random_ids

pytestmark = pytest.mark.hf

# Floats, and integers with activations rounded to int8.
DTYPES = ("f32", "q4_0")
LLAMA_CPP = json.loads(conversions.RECORDED.read_text())
# What we always write and llama.cpp's converter for some only; the value is then the default.
ALWAYS = {"attention.key_length", "attention.value_length", "attention.head_count_kv"}
ALWAYS |= {"vocab_size", "rope.freq_base"}


class Saved:
    """Folders and files of all cases, each made once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._truths: dict[str, np.ndarray] = {}

    def truth(self, case: dm.Case) -> np.ndarray:
        """Logits of transformers; makes the folder."""
        if case.name not in self._truths:
            model = dm.save(case, self.folder / case.name)
            self._truths[case.name] = dm.logits(model, dm.IDS[: case.ids])
        return self._truths[case.name]

    def file(self, case: dm.Case, dtype: str = "f32") -> Path:
        """The converted folder."""
        self.truth(case)
        path = self.folder / f"{case.name}.{dtype}.gguf"
        if not path.exists():
            convert(self.folder / case.name, path, dtype=dtype)
        return path


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Saved:
    return Saved(tmp_path_factory.mktemp("dense"))


@pytest.mark.parametrize("case", dm.CASES, ids=lambda c: c.name)
def test_logits_are_those_of_transformers(case: dm.Case, saved: Saved) -> None:
    truth = saved.truth(case)
    found = oxibonsai.load(saved.file(case)).logits(dm.IDS[: case.ids])
    assert truth.std(axis=0).mean() > 0.1  # logits that hardly change prove nothing
    assert np.abs(found - truth).max() <= 1e-4 * np.abs(truth).max()


@pytest.mark.parametrize(
    "case", [c for c in dm.CASES if c.converted_by_llama_cpp], ids=lambda c: c.name
)
def test_the_converted_file_is_that_of_llama_cpp(case: dm.Case, saved: Saved) -> None:
    found, theirs = conversions.summary(saved.file(case)), LLAMA_CPP[case.name]
    assert found["tensors"] == theirs["tensors"]
    names = {key.partition(".")[2]: key for key in (*found["keys"], *theirs["keys"])}
    different = {
        name
        for name, key in names.items()
        if found["keys"].get(key) != theirs["keys"].get(key)
        and not (name in ALWAYS and key not in theirs["keys"])
    }
    assert different == set(case.differences)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_tier_gives_the_bytes_of_scalar(dtype: str, saved: Saved, tmp_path: Path) -> None:
    paths = [saved.file(case, dtype) for case in dm.CASES]
    ids = dm.IDS[:48]
    found = {tier: digests_by_tier(tier, ids, paths, tmp_path) for tier in TIERS}
    for tier in TIERS:
        different = [
            case.name
            for case, own, scalar in zip(dm.CASES, found[tier], found["scalar"], strict=True)
            if own != scalar
        ]
        assert not different, tier


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", dm.CASES, ids=lambda c: c.name)
def test_threads_chunks_and_company_do_not_change_a_byte(
    case: dm.Case, dtype: str, saved: Saved, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, ids = saved.file(case, dtype), dm.IDS[:48]
    check_threads(path, ids, monkeypatch)
    engine = oxibonsai.load(path)
    whole = digest(engine.logits(ids, chunk_size=len(ids)))
    sizes = (1, 7, 64) if dtype == "f32" else (7,)
    assert all(digest(engine.logits(ids, chunk_size=size)) == whole for size in sizes)
    texts = [ids, *(random_ids(n, dm.VOCABULARY, seed=n) for n in (5, 33, 48))]
    alone = [digest(engine.logits(text)) for text in texts]
    assert [digest(rows) for rows in engine.logits_batch(texts, chunk_size=7)] == alone


OF_EACH = list({c.kind: c for c in dm.CASES}.values())


@pytest.mark.parametrize("case", OF_EACH, ids=lambda c: c.name)
def test_a_key_or_tensor_of_another_architecture_is_refused(
    case: dm.Case, saved: Saved, tmp_path: Path
) -> None:
    path = saved.file(case)
    architecture = Checkpoint(path).architecture
    key = f"{architecture}.expert_count"
    gguf_copy.copy(path, tmp_path / "key.gguf", keys={key: (8, "u32")})
    with pytest.raises(UnsupportedError, match=f"{key}, which this version does not know"):
        read_config(Checkpoint(tmp_path / "key.gguf"))
    stray = {"blk.0.attn_stray.weight": np.zeros(4, dtype=np.float32)}
    gguf_copy.copy(path, tmp_path / "tensor.gguf", more=stray)
    with pytest.raises(UnsupportedError, match="attn_stray"):
        load_model(Checkpoint(tmp_path / "tensor.gguf"), _core.CpuDevice(1))
    assert architecture in ARCHITECTURES
