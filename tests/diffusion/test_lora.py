"""Adapters of the transformer: as if their products were added to its matrices."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

pytest.importorskip("diffusers")

from closeness import near
from diffusers_models import TRANSFORMER, tensors, transformer
from safetensors.numpy import save_file

from oxibonsai import _core
from oxibonsai.diffusion.lora import read_lora
from oxibonsai.diffusion.parameters import ArrayTensors
from oxibonsai.diffusion.transformer import ImageTransformer
from oxibonsai.errors import FormatError, UnsupportedError
from oxibonsai.lora import Adapter

Floats = npt.NDArray[np.float32]
RANK, SCALE = 4, 0.75
IDS = np.zeros((20, 4), np.int32)
IDS[:, 1], IDS[:, 2] = np.divmod(np.arange(20), 5)
# Of every kind: fused and not, in both kinds of blocks and outside of them.
MODULES = [
    "x_embedder",
    "context_embedder",
    "transformer_blocks.0.attn.to_q",
    "transformer_blocks.1.attn.to_add_out",
    "transformer_blocks.1.ff.linear_in",
    "single_transformer_blocks.0.attn.to_qkv_mlp_proj",
    "single_transformer_blocks.2.attn.to_out",
    "proj_out",
]


@pytest.fixture(scope="module")
def parameters() -> dict[str, Floats]:
    return tensors(transformer())


def live(*shape: int, seed: int) -> Floats:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32) * np.float32(0.15)


def pairs(parameters: dict[str, Floats]) -> dict[str, tuple[Floats, Floats]]:
    made = {}
    for i, module in enumerate(MODULES):
        rows, cols = parameters[f"{module}.weight"].shape
        made[module] = live(RANK, cols, seed=2 * i), live(rows, RANK, seed=2 * i + 1)
    return made


def velocity(parameters: dict[str, Any], *adapters: Adapter, threads: int = 2) -> Floats:
    network = ImageTransformer.load(
        TRANSFORMER, ArrayTensors(parameters), _core.CpuDevice(threads), adapters=adapters
    )
    text = live(1, 30, 192, seed=100) * 6
    latents = live(1, 20, 32, seed=101) * 6
    return network.velocity(latents, network.embed_text(text), 700.0, IDS)


def merged(
    parameters: dict[str, Floats], made: dict[str, tuple[Floats, Floats]], scale: float
) -> dict[str, Floats]:
    changed = {f"{m}.weight": b @ a * np.float32(scale) for m, (a, b) in made.items()}
    return {n: t + changed[n] if n in changed else t for n, t in parameters.items()}


def save(path: Path, stored: dict[str, Floats], metadata: dict[str, str] | None = None) -> Path:
    save_file({n: np.ascontiguousarray(t) for n, t in stored.items()}, path, metadata)
    return path


SPELLINGS = {
    "diffusers": ("transformer.{}.lora_A.weight", "transformer.{}.lora_B.weight"),
    "peft": (
        "base_model.model.{}.lora_A.default.weight",
        "base_model.model.{}.lora_B.default.weight",
    ),
    "ai-toolkit": ("diffusion_model.{}.lora_A.weight", "diffusion_model.{}.lora_B.weight"),
    "kohya": ("{}.lora_down.weight", "{}.lora_up.weight"),
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_an_adapter_is_as_if_merged(
    parameters: dict[str, Floats], tmp_path: Path, spelling: str
) -> None:
    made = pairs(parameters)
    names = SPELLINGS[spelling]
    stored = {n.format(m): t for m, pair in made.items() for n, t in zip(names, pair, strict=True)}
    adapter = read_lora(save(tmp_path / "lora.safetensors", stored), "lora", SCALE)
    got = velocity(parameters, adapter)
    assert near(got, velocity(merged(parameters, made, SCALE)))
    assert not near(got, velocity(parameters))
    np.testing.assert_array_equal(got, velocity(parameters, adapter, threads=1))


def test_alpha_and_metadata_say_how_much_is_added(
    parameters: dict[str, Floats], tmp_path: Path
) -> None:
    made = pairs(parameters)
    names = SPELLINGS["diffusers"]
    stored = {n.format(m): t for m, pair in made.items() for n, t in zip(names, pair, strict=True)}
    told = {"lora_adapter_metadata": json.dumps({"transformer.r": 4, "transformer.lora_alpha": 2})}
    by_metadata = save(tmp_path / "metadata.safetensors", stored, told)
    alphas = {f"transformer.{m}.alpha": np.float32(2).reshape(()) for m in made}
    by_alpha = save(tmp_path / "alpha.safetensors", {**stored, **alphas})
    want = velocity(merged(parameters, made, 0.5))
    for path in (by_metadata, by_alpha):
        assert near(velocity(parameters, read_lora(path, "lora", 1.0)), want)


def test_fused_projections_of_the_original_names_are_taken_apart(
    parameters: dict[str, Floats], tmp_path: Path
) -> None:
    made: dict[str, tuple[Floats, Floats]] = {}
    stored: dict[str, Floats] = {}

    def add(theirs: str, *ours: str) -> None:
        shapes = [parameters[f"{m}.weight"].shape for m in ours]
        a = live(RANK, shapes[0][1], seed=len(stored))
        parts = [live(rows, RANK, seed=50 + len(stored) + i) for i, (rows, _) in enumerate(shapes)]
        stored[f"diffusion_model.{theirs}.lora_A.weight"] = a
        stored[f"diffusion_model.{theirs}.lora_B.weight"] = np.concatenate(parts)
        made.update({m: (a, b) for m, b in zip(ours, parts, strict=True)})

    block, single = "transformer_blocks.1", "single_transformer_blocks.1"
    add("double_blocks.1.img_attn.qkv", *(f"{block}.attn.to_{p}" for p in "qkv"))
    add("double_blocks.1.txt_attn.qkv", *(f"{block}.attn.add_{p}_proj" for p in "qkv"))
    add("double_blocks.1.img_attn.proj", f"{block}.attn.to_out.0")
    add("double_blocks.1.txt_mlp.2", f"{block}.ff_context.linear_out")
    add("single_blocks.1.linear1", f"{single}.attn.to_qkv_mlp_proj")
    add("single_blocks.1.linear2", f"{single}.attn.to_out")
    add("img_in", "x_embedder")
    add("final_layer.linear", "proj_out")
    add("single_stream_modulation.lin", "single_stream_modulation.linear")
    adapter = read_lora(save(tmp_path / "lora.safetensors", stored), "lora", 1.0)
    assert near(velocity(parameters, adapter), velocity(merged(parameters, made, 1.0)))


def test_two_adapters_are_added(parameters: dict[str, Floats], tmp_path: Path) -> None:
    module = "proj_out"
    rows, cols = parameters[f"{module}.weight"].shape
    adapters, total = [], np.zeros((rows, cols), np.float32)
    for i in range(2):
        a, b = live(RANK, cols, seed=i), live(rows, RANK, seed=i + 2)
        stored = {f"{module}.lora_A.weight": a, f"{module}.lora_B.weight": b}
        adapters.append(read_lora(save(tmp_path / f"{i}.safetensors", stored), str(i), i + 0.5))
        total += b @ a * np.float32(i + 0.5)
    changed = {**parameters, f"{module}.weight": parameters[f"{module}.weight"] + total}
    assert near(velocity(parameters, *adapters), velocity(changed))


def test_what_does_not_fit_is_named(parameters: dict[str, Floats], tmp_path: Path) -> None:
    a, b = live(4, 128, seed=0), live(32, 4, seed=1)
    whole = {"proj_out.lora_A.weight": a, "proj_out.lora_B.weight": b}

    def read(stored: dict[str, Floats], metadata: dict[str, str] | None = None) -> Adapter:
        return read_lora(save(tmp_path / "lora.safetensors", stored, metadata), "mine", 1.0)

    for stored, error, match in (
        ({"proj_out.lora_A.weight": a}, FormatError, "mine has no lora_B"),
        ({**whole, "proj_out.dora_scale": b}, UnsupportedError, "dora_scale"),
        ({**whole, "transformer.proj_out.lora_A.weight": a}, FormatError, "of one meaning"),
        ({**whole, "proj_out.alpha": np.zeros(2, np.float32)}, FormatError, "no number"),
        ({**whole, "proj_out.lora_A.weight": a[:3]}, FormatError, "no pair"),
        ({**whole, "proj_out.lora_B.weight": b * np.nan}, FormatError, "not finite"),
        ({}, FormatError, "changes nothing"),
    ):
        with pytest.raises(error, match=match):
            read(stored)
    senseless = ("[]", "{", '{"r": 0, "lora_alpha": 1}', '{"r": Infinity, "lora_alpha": 1}')
    for metadata in (*senseless, "[" * 100_000):
        with pytest.raises(FormatError, match="make no sense"):
            read(whole, {"lora_adapter_metadata": metadata})
    dora = json.dumps({"r": 4, "lora_alpha": 4, "use_dora": True})
    with pytest.raises(UnsupportedError, match="use_dora"):
        read(whole, {"lora_adapter_metadata": dora})
    other = {"final_layer.adaLN_modulation.1.lora_A.weight": a, **whole}
    other["final_layer.adaLN_modulation.1.lora_B.weight"] = live(256, 4, seed=3)
    with pytest.raises(UnsupportedError, match="no linear layer"):
        velocity(parameters, read(other))
    wide = {"proj_out.lora_A.weight": live(4, 96, seed=0), "proj_out.lora_B.weight": b}
    with pytest.raises(FormatError, match="made for another model"):
        velocity(parameters, read(wide))
    (tmp_path / "broken.safetensors").write_bytes(b"no tensors")
    with pytest.raises(FormatError, match="cannot read"):
        read_lora(tmp_path / "broken.safetensors", "mine", 1.0)
