"""Models with Hadamard-folded weights (Bonsai 2) say what their plain twins say."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import rotated_models as fm
from test_same_bytes import check_batch, check_chunks, check_threads, digests_by_tier

import adapters
import oxibonsai
from oxibonsai import _core
from oxibonsai.checkpoint import Checkpoint
from oxibonsai.errors import FormatError, OxiBonsaiError, UnsupportedError
from oxibonsai.models import read_config

SHAPES = [
    fm.Shape("qwen3", block=128, hidden=128, ff=384),
    fm.Shape("qwen3", block=64, hidden=192, ff=256, tied=True),
    fm.Shape("qwen3", block=1024, hidden=1024, ff=2048, head_dim=256, layers=1),
    fm.Shape("llama", block=128, hidden=256, ff=384),
    fm.Shape("llama", block=2, hidden=64, ff=96, head_dim=16, tied=True, explicit=False),
    fm.Shape("qwen3", block=256, hidden=256, ff=512, explicit=False),
]
SMALL = SHAPES[0]
IDS = [int(i) for i in np.random.default_rng(3).integers(0, fm.VOCABULARY, 150)]
# Float32 noise of the fold itself (one rounding of each weight, log2(block) sums of each input);
# the largest seen of the shapes above is 3e-6 of the largest logit.
BOUND = 1e-5


@pytest.fixture
def small(tmp_path: Path) -> tuple[fm.Twins, Path]:
    return fm.twins(SMALL), tmp_path / "folded.gguf"


def logits_of(path: Path) -> npt.NDArray[np.float32]:
    return oxibonsai.load(path, kv_type="f32").logits(IDS)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: s.name)
def test_a_folded_model_gives_the_logits_of_the_plain_one(shape: fm.Shape, tmp_path: Path) -> None:
    twins = fm.twins(shape)
    twins.write_plain(tmp_path / "plain.gguf")
    twins.write_folded(tmp_path / "folded.gguf")
    plain, rotated = (logits_of(tmp_path / f"{name}.gguf") for name in ("plain", "folded"))
    assert np.abs(rotated - plain).max() <= BOUND * np.abs(plain).max()


@pytest.mark.parametrize("shape", [SHAPES[0], SHAPES[3]], ids=lambda s: s.name)
def test_adapters_read_what_plain_layers_read(shape: fm.Shape, tmp_path: Path) -> None:
    twins = fm.twins(shape)
    twins.write_plain(tmp_path / "plain.gguf")
    twins.write_folded(tmp_path / "folded.gguf")
    layers = {
        t.name: t.shape
        for t in _core.GgufFile(str(tmp_path / "plain.gguf")).tensors
        if t.name.startswith("blk.") and len(t.shape) == 2
    }
    pairs = adapters.tensors_of(adapters.pairs_of_shapes(layers))
    architecture = {"general.architecture": (shape.architecture, "str")}
    adapters.write(tmp_path / "a.gguf", pairs, changes=architecture)
    lora = [(tmp_path / "a.gguf", 0.25)]  # larger sums would only make noise larger
    plain, rotated = (
        oxibonsai.load(tmp_path / f"{n}.gguf", lora=lora, kv_type="f32").logits(IDS)
        for n in ("plain", "folded")
    )
    assert np.abs(rotated - plain).max() <= BOUND * np.abs(plain).max()
    without = logits_of(tmp_path / "plain.gguf")
    assert np.abs(without - plain).max() > 0.1 * np.abs(plain).max()


def test_without_the_transform_the_logits_are_others(small: tuple[fm.Twins, Path]) -> None:
    twins, path = small
    twins.write_plain(path)
    plain = logits_of(path)
    forgotten = {key: None for key in twins.contract}
    twins.write_folded(path, forgotten)
    silent = logits_of(path)
    cosine = np.vdot(plain, silent) / np.linalg.norm(plain) / np.linalg.norm(silent)
    assert abs(cosine) < 0.3


@pytest.mark.parametrize("left_out", ["blk.1.ffn_gate.weight", "blk.0.attn_k.weight"])
def test_some_of_the_matrices_that_share_an_input_may_be_plain(
    left_out: str, small: tuple[fm.Twins, Path]
) -> None:
    twins, path = small
    twins.write_plain(path)
    plain = logits_of(path)
    names, kind = twins.contract["prism.hadamard.weight_names"]
    twins.rotated[left_out] = twins.plain[left_out]
    kept = ([n for n in names if n != left_out], kind)
    twins.write_folded(path, {"prism.hadamard.weight_names": kept})
    assert np.abs(logits_of(path) - plain).max() <= BOUND * np.abs(plain).max()


@pytest.mark.parametrize("quant_type", ["Q2_0_g128", "PTQ1_0"])
def test_quantized_folded_weights_mean_what_they_decode_to(quant_type: str, tmp_path: Path) -> None:
    shape = fm.Shape("qwen3", block=128, hidden=256, ff=512)
    rotated, plain = (logits_of(path) for path in fm.quantized(shape, quant_type, tmp_path))
    cosine = np.vdot(plain, rotated) / np.linalg.norm(plain) / np.linalg.norm(rotated)
    assert cosine > 0.999  # what rounding activations to int8 leaves


@pytest.fixture(scope="module")
def same_bytes_models(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Of a type that is rounded, one that isn't, and heads that a rotated cache rotates in 16s."""
    folder = tmp_path_factory.mktemp("folded")
    shape = fm.Shape("qwen3", block=128, hidden=256, ff=384)
    paths = [fm.quantized(shape, "PTQ1_0", folder)[0]]
    for of in (SHAPES[2], SHAPES[4]):
        paths.append(folder / f"{of.name}.gguf")
        fm.twins(of).write_folded(paths[-1])
    return paths


