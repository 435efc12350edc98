"""Models of many structures on OpenCL: the scalar tier's bytes, by kernels that are named here.

``test_opencl.py`` says how to run them. With ``OXIBONSAI_ISA=scalar`` the CPU is the scalar tier.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oxibonsai
from oxibonsai import ImagePipeline, SamplingParams
from oxibonsai.devices import Device

pytest.importorskip("transformers", reason="needs transformers and torch (extra: test)")
from device_models import DENSE, EXPERTS, IDS, RECURRENT, REMOTE, logits, seen, write
from random_vision import MODELS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.hf,
    pytest.mark.long("a driver compiles kernels"),
    pytest.mark.timeout(7200),
]

RELEASE = pytest.mark.release
SOURCES = Path(__file__).parents[2] / "csrc" / "gpu" / "kernels"
GREEDY = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True)
Launched = Callable[[], set[str]]


def products(form: str) -> set[str]:
    """Kernels of a matrix of integers: for more than 8 rows, and for up to 8, 4 and 1."""
    return {f"gemm_{form}", *(f"gemv_{form}_{rows}" for rows in (8, 4, 1))}


def float_products(form: str) -> set[str]:
    return {f"linear_{form}_{rows}" for rows in (8, 1)}


def attention(kv_type: str, prompt: str = "part") -> set[str]:
    """Kernels for prompts and for tokens."""
    kernels = {f"attend_{prompt}_{kv_type}", f"attend_tile_{kv_type}"}
    return {*kernels, "merge_parts", "merge_tiles"}


def latent_attention(kv_type: str) -> set[str]:
    """Kernels where values are parts of their keys."""
    return {f"attend_tile_{kv_type}", f"store_kv_{kv_type}", "merge_tiles"}


EVERY = {"rms_norm", "select_rows", "gated"}
ROUTED = {*float_products("F32"), "combine", "dispatch", "route", "sort_routes"}
DELTA_RULE = {"conv1d", "scan", "scan_factors", "select_columns", "unit_keys"}

# Of each model all kernels that steps of many rows, of several and of one launch, but for the type of
# keys and values.
KERNELS: dict[str, set[str]] = {
    "gemma3": EVERY | products("q8") | {"add", "scale"},
    "bonsai2": (
        EVERY
        | products("q2")
        | float_products("BF16")
        | DELTA_RULE
        | {"hadamard", "transpose_heads"}
    ),
    "gemma3n": (
        EVERY
        | products("q8")
        | float_products("F16")
        | float_products("F32")
        | {"add", "add_vector", "gaussian_top_k", "join_heads", "match_rms", "mix_parts", "rope"}
        | {"round_int8", "scale", "select_columns", "softcap", "transpose_heads"}
    ),
    "apertus": EVERY - {"gated"} | products("q8") | {"round_int8", "xielu"},
    "phi3small": (
        EVERY - {"rms_norm"}
        | products("q8")
        | {"activate", "add", "add_vector", "clamp_values", "layer_norm", "round_int8", "scale"}
    ),
    "qwen3moe": EVERY | products("q8") | ROUTED | {"add"},
    "gpt-oss": EVERY | products("q8") | ROUTED | {"add"},
    "deepseek2-groups": (
        EVERY
        | products("q8")
        | ROUTED
        | {"add", "join_heads", "rope", "round_int8", "select_columns", "transpose_heads"}
    ),
    "qwen3next": EVERY | products("q8") | ROUTED | DELTA_RULE | {"add", "gate_rows", "round_int8"},
    "mamba2": EVERY | products("q8") | {"conv1d", "scan", "scan_factors", "select_columns"},
    "nemotron_h": (
        EVERY | products("q8") | {"activate", "conv1d", "scan", "scan_factors", "select_columns"}
    ),
    "jamba": (
        EVERY
        | products("q8")
        | float_products("F16")
        | ROUTED
        | {"add", "channel_scan", "conv1d", "round_int8", "select_columns"}
    ),
    "rwkv7": (
        EVERY
        | float_products("F32")
        | {"activate", "add", "conv1d", "hadamard", "layer_norm", "scale", "softcap"}
        | {"transpose_heads", "wkv7_scan"}
    ),
}
OTHERS = sorted({*DENSE, *EXPERTS, *RECURRENT, *REMOTE} - set(KERNELS))
# Heads of more than 128 dims.
WIDE = {"bonsai2"}
LATENT = {"deepseek2-groups"}
# What rotates no keys stores them by a kernel of its own.
UNROTATED = {"jamba", "nemotron_h"}
STATE_ONLY = {"mamba2", "rwkv7"}

VISION = {
    "gemma3": {"layer_norm", "activate", "scale", "add"},
    "qwen2.5vl": {"activate", "rope"},
}
PICTURE = {
    *("activate", "add_gated", "attend_part_F32", "conv2d", "gated", "join_heads", "layer_norm"),
    *("merge_parts", "modulate", "norm_pixels", "rms_norm", "rope", "select_columns"),
    *("store_kv_F32", "sum_runs", *float_products("F32")),
}


def kernels_of(name: str, kv_type: str) -> set[str]:
    """All kernels of a model with keys and values of a type, as the names of kernels have it."""
    if name in STATE_ONLY:
        return KERNELS[name]
    if name in LATENT:
        return KERNELS[name] | latent_attention(kv_type)
    store = f"{'store_kv' if name in UNROTATED else 'prepare_heads'}_{kv_type}"
    return KERNELS[name] | attention(kv_type, "wide_part" if name in WIDE else "part") | {store}


@pytest.mark.parametrize("name", KERNELS)
def test_logits_have_the_cpus_bytes(
    opencl: Device, launched: Launched, name: str, tmp_path: Path
) -> None:
    compare(write(name, tmp_path), options_of(name))
    assert launched() == kernels_of(name, "F16")


@RELEASE
@pytest.mark.parametrize("kv_type", ["f32", "q8_0", "q4_0", "fp8_e4m3"])
@pytest.mark.parametrize("name", ["gemma3", "bonsai2", "deepseek2-groups", "jamba"])
def test_logits_over_other_caches_have_the_cpus_bytes(
    opencl: Device, launched: Launched, name: str, kv_type: str, tmp_path: Path
) -> None:
    compare(write(name, tmp_path), {"kv_type": kv_type})
    assert launched() == kernels_of(name, kv_type.removesuffix("_e4m3").upper())


@RELEASE
@pytest.mark.parametrize("name", OTHERS)
def test_logits_of_other_structures_have_the_cpus_bytes(
    opencl: Device, name: str, tmp_path: Path
) -> None:
    compare(write(name, tmp_path), options_of(name))


def options_of(name: str) -> dict[str, Any]:
    return {} if name in STATE_ONLY else {"kv_type": "f16"}


def compare(path: Path, options: dict[str, Any]) -> None:
    """Compare steps of all, several and one token with the CPU's logits of all."""
    wanted = logits(path, "cpu", len(IDS), **options)
    for chunk in (len(IDS), 7, 3, 1):
        assert logits(path, "opencl", chunk, **options) == wanted, f"in steps of {chunk}"


