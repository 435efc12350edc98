"""Picture models in parts, by Black Forest Labs' names, as stable-diffusion.cpp and ComfyUI take them.

The files are written as city96's ``tools/convert.py`` writes them, by the package gguf; diffusers'
conversion of such names is the truth for what they mean.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
import pytest

pytest.importorskip("diffusers")

import torch
from diffusers import AutoencoderKLFlux2
from diffusers.loaders import single_file_utils
from diffusers_models import TEXT_ENCODER, VAE, live, transformer
from safetensors.numpy import load_file, save_file
from tiny_images import pipeline_of, save_tiny
from transformers import Qwen3Config, Qwen3Model

from oxibonsai import ImagePipeline
from oxibonsai.cli.main import _run
from oxibonsai.convert.stored_types import encode_measured
from oxibonsai.diffusion.model_files import PartNames, open_image_model
from oxibonsai.diffusion.write_one_file import write_one_file
from oxibonsai.errors import FormatError, OxiBonsaiError, SourceError, UnsupportedError

Floats = npt.NDArray[np.float32]
Named = dict[str, Floats]
LAYERS = 27  # of the text encoder, of which files in parts do not say which are read
LAST_NORM = "final_layer.adaLN_modulation.1.weight"
PREFIX = "model.diffusion_model."  # as stable-diffusion.cpp's converter names them
ARGUMENTS: dict[str, Any] = {
    "width": 64, "height": 64, "seed": 3, "num_inference_steps": 1, "output_type": "np",
    "max_sequence_length": 24,
}  # fmt: skip

_MATRICES = {
    "x_embedder": "img_in",
    "context_embedder": "txt_in",
    "time_guidance_embed.timestep_embedder.linear_1": "time_in.in_layer",
    "time_guidance_embed.timestep_embedder.linear_2": "time_in.out_layer",
    "double_stream_modulation_img.linear": "double_stream_modulation_img.lin",
    "double_stream_modulation_txt.linear": "double_stream_modulation_txt.lin",
    "single_stream_modulation.linear": "single_stream_modulation.lin",
    "proj_out": "final_layer.linear",
}
_DOUBLE = {
    "attn.norm_q.weight": "img_attn.norm.query_norm.scale",
    "attn.norm_k.weight": "img_attn.norm.key_norm.scale",
    "attn.norm_added_q.weight": "txt_attn.norm.query_norm.scale",
    "attn.norm_added_k.weight": "txt_attn.norm.key_norm.scale",
    "attn.to_out.0.weight": "img_attn.proj.weight",
    "attn.to_add_out.weight": "txt_attn.proj.weight",
    "ff.linear_in.weight": "img_mlp.0.weight",
    "ff.linear_out.weight": "img_mlp.2.weight",
    "ff_context.linear_in.weight": "txt_mlp.0.weight",
    "ff_context.linear_out.weight": "txt_mlp.2.weight",
}
_SINGLE = {
    "attn.norm_q.weight": "norm.query_norm.scale",
    "attn.norm_k.weight": "norm.key_norm.scale",
    "attn.to_qkv_mlp_proj.weight": "linear1.weight",
    "attn.to_out.weight": "linear2.weight",
}


def original_transformer(held: Named) -> Named:
    """Of diffusers' names those of the first release, whose projections are fused."""
    found: Named = {f"{n}.weight": held[f"{m}.weight"] for m, n in _MATRICES.items()}
    scale, shift = np.split(held["norm_out.linear.weight"], 2)
    found[LAST_NORM] = np.concatenate([shift, scale])
    for i in range(2):
        block = f"transformer_blocks.{i}"
        for ours, theirs in _DOUBLE.items():
            found[f"double_blocks.{i}.{theirs}"] = held[f"{block}.{ours}"]
        for side, form in (("img", "to_{}"), ("txt", "add_{}_proj")):
            parts = [held[f"{block}.attn.{form.format(p)}.weight"] for p in "qkv"]
            found[f"double_blocks.{i}.{side}_attn.qkv.weight"] = np.concatenate(parts)
    for i in range(3):
        for ours, theirs in _SINGLE.items():
            found[f"single_blocks.{i}.{theirs}"] = held[f"single_transformer_blocks.{i}.{ours}"]
    return found