@pytest.mark.parametrize("kv_type", ["f16", "q4_0"])
def test_every_tier_gives_the_same_bytes(
    kv_type: str, same_bytes_models: list[Path], tmp_path: Path
) -> None:
    found = [
        digests_by_tier(t, IDS, same_bytes_models, tmp_path, kv_type) for t in _core.cpu.tiers()
    ]
    assert all(digests == found[0] for digests in found)


def test_threads_chunks_and_company_do_not_change_a_byte(
    same_bytes_models: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in same_bytes_models:
        check_threads(path, IDS, monkeypatch)
        engine = oxibonsai.load(path)
        check_chunks(engine, IDS)
        check_batch(engine, IDS)


def test_the_start_up_check_covers_the_transform(small: tuple[fm.Twins, Path]) -> None:
    twins, path = small
    twins.write_folded(path)
    oxibonsai.load(path, parity="full")


def test_an_input_is_transformed_once_for_all_that_read_it(small: tuple[fm.Twins, Path]) -> None:
    twins, path = small
    twins.write_folded(path)
    model = oxibonsai.load(path).model
    # The embedding; of each layer the inputs of q k v, of o, of gate and up, of down; the head's.
    assert model.graph.ops.count("hadamard") == 1 + 4 * SMALL.layers + 1


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"version": None}, FormatError, "version is missing"),
        ({"version": (3, "u32")}, UnsupportedError, "version is 3; known is 1 and 2"),
        ({"version": ("1", "str")}, UnsupportedError, "version is '1'"),
        ({"version": (2, "u32")}, FormatError, "tied_output is False, but version 2 has it True"),
        ({"tied_output": (True, "bool")}, FormatError, "tied_output is True, but version 1"),
        ({"block_size": None}, FormatError, "block_size is None, not a power of two"),
        ({"block_size": (96, "u32")}, FormatError, "block_size is 96, not a power of two"),
        ({"block_size": (0, "u32")}, FormatError, "block_size is 0, not a power of two"),
        ({"block_size": (1, "u32")}, FormatError, "block_size is 1, not a power of two"),
        ({"block_size": (-128, "i32")}, FormatError, "block_size is -128, not a power of two"),
        ({"block_size": (128.0, "f32")}, FormatError, "block_size is 128.0, not a power of two"),
        (
            {"block_size": (2**62, "u64")},
            FormatError,
            r"sign_widths is \[128, 256, 384\], not diff",
        ),
        ({"block_size": (256, "u32")}, FormatError, r"sign_widths is \[128, 256, 384\], not diff"),
        (
            {"transform": ("dct", "str")},
            UnsupportedError,
            "transform is 'dct'; known is normalized",
        ),
        ({"axis": ("output", "str")}, UnsupportedError, "axis is 'output'"),
        ({"axis": None}, FormatError, "axis is missing"),
        ({"sign_mode": ("random", "str")}, FormatError, "sign_mode is 'random', neither"),
        ({"sign_mode": ("identity", "str")}, FormatError, "is identity, but there are signs"),
        ({"sign_values": ([1] * 767, "arr[i32]")}, FormatError, "has 767 signs, but .* need 768"),
        ({"sign_values": ([0] * 768, "arr[i32]")}, FormatError, "a value other than -1 and 1"),
        ({"sign_values": ([1.5] * 768, "arr[f32]")}, FormatError, "a number that is not whole"),
        (
            {"sign_values": ([float("nan")] * 768, "arr[f32]")},
            FormatError,
            "a number that is not whole",
        ),
        ({"sign_values": (["+"] * 768, "arr[str]")}, FormatError, "sign_values is no list of num"),
        ({"sign_values": None}, FormatError, "has 0 signs, but the widths need 768"),
        ({"sign_widths": ([128, 128, 512], "arr[i32]")}, FormatError, "not different multiples"),
        ({"sign_widths": ([0, 384, 384], "arr[i32]")}, FormatError, "not different multiples"),
        (
            {"sign_widths": ([128, 640], "arr[i32]")},
            FormatError,
            "sign_widths has no 256, the width of blk.0.attn_output.weight",
        ),
        ({"sign_widths": (7, "u32")}, FormatError, "sign_widths is no list of numbers"),
        ({"weight_names": None}, FormatError, "weight_names is missing"),
        ({"weight_names": ("output.weight", "str")}, FormatError, "is no list of names"),
        ({"weight_names": (["a"], "arr[str]")}, FormatError, "has a, but there is no such tensor"),
        ({"weight_names": (["output.weight"] * 2, "arr[str]")}, FormatError, "has a name twice"),
        (
            {"weight_names": (["output_norm.weight"], "arr[str]")},
            FormatError,
            "has output_norm.weight, which is no matrix of a linear layer",
        ),
        (
            {"weight_names": (["token_embd.weight"], "arr[str]")},
            FormatError,
            "has token_embd.weight, which is no matrix",
        ),
        (
            {"weight_names": (["blk.0.attn_norm.weight"], "arr[str]")},
            FormatError,
            r"block_size is 128, but blk.0.attn_norm.weight has shape \(128,\)",
        ),
        (
            {"inverse_weight_names": (["output.weight"], "arr[str]")},
            FormatError,
            "has output.weight; only token_embd.weight can be there",
        ),
        (
            {"weight_names": ([], "arr[str]"), "inverse_weight_names": None},
            FormatError,
            "weight_names is empty, so nothing is folded",
        ),
        ({"gdn_v_grouped": (1, "u32")}, FormatError, "gdn_v_grouped is 1, not true or false"),
        ({"scale": (1.0, "f32")}, UnsupportedError, "the key prism.hadamard.scale"),
    ],
)
def test_a_contract_that_does_not_hold_is_refused(
    changes: dict[str, Any],
    error: type[OxiBonsaiError],
    message: str,
    small: tuple[fm.Twins, Path],
) -> None:
    twins, path = small
    twins.write_folded(path, {fm.PREFIX + key: value for key, value in changes.items()})
    with pytest.raises(error, match=message) as raised:
        read_config(Checkpoint(path))
    assert "\n" not in str(raised.value)
    assert path.name in str(raised.value)


