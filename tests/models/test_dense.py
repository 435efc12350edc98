"""Decoders of many architectures: the logits of transformers, and one arithmetic for all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import adapters
import gguf_copy
import oxibonsai
from oxibonsai import _core
from oxibonsai.architectures.families import BY_NAME
from oxibonsai.checkpoint import Checkpoint
from oxibonsai.convert.language_model import convert
from oxibonsai.errors import FormatError, UnsupportedError
from oxibonsai.hf import AutoModelForCausalLM
from oxibonsai.models import load_model, read_config

pytest.importorskip("transformers", reason="needs transformers and torch (extra: test)")
import conversions
import dense_models as dm
from test_same_bytes import TIERS, check_threads, digest, digests_by_tier, random_ids

pytestmark = pytest.mark.hf

# Floats, and integers with activations rounded to int8.
DTYPES = ("f32", "q4_0")
LLAMA_CPP = json.loads(conversions.RECORDED.read_text())


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


def test_longrope_chooses_its_factors_by_the_size_of_the_context(saved: Saved) -> None:
    case = next(c for c in dm.CASES if c.name == "phi3-long")
    ids = dm.IDS[:48]  # the original context, for which transformers takes the short ones
    truth = dm.logits(dm.save(case, saved.folder / "phi3-short-text"), ids)
    path = saved.file(case)
    short, long = oxibonsai.load(path, ctx_size=48), oxibonsai.load(path, ctx_size=49)
    assert np.abs(short.logits(ids) - truth).max() <= 1e-4 * np.abs(truth).max()
    assert np.abs(long.logits(ids) - truth).max() > 1e-2 * np.abs(truth).max()
    assert np.array_equal(long.logits(ids), oxibonsai.load(path).logits(ids))
    assert short.model.fingerprint() != long.model.fingerprint()


DYNAMIC = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}


@pytest.mark.parametrize("kind", ["Llama", "Qwen3"])
def test_dynamic_scaling_is_that_of_a_text_as_long_as_the_context(
    kind: str, tmp_path: Path
) -> None:
    """From a file, from a folder, and from the folder that the file is saved as."""
    options = {"max_position_embeddings": 40, "rope_parameters": DYNAMIC}
    case = dm.Case("dynamic", kind, options)
    model = dm.save(case, tmp_path / "model")
    convert(tmp_path / "model", tmp_path / "model.gguf", dtype="f32")
    AutoModelForCausalLM.from_pretrained(tmp_path / "model.gguf").save_pretrained(
        tmp_path / "saved"
    )
    sources = [tmp_path / "model.gguf", tmp_path / "model", tmp_path / "saved"]
    within, beyond = dm.IDS[:40], dm.IDS
    unscaled = dm.logits(model, within)  # before a longer text, whose base transformers keeps
    truth = dm.logits(model, beyond)
    for source in sources:
        found = oxibonsai.load(source, ctx_size=len(beyond))
        assert np.abs(found.logits(beyond) - truth).max() <= 1e-4 * np.abs(truth).max()
        again = found.logits(beyond[:55])
        assert np.abs(again - truth[:55]).max() <= 1e-4 * np.abs(truth).max()
        own = oxibonsai.load(source)
        assert own.ctx_size == 40
        assert np.abs(own.logits(within) - unscaled).max() <= 1e-4 * np.abs(unscaled).max()
        assert np.abs(found.logits(within) - unscaled).max() > 1e-2 * np.abs(unscaled).max()
        assert own.model.fingerprint() != found.model.fingerprint()
    with pytest.warns(UserWarning, match="takes 80 positions at most"):
        assert oxibonsai.load(sources[0], ctx_size=200).ctx_size == 80
    config = tmp_path / "model" / "config.json"
    config.write_text(config.read_text().replace('"factor": 2.0', '"factor": 0.5'))
    with pytest.raises(FormatError, match=r"dynamic with a factor of 0\.5"):
        convert(tmp_path / "model", tmp_path / "again.gguf", dtype="f32")


@pytest.mark.parametrize(
    "case", [c for c in dm.CASES if c.converted_by_llama_cpp], ids=lambda c: c.name
)
def test_the_converted_file_is_that_of_llama_cpp(case: dm.Case, saved: Saved) -> None:
    found, theirs = conversions.summary(saved.file(case)), LLAMA_CPP[case.name]
    assert found["tensors"] == theirs["tensors"]
    assert conversions.different_keys(found, theirs) == set(case.differences)


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
    assert architecture in BY_NAME


def test_an_adapter_of_a_fused_tensor_changes_each_of_its_parts(
    saved: Saved, tmp_path: Path
) -> None:
    case = next(c for c in dm.CASES if c.name == "phi3")
    path = saved.file(case)
    base = _core.GgufFile(str(path))
    shapes = {t.name: tuple(t.shape) for t in base.tensors}
    targets = ("blk.0.attn_qkv.weight", "blk.1.ffn_up.weight")
    pairs = adapters.pairs_of_shapes({name: shapes[name] for name in targets})
    architecture = {"general.architecture": ("phi3", "str")}
    adapters.write(tmp_path / "a.gguf", adapters.tensors_of(pairs), changes=architecture)
    summed = {}
    for name, (a, b) in pairs.items():
        weight = base.tensor_bytes(name).view("<f4").reshape(shapes[name]).astype(np.float64)
        weight += adapters.ALPHA / len(a) * b.astype(np.float64) @ a.astype(np.float64)
        summed[name] = (0, weight.astype(np.float32))
    gguf_copy.copy(path, tmp_path / "summed.gguf", tensors=summed)
    truth = oxibonsai.load(tmp_path / "summed.gguf").logits(dm.IDS)
    found = oxibonsai.load(path, lora=tmp_path / "a.gguf").logits(dm.IDS)
    assert np.abs(found - truth).max() <= 1e-5 * np.abs(truth).max()
    assert np.abs(oxibonsai.load(path).logits(dm.IDS) - truth).max() > 0.1 * np.abs(truth).max()


@pytest.mark.parametrize(
    ("name", "key", "value", "message"),
    [
        ("gptneox", "gptneox.attention.layer_norm_epsilon", (0.0, "f32"), "not above zero"),
        ("gptneox", "gptneox.use_parallel_residual", (1, "u32"), "not true or false"),
        ("gptneox", "gptneox.rope.dimension_count", (5, "u32"), "odd or above"),
        ("phi2", "phi2.attention.head_count_kv", (3, "u32"), "no multiple"),
        ("granite", "granite.logit_scale", (0.0, "f32"), "not above zero"),
        ("olmo", "olmo.attention.clamp_kqv", (-1.0, "f32"), "not above zero"),
        ("olmo", "olmo.rope.scaling.dynamic_factor", (0.5, "f32"), "is 0.5: it is 1 or more"),
        ("olmo3", "olmo2.attention.sliding_window_pattern", ([True], "arr[bool]"), "4 layers"),
        ("apertus", "xielu.alpha_p", (np.ones(3, np.float32), "arr[f32]"), "each of 2 layers"),
        ("apertus", "xielu.eps", (np.full(2, np.inf, np.float32), "arr[f32]"), "within -64"),
        ("phi3", "phi3.rope.scaling.type", ("longrope", "str"), "rope_factors_long"),
        ("mpt", "mpt.attention.max_alibi_bias", (0.0, "f32"), "learned positions"),
        ("gptneo", "gptneo.attention.sliding_window_pattern", ([True], "arr[bool]"), "2 layers"),
        (
            "mixture-of-depths",
            "mixture-of-depths.depth_router.capacity",
            (1.5, "f32"),
            "1.5 is more than all tokens",
        ),
    ],
)
def test_a_key_that_makes_no_sense_is_one_typed_error(
    name: str, key: str, value: tuple[Any, str], message: str, saved: Saved, tmp_path: Path
) -> None:
    path = saved.file(next(c for c in dm.CASES if c.name == name))
    gguf_copy.copy(path, tmp_path / "m.gguf", keys={key: value})
    with pytest.raises((FormatError, UnsupportedError), match=message):
        load_model(Checkpoint(tmp_path / "m.gguf"), _core.CpuDevice(1))


@pytest.mark.parametrize(
    ("name", "tensor", "shape"),
    [
        ("phi3", "blk.0.attn_qkv.weight", (127, 64)),
        ("phi3", "blk.0.ffn_up.weight", (96, 64)),
        ("phi3-long", "rope_factors_long.weight", (7,)),
        ("command-r-plus", "blk.0.attn_q_norm.weight", (2, 32)),
        ("gpt2", "position_embd.weight", (255, 64)),
        ("bloom", "token_embd_norm.bias", (63,)),
        ("gptneox", "blk.1.attn_qkv.bias", (191,)),
    ],
)
def test_a_tensor_of_another_shape_is_one_typed_error(
    name: str, tensor: str, shape: tuple[int, ...], saved: Saved, tmp_path: Path
) -> None:
    path = saved.file(next(c for c in dm.CASES if c.name == name))
    kept = {t.name for t in _core.GgufFile(str(path)).tensors} - {tensor}
    values = {tensor: np.ones(shape, dtype=np.float32)}
    gguf_copy.copy(path, tmp_path / "m.gguf", only=kept, more=values)
    with pytest.raises(FormatError, match=tensor):
        load_model(Checkpoint(tmp_path / "m.gguf"), _core.CpuDevice(1))