def original_vae(held: Named) -> Named:
    """Of diffusers' names those of the first release, whose levels are counted from the finest."""
    found: Named = {}
    for name, value in held.items():
        short = re.sub(r"^(post_quant_conv)", r"decoder.\1", name)
        short = re.sub(r"^(quant_conv)", r"encoder.\1", short)
        short = re.sub(r"down_blocks\.(\d)\.resnets", r"down.\1.block", short)
        short = re.sub(r"down_blocks\.(\d)\.downsamplers\.0", r"down.\1.downsample", short)
        short = re.sub(r"up_blocks\.(\d)\.resnets", lambda m: f"up.{3 - int(m[1])}.block", short)
        short = re.sub(
            r"up_blocks\.(\d)\.upsamplers\.0", lambda m: f"up.{3 - int(m[1])}.upsample", short
        )
        short = re.sub(r"mid_block\.resnets\.(\d)", lambda m: f"mid.block_{int(m[1]) + 1}", short)
        short = short.replace("mid_block.attentions.0.group_norm", "mid.attn_1.norm")
        short = short.replace("mid_block.attentions.0.to_out.0", "mid.attn_1.proj_out")
        short = re.sub(r"mid_block\.attentions\.0\.to_", "mid.attn_1.", short)
        short = short.replace("conv_norm_out", "norm_out").replace("conv_shortcut", "nin_shortcut")
        convolution = re.search(r"attn_1\.(q|k|v|proj_out)\.weight", short)
        found[short] = value[:, :, None, None] if convolution else value
    return found


def write_gguf(
    path: Path,
    held: Named,
    *,
    arch: str | None = "flux",
    kind: Callable[[str, Floats], str] = lambda n, v: "F32",
    reshaped: tuple[str, ...] = (),
    shapes: dict[str, list[int]] | None = None,
) -> Path:
    """As city96's converter; without an architecture as stable-diffusion.cpp's."""
    writer = gguf.GGUFWriter(path, arch or "none")
    if arch is None:
        writer.kv_data[0].clear()
    else:
        writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    given = {n: list(held[n].shape) for n in reshaped} | (shapes or {})
    for name, shape in given.items():
        writer.add_array(f"comfy.gguf.orig_shape.{name}", shape)
    for name, value in held.items():
        rows = value.reshape(-1, 256) if name in reshaped else value
        of_type = kind(name, value)
        raw = getattr(gguf.GGMLQuantizationType, of_type)
        writer.add_tensor(name, quantized(rows, of_type), raw_dtype=raw)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def quantized(rows: Floats, kind: str) -> npt.NDArray[Any]:
    """By the package gguf where it can; what blocks mean is read by it in any case."""
    if kind == "Q4_K":
        return encode_measured(rows, "q4_K", "")[0].reshape(len(rows), -1)
    return gguf.quants.quantize(rows, getattr(gguf.GGMLQuantizationType, kind))


def small_types(name: str, value: Floats) -> str:
    """Q8_0 in blocks, BF16 for the other matrices, as files of eight bits have them."""
    if value.ndim == 1:
        return "F32"
    return "Q8_0" if "_blocks." in name else "BF16"