# Of published models.
SENTENCE = (
    "The planets of the solar system, from the one that is nearest to the sun to the last one, are"
)
TEXTS = {
    "The capital of France is": 16,
    SENTENCE: 6,
    "def add(a, b):": 6,
}  # and how many tokens follow
REAL_KERNELS = {
    "smollm2": (
        EVERY
        | products("q4_min")
        | products("q8")
        | attention("F16")
        | {"prepare_heads_F16", "top_k"}
    ),
    "gemma": (
        EVERY
        | products("q4_scale32_min")
        | products("q5")
        | products("q6_scale16")
        | products("q8")
        | attention("F16", "wide_part")
        | {"add", "prepare_heads_F16", "scale", "top_k"}
    ),
}


@pytest.mark.parametrize("model", ["smollm2", pytest.param("gemma", marks=RELEASE)])
def test_published_models_have_the_cpus_logits_and_texts(
    opencl: Device, launched: Launched, model: str, request: pytest.FixtureRequest
) -> None:
    path = request.getfixturevalue(f"{model}_path")

    def made(device: str) -> tuple[list[bytes], list[str]]:
        engine = oxibonsai.load(
            path, device=device, threads=2, ctx_size=128, parallel=3, kv_type="f16", parity="off"
        )
        encode, decode = engine.tokenizer.encode, engine.tokenizer.decode
        logits = [engine.logits(encode(SENTENCE), chunk).tobytes() for chunk in (64, 7)]
        sequences = [
            engine.submit(encode(text), replace(GREEDY, max_tokens=tokens))
            for text, tokens in TEXTS.items()
        ]
        while not all(s.finished for s in sequences):
            engine.step()
        return logits, [decode(s.generated) for s in sequences]

    assert made("opencl") == made("cpu")
    assert launched() == REAL_KERNELS[model]


