"""What folders hold beside plain floats, and folders that lie."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hf_folders import CASES, logits, save

import oxibonsai
from oxibonsai import FormatError, OxiBonsaiError, UnsupportedError, _core
from oxibonsai.convert.language_model import convert

torch = pytest.importorskip("torch", reason="needs transformers and torch")
pytest.importorskip("transformers", reason="needs transformers and torch")

pytestmark = pytest.mark.hf

IDS: list[int] = np.random.default_rng(2).integers(4, 256, 60).tolist()
BY_NAME = {c.name: c for c in CASES}
PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
INDEX = "model.safetensors.index.json"


def edit(file: Path, **changes: Any) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def store(folder: Path, tensors: dict[str, Any]) -> None:
    from safetensors.torch import save_file

    save_file({k: v.contiguous() for k, v in tensors.items()}, folder / "model.safetensors")


def fp8(weight: Any, kind: str) -> tuple[Any, Any]:
    """Eight-bit floats and their scales: of all, of rows, of blocks of 48 by 32."""
    size = {"tensor": weight.shape, "row": (1, weight.shape[1]), "block": (48, 32)}[kind]
    rows, cols = (-(-n // s) for n, s in zip(weight.shape, size, strict=True))
    scales = torch.rand(rows, cols) * 0.01 + 0.001
    spread = scales.repeat_interleave(size[0], 0)[: weight.shape[0]]
    spread = spread.repeat_interleave(size[1], 1)[:, : weight.shape[1]]
    codes = (weight / spread).clamp(-448, 448).to(torch.float8_e4m3fn)
    return codes, scales.reshape(()) if kind == "tensor" else scales


@pytest.mark.parametrize("kind", ["tensor", "row", "block"])
def test_eight_bit_floats_are_scaled(kind: str, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    model = save(BY_NAME["llama"], folder)
    name = "weight_scale_inv" if kind == "block" else "weight_scale"
    tensors = {}
    for key, value in model.state_dict().items():
        if not any(p in key for p in PROJECTIONS):
            tensors[key] = value
            continue
        codes, scales = fp8(value, kind)
        tensors[key] = codes
        tensors[key.removesuffix("weight") + name] = scales
        tensors[key.removesuffix("weight") + "input_scale"] = torch.ones(())
        size = {"tensor": value.shape, "row": (1, value.shape[1]), "block": (48, 32)}[kind]
        spread = scales.reshape(-(-value.shape[0] // size[0]), -1).repeat_interleave(size[0], 0)
        spread = spread[: value.shape[0]].repeat_interleave(size[1], 1)[:, : value.shape[1]]
        value.copy_(codes.float() * spread)
    store(folder, tensors)
    edit(folder / "config.json", quantization_config={"weight_block_size": [48, 32]})
    truth = logits(model, IDS)
    convert(folder, tmp_path / "m.gguf", dtype="f32")
    found = oxibonsai.load(tmp_path / "m.gguf").logits(IDS)
    assert np.abs(found - truth).max() <= 1e-4 * np.abs(truth).max()
    assert oxibonsai.load(folder).logits(IDS).tobytes() == found.tobytes()


def test_all_codes_of_eight_bit_floats_have_torchs_values() -> None:
    from oxibonsai.checkpoint.float_types import _eight_bit_values

    codes = torch.arange(256, dtype=torch.uint8)
    for bits, kind in [((4, 3), torch.float8_e4m3fn), ((5, 2), torch.float8_e5m2)]:
        truth = codes.view(kind).float().numpy()
        assert np.array_equal(_eight_bit_values(*bits), truth, equal_nan=True)


@pytest.mark.parametrize(
    ("scale", "sentence"),
    [
        (None, "has no weight_scale"),
        ("rows", "scales neither all of a matrix"),
        ("nan", "weight_scale is not finite"),
    ],
)
def test_scales_that_do_not_fit_are_said(scale: str | None, sentence: str, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    tensors = save(BY_NAME["llama"], folder).state_dict()
    key = "model.layers.1.mlp.up_proj.weight"
    tensors[key] = tensors[key].to(torch.float8_e4m3fn)
    if scale is not None:
        value = torch.ones(7, 3) if scale == "rows" else torch.tensor(float("nan"))
        tensors[key + "_scale"] = value
    store(folder, tensors)
    with pytest.raises(FormatError, match=sentence):
        convert(folder, tmp_path / "m.gguf")


LAYOUTS = {"q1_0": "Q1_0", "q2_0_g64": "Q2_0_g64", "pq2_0": "Q2_0_g128", "ptq1_0": "PTQ1_0"}


@pytest.mark.parametrize("dtype", LAYOUTS)
def test_unpacked_checkpoints_are_packed_without_loss(dtype: str, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    tensors = save(BY_NAME["qwen3"], folder).half().state_dict()
    random = np.random.default_rng(4)
    multiples = [-1, 1] if dtype == "q1_0" else [-1, 0, 1]
    for key, value in tensors.items():
        if value.ndim == 2:
            scales = random.uniform(0.01, 0.1, (value.shape[0], value.shape[1] // 128, 1))
            signs = random.choice(multiples, (value.shape[0], value.shape[1] // 128, 128))
            values = (signs * scales.astype(np.float16)).astype(np.float16)
            tensors[key] = torch.from_numpy(values.reshape(value.shape))
    store(folder, tensors)
    convert(folder, tmp_path / "m.gguf", dtype=dtype)
    engine = oxibonsai.load(tmp_path / "m.gguf")
    assert np.isfinite(engine.logits(IDS)).all()
    file = _core.GgufFile(str(tmp_path / "m.gguf"))
    info = file.tensor("blk.1.ffn_down.weight")
    assert info.quant_type == LAYOUTS[dtype]
    found = _core.decode(info.quant_type, file.tensor_bytes(info.name)).reshape(info.shape)
    assert np.array_equal(found, tensors["model.layers.1.mlp.down_proj.weight"].float().numpy())
    tensors["model.layers.1.mlp.down_proj.weight"][3, 130] *= 1.01
    store(folder, tensors)
    group = (3 * 256 + 130) // (64 if dtype == "q2_0_g64" else 128)
    sentence = rf"model\.layers\.1\.mlp\.down_proj\.weight: group {group} "
    with pytest.raises(FormatError, match=sentence):
        convert(folder, tmp_path / "other.gguf", dtype=dtype)
    assert not (tmp_path / "other.gguf").exists()


def shard(folder: Path) -> dict[str, Any]:
    """Saves the model in shards; returns the index."""
    save(BY_NAME["llama"], folder, max_shard_size="300KB")
    index: dict[str, Any] = json.loads((folder / INDEX).read_text())
    return index


def lie(folder: Path, how: str) -> None:
    index = shard(folder)
    files = index["weight_map"]
    first = "model.layers.1.input_layernorm.weight"
    other = next(f for f in files.values() if f != files[first])
    if how == "missing file":
        (folder / other).unlink()
    elif how == "wrong file":
        files[first] = other
    elif how == "unknown tensor":
        files["model.ghost.weight"] = other
    elif how == "forgotten tensor":
        del files[first]
    elif how == "no map":
        index["weight_map"] = [1]
    else:
        files[first] = how
    (folder / INDEX).write_text(json.dumps(index))


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ("missing file", "lacks 1 of the . files of its index: model-0000"),
        ("wrong file", "index belongs to another model"),
        ("unknown tensor", r"lacks model\.ghost\.weight"),
        ("forgotten tensor", "puts nowhere"),
        ("no map", "has no weight_map"),
        ("../outside.safetensors", "no file of the folder"),
        ("/etc/passwd", "no file of the folder"),
        ("..", "no file of the folder"),
        ("a\\b", "no file of the folder"),
        (7, "no file of the folder"),
    ],
)
def test_an_index_that_lies_is_refused(how: Any, sentence: str, tmp_path: Path) -> None:
    lie(tmp_path / "model", how)
    with pytest.raises(FormatError, match=sentence):
        convert(tmp_path / "model", tmp_path / "m.gguf")


def raw(header: Any, data: bytes = b"\0" * 64, length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def entry(first: int, last: int, shape: list[int], dtype: str = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [first, last]}


HOSTILE = {
    "empty": b"",
    "no header": b"\1\2\3",
    "huge header": raw({}, length=2**63),
    "header past the end": raw({}, length=10**6),
    "no json": raw(b"{"),
    "a list": raw([]),
    "overlap": raw({"a": entry(0, 32, [8]), "b": entry(16, 64, [12])}),
    "hole": raw({"a": entry(0, 16, [4]), "b": entry(32, 64, [8])}),
    "past the end": raw({"a": entry(0, 128, [32])}),
    "backwards": raw({"a": entry(32, 0, [8])}),
    "shape": raw({"a": entry(0, 64, [3])}),
    "overflow": raw({"a": entry(0, 64, [2**62, 2**62])}),
    "negative": raw({"a": entry(0, 64, [-16])}),
    "type": raw({"a": entry(0, 64, [16], "Q7")}),
    "nothing": raw({}, b""),
    "deep": raw(b'{"a":' * 5000 + b"1" + b"}" * 5000),
}


@pytest.mark.parametrize("how", HOSTILE)
def test_safetensors_that_lie_are_refused(how: str, tmp_path: Path) -> None:
    save(BY_NAME["llama"], tmp_path / "model")
    (tmp_path / "model" / "model.safetensors").write_bytes(HOSTILE[how])
    with pytest.raises(FormatError, match=str(tmp_path / "model")):
        convert(tmp_path / "model", tmp_path / "m.gguf")
    assert not (tmp_path / "m.gguf").exists()


@pytest.mark.parametrize(
    ("name", "shape", "sentence"),
    [
        ("model.layers.0.mlp.up_proj.weight", (256, 127), "asks for"),
        ("model.layers.0.self_attn.k_proj.weight", (128, 128), "asks for"),
        ("model.norm.weight", (128, 1, 1), r"output_norm.weight has shape \(128, 1, 1\)"),
        ("model.norm.weight", (), "no vector and no matrix"),
        ("model.norm.weight", None, "lacks 1 of the parameters .* output_norm"),
        ("lm_head.weight", None, "lacks 1 of the parameters .* output"),
    ],
)
def test_parameters_of_other_shapes_are_refused(
    name: str, shape: tuple[int, ...] | None, sentence: str, tmp_path: Path
) -> None:
    tensors = save(BY_NAME["llama"], tmp_path / "model").state_dict()
    del tensors[name]
    if shape is not None:
        tensors[name] = torch.zeros(shape)
    store(tmp_path / "model", tensors)
    with pytest.raises(FormatError, match=sentence):
        convert(tmp_path / "model", tmp_path / "m.gguf")


@pytest.mark.parametrize(
    ("case", "changes", "error", "sentence"),
    [
        ("llama", {"hidden_act": "gelu"}, UnsupportedError, "hidden_act"),
        ("llama", {"mlp_bias": True}, UnsupportedError, "mlp_bias"),
        ("llama", {"sliding_window": 64}, UnsupportedError, "sliding_window"),
        ("llama", {"head_dim": None, "num_attention_heads": 3}, FormatError, "no multiple of 3"),
        ("llama", {"rope_parameters": {"rope_type": "longrope"}}, UnsupportedError, "longrope"),
        ("llama", {"model_type": "bonsai"}, UnsupportedError, "'bonsai'"),
        ("llama", {"quantization_config": 3}, FormatError, "quantization_config"),
        ("llama3", {"num_hidden_layers": 4}, FormatError, "lacks 9 of"),
        ("gemma3", {"layer_types": ["full_attention"] * 2}, FormatError, "layer_types"),
        ("gemma3", {"use_bidirectional_attention": True}, UnsupportedError, "bidirectional"),
        ("gemma3", {"final_logit_softcapping": -1}, FormatError, "final_logit_softcapping"),
    ],
)
def test_configurations_that_ask_for_more_are_refused(
    case: str, changes: dict[str, Any], error: type[Exception], sentence: str, tmp_path: Path
) -> None:
    save(BY_NAME[case], tmp_path / "model")
    edit(tmp_path / "model" / "config.json", **changes)
    with pytest.raises(error, match=sentence):
        convert(tmp_path / "model", tmp_path / "m.gguf")


def test_any_flipped_bit_of_a_header_is_read_or_refused(tmp_path: Path) -> None:
    save(BY_NAME["llama"], tmp_path / "model")
    file = tmp_path / "model" / "model.safetensors"
    whole = file.read_bytes()
    random = np.random.default_rng(6)
    end = 8 + int.from_bytes(whole[:8], "little")
    for at in random.integers(0, end, 60).tolist():
        damaged = bytearray(whole)
        damaged[at] ^= 1 << int(random.integers(8))
        file.write_bytes(damaged)
        try:
            convert(tmp_path / "model", tmp_path / "m.gguf")
        except OxiBonsaiError as e:
            assert "\n" not in str(e)  # noqa: PT017 - either way is right