def first_matrix_as(kind: str) -> Callable[[str, Floats], str]:
    return lambda name, _: kind if name == "img_in.weight" else "F32"


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``model``: a folder as diffusers saves it; beside it the parts, with the same weights.

    Sizes that no file says are those of all models of the family: 32 groups in the autoencoder, and
    hidden states after layers 9, 18 and 27.
    """
    place = tmp_path_factory.mktemp("parts")
    widths = {
        "block_out_channels": (32, 32, 64, 64),
        "decoder_block_out_channels": (32, 64, 32, 64),
    }
    vae = live(AutoencoderKLFlux2(**{**VAE, **widths, "norm_num_groups": 32}), seed=2)
    generator = torch.Generator().manual_seed(3)
    vae.bn.running_mean.copy_(0.3 * torch.randn(vae.bn.running_mean.shape, generator=generator))
    vae.bn.running_var.copy_(0.3 + torch.rand(vae.bn.running_var.shape, generator=generator))
    sizes = {**TEXT_ENCODER, "num_hidden_layers": LAYERS, "intermediate_size": 64}
    text = live(Qwen3Model(Qwen3Config(**sizes)), seed=1)
    save_tiny(pipeline_of(transformer(), text, vae), place / "model")
    index = place / "model" / "model_index.json"
    index.write_text(
        json.dumps({**json.loads(index.read_text()), "text_encoder_out_layers": [9, 18, 27]})
    )
    save_file(original_vae(held_of(place, "vae")), place / "ae.safetensors")
    write_gguf(place / "flux2.gguf", original_transformer(held_of(place, "transformer")))
    shutil.copytree(place / "model" / "text_encoder", place / "text")
    shutil.copy(place / "model" / "tokenizer" / "tokenizer.json", place / "text")
    shutil.copy(place / "model" / "tokenizer" / "tokenizer_config.json", place / "text")
    assert _run(["convert", str(place / "text"), str(place / "qwen3.gguf"), "--type", "f32"]) == 0
    return place


def held_of(place: Path, network: str) -> Named:
    held = load_file(place / "model" / network / "diffusion_pytorch_model.safetensors")
    return {n: v for n, v in held.items() if v.ndim}


def draw(source: Path | None = None, **named: Path) -> Any:
    names: dict[str, Any] = {n: str(p) for n, p in named.items()}
    pipe = ImagePipeline.from_pretrained(source, **names, threads=2)
    return pipe("a tree", **ARGUMENTS).images


def test_diffusers_reads_the_names_as_this_test_writes_them(parts: Path) -> None:
    """Else all that follows would prove nothing."""
    ours = {
        n: torch.from_numpy(v)
        for n, v in original_transformer(held_of(parts, "transformer")).items()
    }
    theirs = single_file_utils.convert_flux2_transformer_checkpoint_to_diffusers(ours)
    held = held_of(parts, "transformer")
    assert theirs.keys() == held.keys()
    for name, value in theirs.items():
        assert np.array_equal(value.numpy(), held[name]), name
    held = held_of(parts, "vae")
    named = {n: torch.from_numpy(v) for n, v in original_vae(held).items()}
    config = json.loads((parts / "model" / "vae" / "config.json").read_text())
    converted = single_file_utils.convert_ldm_vae_checkpoint(named, config)
    for name, value in converted.items():
        assert np.array_equal(value.numpy(), held[name]), name
    assert {n for n in held if "quant_conv" not in n and not n.startswith("bn.")} <= set(converted)


def test_parts_draw_the_bytes_of_the_folder(parts: Path, tmp_path: Path) -> None:
    expected = draw(parts / "model")
    others = {"vae": parts / "ae.safetensors", "text_encoder": parts / "qwen3.gguf"}
    assert np.array_equal(draw(transformer=parts / "flux2.gguf", **others), expected)
    assert np.array_equal(draw(parts / "flux2.gguf", **others), expected)
    held = original_transformer(held_of(parts, "transformer"))
    save_file(held, tmp_path / "flux2.safetensors")
    assert np.array_equal(draw(tmp_path / "flux2.safetensors", **others), expected)
    renamed = {PREFIX + n.replace("_norm.scale", "_norm.weight"): v for n, v in held.items()}
    file = write_gguf(tmp_path / "sd.gguf", renamed, arch=None)
    assert np.array_equal(draw(file, **others), expected)


def test_quantized_parts_draw_what_their_blocks_mean(parts: Path, tmp_path: Path) -> None:
    """The same blocks by diffusers' names, as a file of OxiBonsai's own; and all parts as one file."""
    held = original_transformer(held_of(parts, "transformer"))
    file = write_gguf(tmp_path / "q8.gguf", held, kind=small_types)
    names = PartNames(str(file), str(parts / "ae.safetensors"), str(parts / "qwen3.gguf"))
    files = open_image_model(None, names)
    tensors = files.transformer.tensors
    for name in sorted(tensors.names):
        value = held_of(parts, "transformer")[name]
        kind = "Q8_0" if "_blocks." in name else "BF16"
        kind = "F32" if value.ndim == 1 else kind
        assert tensors.quant_type(name) == kind
        blocks = gguf.quants.quantize(value, getattr(gguf.GGMLQuantizationType, kind))
        assert np.array_equal(tensors.stored(name), blocks.reshape(-1).view(np.uint8)), name
    found = draw(file, vae=parts / "ae.safetensors", text_encoder=parts / "qwen3.gguf")
    write_one_file(files, tmp_path / "one.gguf")
    assert np.array_equal(draw(tmp_path / "one.gguf"), found)
    assert not np.array_equal(found, draw(parts / "model"))


def test_tensors_have_the_shapes_that_keys_give_back(parts: Path, tmp_path: Path) -> None:
    """Rows that are no whole blocks by the shape given back become floats."""
    held = original_transformer(held_of(parts, "transformer"))
    others = {"vae": parts / "ae.safetensors", "text_encoder": parts / "qwen3.gguf"}
    reshaped = ("img_in.weight", "final_layer.linear.weight")
    file = write_gguf(tmp_path / "plain.gguf", held, reshaped=reshaped)
    assert np.array_equal(draw(file, **others), draw(parts / "model"))
    value = held["img_in.weight"]
    for kind, found in (("Q8_0", "Q8_0"), ("Q4_K", "F32")):
        file = write_gguf(
            tmp_path / f"{kind}.gguf",
            held,
            reshaped=reshaped,
            kind=first_matrix_as(kind),
        )
        names = PartNames(str(file), *map(str, others.values()))
        tensors = open_image_model(None, names).transformer.tensors
        blocks = quantized(value.reshape(-1, 256), kind)
        meaning = gguf.quants.dequantize(blocks, getattr(gguf.GGMLQuantizationType, kind))
        assert tensors.quant_type("x_embedder.weight") == found
        assert np.array_equal(tensors.array("x_embedder.weight"), meaning.reshape(value.shape))
        weight = tensors.matrix("x_embedder.weight")
        assert (weight.rows, weight.cols, weight.quant_type) == (*value.shape, found)


def test_adapters_change_packed_matrices_of_files(parts: Path, tmp_path: Path) -> None:
    """Under each of the names that a matrix has in files."""
    held = original_transformer(held_of(parts, "transformer"))
    file = write_gguf(tmp_path / "q8.gguf", held, kind=small_types)
    names = PartNames(str(file), str(parts / "ae.safetensors"), str(parts / "qwen3.gguf"))
    write_one_file(open_image_model(None, names), tmp_path / "one.gguf")
    generator = np.random.default_rng(1)
    module = "transformer.transformer_blocks.0.attn.to_k"
    a, b = (generator.standard_normal(s, np.float32) for s in ((4, 128), (128, 4)))
    save_file(
        {f"{module}.lora_A.weight": a, f"{module}.lora_B.weight": b}, tmp_path / "l.safetensors"
    )

    adapter = {"lora": tmp_path / "l.safetensors"}
    plain = draw(tmp_path / "one.gguf")
    adapted = draw(tmp_path / "one.gguf", **adapter)
    assert not np.array_equal(plain, adapted)
    others = {"vae": parts / "ae.safetensors", "text_encoder": parts / "qwen3.gguf"}
    assert np.array_equal(draw(file, **adapter, **others), adapted)


def test_the_command_takes_the_names_of_stable_diffusion_cpp(
    parts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OXIBONSAI_THREADS", "2")
    same = ["-p", "a tree", "--seed", "3", "--steps", "1"]
    own = [*same, "--width", "64", "--height", "64", "--no-exif", "-m", str(parts / "model")]
    assert _run(["image", *own, "-o", "folder.png"]) == 0
    named = ["--diffusion-model", str(parts / "flux2.gguf"), "--vae", str(parts / "ae.safetensors")]
    named += ["--llm", str(parts / "qwen3.gguf"), "-W", "64", "-H", "64", "--cfg-scale", "1.0"]
    named += ["--sampling-method", "euler", "--diffusion-fa", "--disable-image-metadata"]
    assert _run(["image", *same, *named, "-o", "parts.png"]) == 0
    assert (tmp_path / "parts.png").read_bytes() == (tmp_path / "folder.png").read_bytes()
    for name in ("--t5xxl", "--clip_l"):
        capsys.readouterr()
        assert _run(["image", *same, *named, name, str(parts / "qwen3.gguf")]) == 2
        assert "the text encoder of FLUX.2 klein is a Qwen3" in capsys.readouterr().err


Files = dict[str, Path | None]


def without(held: Named, *names: str) -> Named:
    return {n: v for n, v in held.items() if n not in names}


MISFITS: dict[str, tuple[Callable[[Path, Path], Files], type[OxiBonsaiError], str]] = {
    "no VAE": (lambda p, t: {"vae": None}, SourceError, "no VAE"),
    "no text encoder": (lambda p, t: {"text_encoder": None}, SourceError, "no text encoder"),
    "a language model for the transformer": (
        lambda p, t: {"transformer": p / "qwen3.gguf"},
        UnsupportedError, "architecture qwen3: the transformer",
    ),
    "a transformer for the text encoder": (
        lambda p, t: {"text_encoder": p / "flux2.gguf"},
        UnsupportedError, "architecture flux; the text encoder",
    ),
    "a transformer for the VAE": (
        lambda p, t: {"vae": p / "flux2.gguf"}, UnsupportedError, "VAE .*flux2.gguf is a GGUF file",
    ),
    "another architecture": (
        lambda p, t: {"transformer": write_gguf(t / "wan.gguf", original(p), arch="wan")},
        UnsupportedError, "architecture wan: the transformer",
    ),
    "FLUX.1": (
        lambda p, t: {"transformer": write_gguf(
            t / "x.gguf", without(original(p), "double_stream_modulation_img.lin.weight")
        )},
        UnsupportedError, "a FLUX.1 or a relative of it",
    ),
    "no FLUX at all": (
        lambda p, t: {"transformer": write_gguf(t / "x.gguf", {"a.weight": original(p)["img_in.weight"]})},
        UnsupportedError, "no FLUX",
    ),
    "guidance": (
        lambda p, t: {"transformer": write_gguf(
            t / "x.gguf",
            {**original(p), "guidance_in.in_layer.weight": original(p)["time_in.in_layer.weight"]},
        )},
        UnsupportedError, "embedded guidance",
    ),
    "a missing tensor": (
        lambda p, t: {"transformer": write_gguf(
            t / "x.gguf", without(original(p), "double_blocks.1.txt_attn.qkv.weight")
        )},
        FormatError, "lacks the tensor transformer_blocks.1.attn.add_q_proj.weight",
    ),
    "a tensor too many": (
        lambda p, t: {"transformer": write_gguf(
            t / "x.gguf", {**original(p), "extra.weight": original(p)["img_in.weight"]}
        )},
        UnsupportedError, "extra.weight",
    ),
    "rows that are no thirds": (
        lambda p, t: {"transformer": write_gguf(
            t / "x.gguf",
            {**original(p), "double_blocks.0.img_attn.qkv.weight": np.ones((385, 128), np.float32)},
        )},
        FormatError, "385 rows, which are no 3 equal parts",
    ),
    "rows that are no halves": (
        lambda p, t: {"transformer": write_gguf(
            t / "x.gguf", {**original(p), LAST_NORM: np.ones((255, 128), np.float32)}
        )},
        FormatError, "255 rows, which are no 2 equal parts",
    ),
    "a tensor twice": (
        lambda p, t: {"transformer": write_gguf(
            t / "x.gguf",
            {**original(p), "model.diffusion_model.img_in.weight": original(p)["img_in.weight"]},
        )},
        FormatError, "both img_in.weight and model.diffusion_model.img_in.weight",
    ),
    "NaN": (
        lambda p, t: {"transformer": write_gguf(
            t / "x.gguf",
            {**original(p), LAST_NORM: np.full((256, 128), np.nan, np.float32)},
        )},
        FormatError, "norm_out.linear.weight holds values that are not finite",
    ),
    "a shape of nonsense": (
        lambda p, t: {"transformer": write_gguf(
            t / "x.gguf", original(p), shapes={"img_in.weight": [128, 33]}
        )},
        FormatError, "4096 values, but the shape",
    ),
    "the VAE of another model": (
        lambda p, t: {"vae": saved(t / "x.safetensors", without(
            load_file(p / "ae.safetensors"), "bn.running_mean", "bn.running_var"
        ))},
        UnsupportedError, "the VAE of another model",
    ),
    "a text encoder without what describes it": (
        lambda p, t: {"text_encoder": saved(t / "q.safetensors", {"a": np.ones(3, np.float32)})},
        SourceError, "no config.json and tokenizer.json beside it",
    ),
}  # fmt: skip


def original(parts: Path) -> Named:
    return original_transformer(held_of(parts, "transformer"))


def saved(path: Path, held: Named) -> Path:
    save_file(held, path)
    return path


@pytest.mark.parametrize("name", MISFITS)
def test_a_misfit_is_refused_by_name(parts: Path, tmp_path: Path, name: str) -> None:
    change, error, message = MISFITS[name]
    files: Files = {
        "transformer": parts / "flux2.gguf",
        "vae": parts / "ae.safetensors",
        "text_encoder": parts / "qwen3.gguf",
        **change(parts, tmp_path),
    }
    names: dict[str, Any] = {n: p and str(p) for n, p in files.items()}
    with pytest.raises(error, match=message):
        ImagePipeline.from_pretrained(**names)