# A prompt of more positions than a part of attention has, which is 512.
@pytest.mark.parametrize(("name", "prompt"), [("qwen3-plain", 530), ("mamba2", 21)])
def test_texts_of_a_batch_are_the_cpus(
    opencl: Device, launched: Launched, name: str, prompt: int, tmp_path: Path
) -> None:
    path, options = write(name, tmp_path), options_of(name)

    def texts(device: str) -> list[list[int]]:
        engine = oxibonsai.load(
            path, device=device, threads=2, ctx_size=576, parity="off", **options
        )
        sequences = [engine.submit((IDS * 26)[:n], GREEDY) for n in (prompt, 3, 1)]
        while not all(s.finished for s in sequences):
            engine.step()
        return [s.generated for s in sequences]

    assert texts("opencl") == texts("cpu")
    assert "top_k" in launched()


@pytest.mark.parametrize("family", VISION)
def test_pictures_in_a_conversation_have_the_cpus_bytes(
    opencl: Device, launched: Launched, family: str, tmp_path: Path
) -> None:
    eyed = MODELS[family](tmp_path)
    assert seen(eyed, family, "opencl") == seen(eyed, family, "cpu")
    tower = {"attend_part_F32", "merge_parts", "store_kv_F32", "linear_F32_8"}
    text = {"attend_part_F16", "prepare_heads_F16", "insert_rows"}
    assert launched() == EVERY | VISION[family] | tower | text


def test_the_picture_model_draws_the_cpus_pixels(
    opencl: Device, launched: Launched, tmp_path: Path
) -> None:
    pytest.importorskip("diffusers")
    from tiny_images import save_tiny, tiny_pipeline

    save_tiny(tiny_pipeline(), tmp_path / "model")

    def pixels(device: str) -> bytes:
        pipeline = ImagePipeline.from_pretrained(tmp_path / "model", device=device, threads=2)
        drawn = pipeline(
            "a tree",
            width=64,
            height=64,
            seed=3,
            num_inference_steps=1,
            max_sequence_length=24,
            output_type="np",
        )
        return np.asarray(drawn.images).tobytes()

    assert pixels("opencl:0") == pixels("cpu")
    assert launched() == PICTURE


# Kernels of devices whose memory is ordered between the blocks of a launch, which OpenCL's is not.
OF_OTHER_DEVICES = {"attend_one", "gemv_gated", "gemv_norm"}


def test_every_kind_of_kernel_is_launched_by_a_model() -> None:
    declared = re.compile(r"\b(?:MERGE_)?KERNEL\(([a-z]\w*)")
    text = "".join(path.read_text() for path in SOURCES.glob("*.h"))
    kinds = {name.removesuffix("_") for name in declared.findall(text)} - {"name"}
    all_launched = set.union(PICTURE, {"insert_rows", "top_k"}, *VISION.values())
    for name in KERNELS:
        all_launched |= kernels_of(name, "F16")
    seldom = {k for k in kinds if not any(re.fullmatch(rf"{k}(_.+)?", n) for n in all_launched)}
    assert seldom == OF_OTHER_DEVICES
