"""BitNet's files: tensors of I2_S against their description, logits against transformers'."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import i2_s_models as im
import numpy as np
import pytest
from random_models import reference_logits, relative_distance

import oxibonsai
from oxibonsai import FormatError, UnsupportedError, _core
from oxibonsai.checkpoint import Checkpoint
from oxibonsai.convert.language_model import convert
from oxibonsai.quantize import quantize

torch = pytest.importorskip("torch", reason="needs transformers and torch (extra: test)")
pytest.importorskip("transformers", reason="needs transformers and torch (extra: test)")
pytestmark = pytest.mark.hf

IDS: list[int] = np.random.default_rng(5).integers(0, im.VOCABULARY, 60).tolist()


def one_tensor(path: Path, shape: tuple[int, ...], data: bytes) -> Checkpoint:
    im.write(path, [("blk.0.ffn_up.weight", shape, im.I2_S, data)])
    return Checkpoint(path)


def decoded(checkpoint: Checkpoint, name: str) -> im.Floats:
    tensor = checkpoint.file.tensor(name)
    found = _core.decode(tensor.quant_type, checkpoint.file.tensor_bytes(name))
    return found.reshape(tensor.shape)


@pytest.mark.parametrize(
    ("shape", "quant_type"),
    [((3, 512), "TQ2_0"), ((3, 384), "Q2_0_g128"), ((128,), "Q2_0_g128"), ((2, 3, 256), "TQ2_0")],
)
def test_codes_and_the_scale_are_those_of_the_description(
    shape: tuple[int, ...], quant_type: str, tmp_path: Path
) -> None:
    codes = im.random_codes(np.random.default_rng(1), shape)
    checkpoint = one_tensor(tmp_path / "m.gguf", shape, im.pack(codes, 0.7431))
    tensor = checkpoint.file.tensor("blk.0.ffn_up.weight")
    assert tensor.quant_type == quant_type
    assert tensor.nbytes == checkpoint.file.tensor_bytes(tensor.name).nbytes
    found = decoded(checkpoint, tensor.name)
    assert np.array_equal(found, codes * np.float32(np.float16(0.7431)))
    assert np.abs(found - codes * np.float32(0.7431)).max() <= 0.7431 * 2**-12


def test_a_file_ends_with_the_scale_of_its_last_tensor(tmp_path: Path) -> None:
    codes = im.random_codes(np.random.default_rng(1), (2, 128))
    with pytest.raises(FormatError, match="past the end of the file"):
        one_tensor(tmp_path / "m.gguf", (2, 128), im.pack(codes, 1.0)[:-32])


@pytest.mark.parametrize(
    ("scale", "error", "sentence"),
    [
        (float("nan"), FormatError, "scale of tensor .* is nan"),
        (float("inf"), FormatError, "scale of tensor .* is inf"),
        (-0.5, FormatError, "scale of tensor .* is -0.5"),
        (7e4, UnsupportedError, "range of float16"),
        (1e-6, UnsupportedError, "range of float16"),
    ],
)
def test_scales_that_blocks_cannot_hold_are_refused(
    scale: float, error: type[Exception], sentence: str, tmp_path: Path
) -> None:
    codes = im.random_codes(np.random.default_rng(1), (2, 128))
    checkpoint = one_tensor(tmp_path / "m.gguf", (2, 128), im.pack(codes, scale))
    with pytest.raises(error, match=sentence):
        checkpoint.file.tensor_bytes("blk.0.ffn_up.weight")
    with pytest.raises(error, match=sentence):
        checkpoint.weight("blk.0.ffn_up.weight").inspect()


@pytest.mark.parametrize("place", range(4))
def test_a_code_that_stands_for_no_weight_is_refused(place: int, tmp_path: Path) -> None:
    data = bytearray(im.pack(im.random_codes(np.random.default_rng(1), (2, 128)), 1.0))
    data[37] |= 3 << 2 * place
    checkpoint = one_tensor(tmp_path / "m.gguf", (2, 128), bytes(data))
    with pytest.raises(FormatError, match="code 3"):
        checkpoint.file.tensor_bytes("blk.0.ffn_up.weight")


@pytest.mark.parametrize(("half_scales", "most"), [(False, 2e-3), (True, 1e-5)])
def test_the_weights_are_those_of_transformers(
    half_scales: bool, most: float, tmp_path: Path
) -> None:
    """In floats the rounding of scales is all that differs."""
    model, _ = im.build(tmp_path / "m.gguf", half_scales=half_scales)
    quantize(Checkpoint(tmp_path / "m.gguf").file, tmp_path / "f32.gguf", "f32")
    logits = oxibonsai.load(tmp_path / "f32.gguf").logits(IDS)
    truth = reference_logits(model, IDS)
    assert truth.std(axis=0).mean() > 0.5
    assert relative_distance(logits, truth) <= most


def test_int8_in_groups_is_closer_to_floats_than_int8_of_whole_tokens(tmp_path: Path) -> None:
    """Which is how the model defines its layers: the two roundings differ by about as much as each errs."""
    model, _ = im.build(tmp_path / "m.gguf")
    logits = oxibonsai.load(tmp_path / "m.gguf").logits(IDS)
    floats = reference_logits(model, IDS)
    defined = reference_logits(im.with_rounded_activations(model), IDS)
    ours, theirs = relative_distance(logits, floats), relative_distance(defined, floats)
    assert 0 < ours < theirs
    assert relative_distance(logits, defined) < 1.2 * np.hypot(ours, theirs)


def test_threads_and_other_types_change_nothing(tmp_path: Path) -> None:
    im.build(tmp_path / "m.gguf")
    logits = oxibonsai.load(tmp_path / "m.gguf").logits(IDS)
    quantize(Checkpoint(tmp_path / "m.gguf").file, tmp_path / "f16.gguf", "f16")
    source = Checkpoint(tmp_path / "m.gguf")
    other = Checkpoint(tmp_path / "f16.gguf")
    for tensor in source.file.tensors:
        assert np.array_equal(decoded(source, tensor.name), decoded(other, tensor.name))
    for threads in (1, 2):
        found = oxibonsai.load(tmp_path / "m.gguf", threads=threads).logits(IDS, chunk_size=7)
        assert found.tobytes() == logits.tobytes()


class Packed:
    """BitNet with packed matrices, as transformers packs them, and the float model of the same weights."""

    def __init__(self, folder: Path) -> None:
        self.model, self._ternary = im.build(folder / "source.gguf")
        named = self.model.named_parameters()
        self._names = [n for n, p in named if p.ndim == 2 and "embed" not in n]
        self._config = self.model.config.to_dict()
        pack_weights = im.layers_of_transformers().pack_weights
        self._tensors = dict(self.model.state_dict())
        self._tensors.pop("lm_head.weight")  # the token table
        for name, (codes, _) in zip(self._names, self._ternary.values(), strict=True):
            self._tensors[name] = pack_weights(torch.from_numpy(codes.astype(np.float32)))

    def save(
        self, folder: Path, quantization: dict[str, Any], stored: float, edit: Any = None
    ) -> None:
        """Writes the folder with one scale for all matrices, after an edit of its tensors."""
        from safetensors.torch import save_file

        scales = {f"{n}_scale": torch.tensor([stored], dtype=torch.bfloat16) for n in self._names}
        tensors = {name: t.clone() for name, t in (self._tensors | scales).items()}
        if edit is not None:
            edit(tensors)
        folder.mkdir()
        save_file({k: v.contiguous() for k, v in tensors.items()}, folder / "model.safetensors")
        held = {**self._config, "quantization_config": quantization}
        (folder / "config.json").write_text(json.dumps(held, default=str))

    def scale(self, factor: float) -> None:
        """Gives the float model one factor for all matrices."""
        with torch.no_grad():
            for name, (codes, _) in zip(self._names, self._ternary.values(), strict=True):
                self.model.get_parameter(name).copy_(torch.from_numpy(codes * np.float32(factor)))


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Packed:
    return Packed(tmp_path_factory.mktemp("packed"))


@pytest.mark.parametrize(
    ("kind", "stored", "true"),
    [("autobitlinear", 0.0625, 0.0625), ("bitlinear", 16.0, 0.0625), (None, 8.0, 0.125)],
)
def test_packed_folders_hold_codes_and_a_factor_or_a_divisor(
    kind: str | None, stored: float, true: float, packed: Packed, tmp_path: Path
) -> None:
    quantization = {"quant_method": "bitnet", **({"linear_class": kind} if kind else {})}
    packed.save(tmp_path / "packed", quantization, stored)
    packed.scale(true)
    truth = reference_logits(packed.model, IDS)
    convert(tmp_path / "packed", tmp_path / "f32.gguf", dtype="f32")
    logits = oxibonsai.load(tmp_path / "f32.gguf").logits(IDS)
    assert np.abs(logits - truth).max() <= 1e-4 * np.abs(truth).max()


def test_packed_folders_become_pq2_0_without_loss(packed: Packed, tmp_path: Path) -> None:
    quantization = {"quant_method": "bitnet", "linear_class": "autobitlinear"}
    packed.save(tmp_path / "packed", quantization, 0.0625)
    packed.scale(0.0625)
    convert(tmp_path / "packed", tmp_path / "m.gguf")
    checkpoint = Checkpoint(tmp_path / "m.gguf")
    assert checkpoint.file.tensor("blk.1.attn_k.weight").quant_type == "Q2_0_g128"
    found = decoded(checkpoint, "blk.1.attn_k.weight")
    truth = packed.model.get_parameter("model.layers.1.self_attn.k_proj.weight")
    assert np.array_equal(found, truth.numpy(force=True))
    logits = oxibonsai.load(tmp_path / "m.gguf").logits(IDS)
    assert oxibonsai.load(tmp_path / "packed").logits(IDS).tobytes() == logits.tobytes()


KEY = "model.layers.1.mlp.up_proj.weight"


@pytest.mark.parametrize(
    ("changes", "edit", "sentence"),
    [
        ({"quant_method": "other"}, None, "quant_method 'other'"),
        ({"linear_class": "linear"}, None, "linear_class 'linear'"),
        ({"use_rms_norm": True}, None, "use_rms_norm"),
        ({}, lambda t: t.pop(KEY + "_scale"), "up_proj.weight has no weight_scale"),
        ({}, lambda t: t.update({KEY + "_scale": torch.ones(3)}), r"shape \(3,\), not one number"),
        ({}, lambda t: t.update({KEY + "_scale": torch.zeros(1)}), "divides by zero"),
        ({}, lambda t: t.update({KEY + "_scale": torch.full((1,), -2.0)}), "is -0.5"),
        ({}, lambda t: t[KEY].fill_(0b11100100), "code 3"),
    ],
)
def test_packed_folders_that_lie_are_refused(
    changes: dict[str, Any], edit: Any, sentence: str, packed: Packed, tmp_path: Path
) -> None:
    packed.save(tmp_path / "packed", {"quant_method": "bitnet", **changes}, 16.0, edit)
    with pytest.raises((FormatError, UnsupportedError), match=sentence):
        convert(tmp_path / "packed", tmp_path / "m.gguf", dtype="f32")