def test_a_width_must_be_whole_blocks(tmp_path: Path) -> None:
    twins = fm.twins(fm.Shape("qwen3", block=64, hidden=192, ff=256, explicit=False))
    path = tmp_path / "folded.gguf"
    twins.write_folded(path, {"prism.hadamard.block_size": (128, "u32")})
    with pytest.raises(FormatError, match=r"block_size is 128, but blk.0.attn_k.weight has shape"):
        read_config(Checkpoint(path))


def test_a_folded_table_that_is_the_head_too_takes_version_2(tmp_path: Path) -> None:
    twins = fm.twins(SHAPES[1])
    path = tmp_path / "folded.gguf"
    earlier = {"prism.hadamard.version": (1, "u32"), "prism.hadamard.tied_output": None}
    twins.write_folded(path, earlier)
    with pytest.raises(FormatError, match="which is the output matrix too: that takes version 2"):
        read_config(Checkpoint(path))
    twins.write_folded(path, {"prism.hadamard.inverse_weight_names": None})
    with pytest.raises(FormatError, match=r"tied_output is True, but token_embd\.weight is not"):
        read_config(Checkpoint(path))


def test_a_folded_model_is_saved_as_gguf_only(small: tuple[fm.Twins, Path]) -> None:
    twins, path = small
    twins.write_folded(path)
    model = oxibonsai.AutoModelForCausalLM.from_pretrained(path)
    with pytest.raises(UnsupportedError, match="Hadamard-folded weights"):
        model.save_pretrained(path.parent / "out")
    assert not os.path.exists(path.parent / "out")
    model.save_pretrained(path.parent / "out", format="gguf")
    assert (logits_of(path.parent / "out" / "model.gguf") == logits_of(path)).all()
