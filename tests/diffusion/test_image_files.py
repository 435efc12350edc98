"""Layouts in which picture models come: the same networks, packed or not, whole or in parts."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from diffusers import Flux2Transformer2DModel
from diffusers_models import TRANSFORMER, live
from safetensors.numpy import load_file, save_file

from oxibonsai import ImagePipeline, _core
from oxibonsai.diffusion.model_files import PartNames, open_image_model
from oxibonsai.diffusion.network import StoredTensors
from oxibonsai.diffusion.network_tensors import network_of_folder
from oxibonsai.diffusion.write_one_file import write_one_file
from oxibonsai.errors import FormatError, OxiBonsaiError, SourceError, UnsupportedError
from oxibonsai.sources.local import resolve_packaged
from without_writes import run_without_writes

NAME = "diffusion_pytorch_model.safetensors"
ARGUMENTS: dict[str, Any] = {
    "width": 64, "height": 64, "seed": 3, "num_inference_steps": 2, "output_type": "np",
}  # fmt: skip


def draw(source: Path | None, **parts: str) -> Any:
    return ImagePipeline.from_pretrained(source, **parts)("a tree", **ARGUMENTS).images


def decoded(tensors: StoredTensors, name: str) -> Any:
    kind = tensors.quant_type(name)
    return kind, _core.decode(kind, tensors.stored(name))


def bf16(values: Any) -> Any:
    """Rounded down to bfloat16, as float32."""
    return (np.ascontiguousarray(values, np.float32).view(np.uint32) & 0xFFFF0000).view(np.float32)


def pack(codes: Any, bits: int) -> Any:
    """MLX's words: the first code in the lowest bits."""
    fields = codes.reshape(*codes.shape[:-1], -1, 32 // bits).astype(np.uint32)
    shifts = np.arange(0, 32, bits, dtype=np.uint32)
    return (fields << shifts).sum(axis=-1, dtype=np.uint64).astype(np.uint32)


def affine(values: Any, bits: int, group: int) -> tuple[dict[str, Any], Any]:
    """A matrix as MLX's triple, and what the triple means."""
    rows, cols = values.shape
    groups = values.reshape(rows, -1, group)
    if bits == 4:
        low, high = groups.min(axis=2), groups.max(axis=2)
        scales, biases = bf16((high - low) / 15), bf16(low)
        codes = np.clip(np.rint((groups - biases[..., None]) / scales[..., None]), 0, 15)
    else:
        size = bf16(np.abs(groups).mean(axis=2))
        codes = (groups > 0) if bits == 1 else 1 + np.sign(groups) * (np.abs(groups) > 0.02)
        scales, biases = (2 * size, -size) if bits == 1 else (size, -size)
    meaning = (scales[..., None] * codes.astype(np.float32) + biases[..., None]).reshape(rows, cols)
    triple = {
        "weight": pack(codes.reshape(rows, cols).astype(np.uint8), bits),
        "scales": scales,
        "biases": biases,
    }
    return triple, meaning.astype(np.float32)


def in_blocks(name: str, value: Any) -> bool:
    return "transformer_blocks." in name and value.ndim == 2


@pytest.fixture(scope="module")
def mlx_folder(
    image_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[int], Path]:
    """PrismML's layout with a transformer of so many bits; beside it ``dense``, what it means."""
    made: dict[int, Path] = {}

    def make(bits: int) -> Path:
        if bits not in made:
            made[bits] = write_mlx(image_folder, tmp_path_factory.mktemp(f"mlx{bits}"), bits)
        return made[bits]

    return make


def write_mlx(source: Path, target: Path, bits: int) -> Path:
    packed, dense = target / "bonsai-image-mlx", target / "dense"
    for folder in (packed, dense):
        for part in ("vae", "tokenizer", "scheduler"):
            shutil.copytree(source / part, folder / part)
        shutil.copy(source / "model_index.json", folder)
    transformer, text = packed / "transformer-packed-mflux", packed / "text_encoder-mlx-4bit"
    files = (
        (source / "transformer" / NAME, transformer / NAME, dense / "transformer" / NAME),
        (source / "text_encoder" / "model.safetensors", text / "model.safetensors",
         dense / "text_encoder" / "model.safetensors"),
    )  # fmt: skip
    for i, (old, new, plain) in enumerate(files):
        stored, meaning = {}, {}
        for name, value in load_file(old).items():
            chosen = in_blocks(name, value) if i == 0 else value.ndim == 2
            if not chosen:
                stored[name] = meaning[name] = value
                continue
            triple, values = affine(value, bits if i == 0 else 4, 128 if i == 0 else 64)
            module = name.removesuffix(".weight")
            stored |= {f"{module}.{part}": v for part, v in triple.items()}
            meaning[name] = values
        new.parent.mkdir()
        plain.parent.mkdir()
        save_file(stored, new)
        save_file(meaning, plain)
        config = json.loads((old.parent / "config.json").read_text())
        (plain.parent / "config.json").write_text(json.dumps(config))
        quantization = {"bits": 4, "group_size": 64}
        if i == 1:
            config["quantization"] = quantization
        (new.parent / "config.json").write_text(json.dumps(config))
    (transformer / "quantization_config.json").write_text(
        json.dumps({"bits": bits, "group_size": 128, "skip_patterns": []})
    )
    return packed


@pytest.mark.parametrize(("bits", "kind"), [(1, "Q1_0"), (2, "TQ2_0_g128")])
def test_packs_of_mlx_mean_what_their_values_are(
    mlx_folder: Callable[[int], Path], bits: int, kind: str
) -> None:
    folder = mlx_folder(bits)
    packed = network_of_folder(folder / "transformer-packed-mflux").tensors
    dense = network_of_folder(folder.parent / "dense" / "transformer").tensors
    assert packed.names == dense.names
    kinds = set()
    for name in sorted(packed.names):
        assert packed.shape(name) == dense.shape(name)
        stored, values = decoded(packed, name)
        assert np.array_equal(values.reshape(dense.shape(name)), dense.array(name))
        assert np.array_equal(packed.array(name), dense.array(name))
        kinds.add(stored)
    assert kinds == {"F32", kind}


def test_the_text_encoder_of_four_bits_means_what_its_values_are(
    mlx_folder: Callable[[int], Path],
) -> None:
    folder = mlx_folder(2)
    packed = network_of_folder(folder / "text_encoder-mlx-4bit").tensors
    dense = network_of_folder(folder.parent / "dense" / "text_encoder").tensors
    for name in sorted(packed.names):
        _, values = decoded(packed, name)
        np.testing.assert_allclose(
            values.reshape(dense.shape(name)), dense.array(name), rtol=0, atol=1e-7
        )


@pytest.mark.parametrize("bits", [1, 2])
def test_a_packed_model_draws_nearly_what_its_values_draw(
    mlx_folder: Callable[[int], Path], bits: int
) -> None:
    """Activations are rounded to eight bits before packed weights."""
    folder = mlx_folder(bits)
    packed, dense = draw(folder), draw(folder.parent / "dense")
    difference = np.abs(packed - dense)
    assert 0 < difference.mean() < 0.03


@pytest.mark.parametrize("layout", ["float", "packed"])
def test_one_file_draws_the_same_bytes(
    image_folder: Path, mlx_folder: Callable[[int], Path], layout: str, tmp_path: Path
) -> None:
    folder = image_folder if layout == "float" else mlx_folder(2)
    file = tmp_path / "model.gguf"
    write_one_file(open_image_model(folder, PartNames()), file)
    assert np.array_equal(draw(file), draw(folder))
    with pytest.raises(SourceError, match="has its tokenizer inside"):
        open_image_model(file, PartNames(tokenizer=str(folder / "tokenizer")))
    with pytest.raises(SourceError, match=r"transformer .* does not exist"):
        open_image_model(file, PartNames(transformer=str(tmp_path / "other.gguf")))
    again = tmp_path / "again.gguf"
    write_one_file(open_image_model(file, PartNames()), again)
    assert np.array_equal(draw(again), draw(folder))
    assert [p.name for p in tmp_path.iterdir() if p.suffix != ".gguf"] == []


def test_unpacked_ternary_weights_become_packed_without_loss(
    mlx_folder: Callable[[int], Path], tmp_path: Path
) -> None:
    """The transformer as float32, its codes found again."""
    folder = mlx_folder(2)
    parts = PartNames(text_encoder=str(folder / "text_encoder-mlx-4bit"))
    dense = open_image_model(folder.parent / "dense", parts)
    write_one_file(dense, tmp_path / "model.gguf", dtype="pq2_0")
    assert np.array_equal(draw(tmp_path / "model.gguf"), draw(folder))


def test_a_small_model_has_its_own_sizes_and_a_ternary_text_encoder(
    image_folder: Path, tmp_path: Path
) -> None:
    """Whose type 42 is Q2_0 in groups of 64, not the one of OxiBonsai's transformers."""
    folder = tmp_path / "small"
    shutil.copytree(image_folder, folder)
    edit_json(folder / "model_index.json", default_size=64, max_sequence_length=24)
    edit_json(folder / "model_index.json", text_encoder_out_layers=[0, 2])
    config = {**TRANSFORMER, "joint_attention_dim": 512}
    live(Flux2Transformer2DModel(**config), seed=5).save_pretrained(folder / "transformer")
    parts = PartNames(text_encoder=str(resolve_packaged("seedling-ternary")))
    write_one_file(open_image_model(folder, parts), tmp_path / "model.gguf", dtype="q8_0")
    pipe = ImagePipeline.from_pretrained(tmp_path / "model.gguf", threads=2)
    states = pipe.diffusion.encode_prompt("a red pot")
    assert states.shape == (24, 512)
    assert pipe.diffusion.prompt_length == 24
    image = pipe("a red pot", seed=1, num_inference_steps=1).images[0]
    assert image.size == (64, 64)
    alike = ImagePipeline.from_pretrained(folder, text_encoder=parts.text_encoder, threads=2)
    assert np.array_equal(alike.diffusion.encode_prompt("a red pot"), states)
    assert alike("a red pot", seed=1, num_inference_steps=1).images[0].size == (64, 64)


def test_a_type_that_would_lose_something_is_refused(image_folder: Path, tmp_path: Path) -> None:
    files = open_image_model(image_folder, PartNames())
    with pytest.raises(FormatError, match="without loss"):
        write_one_file(files, tmp_path / "model.gguf", dtype="pq2_0")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(OxiBonsaiError, match="q9_9"):
        write_one_file(files, tmp_path / "model.gguf", dtype="q9_9")


def test_parts_may_lie_anywhere(
    mlx_folder: Callable[[int], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OxiBonsai's way: a transformer in GGUF, and variables for the rest."""
    folder = mlx_folder(2)
    write_one_file(open_image_model(folder, PartNames()), tmp_path / "model.gguf")
    alone = transformer_alone(tmp_path / "model.gguf", tmp_path / "dit.gguf")
    names = {"text_encoder_out_layers": (1, 2, 3)}
    parts = {
        "transformer": str(alone),
        "vae": str(folder / "vae" / NAME),
        "text_encoder": str(folder / "text_encoder-mlx-4bit"),
        "tokenizer": str(folder / "tokenizer"),
    }
    large = {**ARGUMENTS, "width": 256, "height": 256, "num_inference_steps": 1}
    expected = ImagePipeline.from_pretrained(folder)("a tree", **large).images
    found = ImagePipeline.from_pretrained(**parts, **names)("a tree", **large).images  # type: ignore[arg-type]
    assert np.array_equal(found, expected)
    variables = ("OXI_DIT_GGUF", "OXI_VAE_WEIGHTS", "OXI_TE_4BIT", "OXI_TE_TOKENIZER_DIR")
    for name, value in zip(variables, parts.values(), strict=True):
        monkeypatch.setenv(name, value)
    found = ImagePipeline.from_pretrained(**names)("a tree", **large).images  # type: ignore[arg-type]
    assert np.array_equal(found, expected)


def transformer_alone(whole: Path, target: Path) -> Path:
    """OxiBonsai's file: the transformer's keys and tensors."""
    file = _core.GgufFile(str(whole), "TQ2_0_g128")
    writer = _core.GgufWriter(target.open("wb"))
    for key in file.keys():  # noqa: SIM118 - no dictionary
        if key.startswith(("general.", "bonsai-image.")) and not key.startswith(
            ("bonsai-image.vae", "bonsai-image.text", "bonsai-image.minimum")
        ):
            writer.copy_metadata(file, key)
    kept = [t for t in file.tensors if not t.name.startswith(("vae.", "blk.", "token_embd."))]
    for tensor in kept:
        writer.add_tensor(tensor.name, tensor.shape, tensor.gguf_id, tensor.nbytes)
    writer.write_header()
    for tensor in kept:
        writer.write_tensor(file.tensor_bytes(tensor.name))
    writer.close()
    return target


def test_shards_are_one_model(image_folder: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(image_folder, tmp_path / "model") / "transformer"
    tensors = load_file(folder / NAME)
    (folder / NAME).unlink()
    weight_map = {n: f"part-{i % 2}.safetensors" for i, n in enumerate(sorted(tensors))}
    for file in set(weight_map.values()):
        save_file({n: v for n, v in tensors.items() if weight_map[n] == file}, folder / file)
    index = folder / f"{NAME}.index.json"
    index.write_text(json.dumps({"weight_map": weight_map}))
    assert np.array_equal(draw(tmp_path / "model"), draw(image_folder))
    (folder / "part-1.safetensors").unlink()
    with pytest.raises(FormatError, match=r"part-1\.safetensors"):
        open_image_model(tmp_path / "model", PartNames())
    index.write_text(json.dumps({"weight_map": {"a": "../../secret.safetensors"}}))
    with pytest.raises(FormatError, match="no file of the folder"):
        open_image_model(tmp_path / "model", PartNames())


def test_convolutions_with_channels_last_are_turned(image_folder: Path, tmp_path: Path) -> None:
    """As MLX keeps them."""
    folder = shutil.copytree(image_folder, tmp_path / "model")
    file = folder / "vae" / NAME
    turned = {
        n: np.ascontiguousarray(v.transpose(0, 2, 3, 1)) if v.ndim == 4 else v
        for n, v in load_file(file).items()
    }
    save_file(turned, file)
    assert np.array_equal(draw(folder), draw(image_folder))


Change = Callable[[Path], None]


def edit_json(path: Path, **values: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def edit_tensors(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    tensors = dict(load_file(path))
    change(tensors)
    save_file(tensors, path)


def with_nan(tensors: dict[str, Any], name: str) -> None:
    tensors[name] = tensors[name].copy()
    tensors[name].reshape(-1)[5] = np.nan


BLOCK = "transformer_blocks.0.attn.to_q.weight"
BROKEN: dict[str, tuple[Change, type[OxiBonsaiError], str]] = {
    "no transformer": (lambda f: shutil.rmtree(f / "transformer"), SourceError, "transformer"),
    "no vae": (lambda f: shutil.rmtree(f / "vae"), SourceError, "lacks its VAE"),
    "no text encoder": (lambda f: shutil.rmtree(f / "text_encoder"), SourceError, "text encoder"),
    "no tokenizer": (lambda f: shutil.rmtree(f / "tokenizer"), SourceError, "tokenizer.json"),
    "no weights": (lambda f: (f / "vae" / NAME).unlink(), FormatError, "has no diffusion"),
    "no configuration": (lambda f: (f / "vae" / "config.json").unlink(), FormatError, "missing"),
    "a configuration of nonsense": (
        lambda f: (f / "vae" / "config.json").write_text("[" * 100_000), FormatError, "cannot read",
    ),
    "blocks of nonsense": (
        lambda f: edit_json(f / "vae" / "config.json", block_out_channels=4),
        FormatError, "configuration makes no sense",
    ),
    "axes of nonsense": (
        lambda f: edit_json(f / "transformer" / "config.json", axes_dims_rope=["x"]),
        FormatError, "configuration makes no sense",
    ),
    "an endless ratio": (
        lambda f: edit_json(f / "transformer" / "config.json", mlp_ratio=float("inf")),
        FormatError, "mlp_ratio is inf",
    ),
    "another pipeline": (
        lambda f: edit_json(f / "model_index.json", _class_name="FluxPipeline"),
        UnsupportedError, "FluxPipeline",
    ),
    "another scheduler": (
        lambda f: edit_json(f / "scheduler" / "scheduler_config.json", use_karras_sigmas=True),
        UnsupportedError, "use_karras_sigmas",
    ),
    "a missing tensor": (
        lambda f: edit_tensors(f / "transformer" / NAME, lambda t: t.pop(BLOCK)),
        FormatError, "to_q",
    ),
    "a tensor too many": (
        lambda f: edit_tensors(
            f / "transformer" / NAME, lambda t: t.update(extra=np.zeros(4, np.float32))
        ),
        UnsupportedError, "extra",
    ),
    "another shape": (
        lambda f: edit_tensors(
            f / "transformer" / NAME, lambda t: t.update({BLOCK: np.zeros((128, 64), np.float32)})
        ),
        FormatError, "shape",
    ),
    "NaN in a matrix": (
        lambda f: edit_tensors(f / "transformer" / NAME, lambda t: with_nan(t, BLOCK)),
        FormatError, "not finite",
    ),
    "NaN in a convolution": (
        lambda f: edit_tensors(
            f / "vae" / NAME, lambda t: with_nan(t, "decoder.conv_in.weight")
        ),
        FormatError, "not finite",
    ),
    "a truncated file": (
        lambda f: (f / "vae" / NAME).write_bytes((f / "vae" / NAME).read_bytes()[:-100]),
        FormatError, "cannot read",
    ),
    "pickles": (
        lambda f: (f / "transformer").rename(f / "transformer-gemlite-int2"),
        UnsupportedError, "run code",
    ),
    "a size of nonsense": (
        lambda f: edit_json(f / "model_index.json", default_size=-4), FormatError, "default_size",
    ),
    "a default size of nonsense": (
        lambda f: edit_json(f / "model_index.json", default_size=True), FormatError, "default_size",
    ),
    "a prompt that is too long": (
        lambda f: edit_json(f / "model_index.json", max_sequence_length=513),
        FormatError, "max_sequence_length is 513, not a count up to 512",
    ),
    "layers of nonsense": (
        lambda f: edit_json(f / "model_index.json", text_encoder_out_layers="all"),
        FormatError, "text_encoder_out_layers",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_folder_is_one_clear_error(image_folder: Path, tmp_path: Path, name: str) -> None:
    change, error, message = BROKEN[name]
    folder = shutil.copytree(image_folder, tmp_path / "model")
    change(folder)
    with pytest.raises(error, match=message):
        ImagePipeline.from_pretrained(folder)


def test_codes_that_are_not_ternary_are_refused(
    mlx_folder: Callable[[int], Path], tmp_path: Path
) -> None:
    folder = shutil.copytree(mlx_folder(2), tmp_path / "model")

    def spoil(tensors: dict[str, Any]) -> None:
        tensors[BLOCK] = tensors[BLOCK] | np.uint32(3)

    edit_tensors(folder / "transformer-packed-mflux" / NAME, spoil)
    with pytest.raises(FormatError, match="code 3"):
        ImagePipeline.from_pretrained(folder)


def test_files_that_hold_no_picture_model_are_refused(
    image_folder: Path, tmp_path: Path, smollm2_path: Path
) -> None:
    with pytest.raises(UnsupportedError, match="does not draw"):
        ImagePipeline.from_pretrained(smollm2_path)
    with pytest.raises(SourceError, match="does not exist"):
        ImagePipeline.from_pretrained(tmp_path / "nothing")
    with pytest.raises(SourceError, match="no picture model is named"):
        ImagePipeline.from_pretrained(vae=str(image_folder / "vae"))
    whole = tmp_path / "model.gguf"
    write_one_file(open_image_model(image_folder, PartNames()), whole)
    whole.write_bytes(whole.read_bytes()[:20_000])
    with pytest.raises(FormatError):
        ImagePipeline.from_pretrained(whole)


DRAW = """
import hashlib, sys
from oxibonsai import ImagePipeline
pipe = ImagePipeline.from_pretrained(sys.argv[1], threads=2)
image = pipe("a tree", width=64, height=64, seed=3, num_inference_steps=2, output_type="np").images
print(hashlib.sha256(image.tobytes()).hexdigest())
"""


@pytest.mark.parametrize("layout", ["float", "packed"])
def test_opening_and_drawing_writes_nothing(
    image_folder: Path, mlx_folder: Callable[[int], Path], layout: str, tmp_path: Path
) -> None:
    folder = image_folder if layout == "float" else mlx_folder(2)
    drawn = run_without_writes(DRAW, folder, home=tmp_path / "home")
    image = draw(folder)
    assert drawn.strip() == hashlib.sha256(image.tobytes()).hexdigest()
