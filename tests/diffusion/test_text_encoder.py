"""The text encoder against transformers in float32, on live random weights."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

pytest.importorskip("diffusers")

import torch
from closeness import distance, near
from diffusers_models import TEXT_ENCODER, TEXT_LAYERS, tensors, text_encoder
from safetensors.numpy import save_file

from oxibonsai import _core
from oxibonsai.checkpoint import Checkpoint
from oxibonsai.diffusion import text_encoder as module
from oxibonsai.diffusion.model_files import open_text_encoder
from oxibonsai.diffusion.text_encoder import TextEncoder
from oxibonsai.errors import FormatError, RequestError, UnsupportedError
from oxibonsai.graph import Builder

Floats = npt.NDArray[np.float32]
CONFIG = {**TEXT_ENCODER, "model_type": "qwen3"}
LENGTH, PAD = 100, 511
PROMPTS = [[int(i) for i in np.random.default_rng(n).integers(0, 500, n)] for n in (70, 3)]


@pytest.fixture(scope="module")
def reference() -> Any:
    return text_encoder()


@pytest.fixture(scope="module")
def network(reference: Any) -> TextEncoder:
    return load(reference)


def checkpoint(own: Mapping[str, Any], **config: Any) -> Checkpoint:
    """A folder as transformers saves it, opened; what is opened outlives its names."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        kept = {n: v for n, v in {**CONFIG, **config}.items() if v is not None}
        (place / "config.json").write_text(json.dumps(kept))
        save_file(dict(own), place / "model.safetensors")
        return open_text_encoder(place, None)


def load(reference: Any, threads: int = 2, tier: str = "", **config: Any) -> TextEncoder:
    device = _core.CpuDevice(threads, tier)
    return TextEncoder(checkpoint(tensors(reference), **config), device, TEXT_LAYERS)


def expected(reference: Any, prompt: list[int]) -> Floats:
    padding = LENGTH - len(prompt)
    states = reference(
        input_ids=torch.tensor([prompt + [PAD] * padding]),
        attention_mask=torch.tensor([[1] * len(prompt) + [0] * padding]),
        output_hidden_states=True,
        use_cache=False,
    ).hidden_states
    chosen = [states[layer][0] for layer in TEXT_LAYERS]
    return np.asarray(torch.cat(chosen, dim=1).numpy(), np.float32)


def encode(network: TextEncoder) -> Floats:
    return network.encode_ids(PROMPTS, LENGTH, PAD)


def test_hidden_states_are_those_of_transformers(reference: Any, network: TextEncoder) -> None:
    """Those of padding as well, which the transformer of the pictures reads, too."""
    got = encode(network)
    assert got.shape == (2, LENGTH, network.width)
    for prompt, states in zip(PROMPTS, got, strict=True):
        want = expected(reference, prompt)
        n = len(prompt)
        assert near(states[:n], want[:n])
        assert near(states[n:], want[n:])


def test_later_layers_are_neither_needed_nor_run(reference: Any, network: TextEncoder) -> None:
    own = tensors(reference)
    used = {n: t for n, t in own.items() if not n.startswith(("layers.3.", "norm."))}
    assert len(used) < len(own)
    other = TextEncoder(checkpoint(used), _core.CpuDevice(2), TEXT_LAYERS)
    np.testing.assert_array_equal(encode(other), encode(network))


def test_a_long_prompt_is_cut(network: TextEncoder) -> None:
    got = network.encode_ids([PROMPTS[0]], 40, PAD)
    np.testing.assert_array_equal(got, network.encode_ids([PROMPTS[0][:40]], 40, PAD))


def test_every_tier_gives_the_same_bytes_on_any_number_of_threads(
    reference: Any, network: TextEncoder
) -> None:
    want = encode(network)
    for tier in _core.cpu.tiers():
        for threads in (1, 3):
            got = encode(load(reference, threads, tier))
            np.testing.assert_array_equal(got, want, err_msg=f"{tier}, {threads} threads")
    np.testing.assert_array_equal(network.encode_ids(PROMPTS[1:], LENGTH, PAD), want[1:])


def wrong(reference: Any, patch: pytest.MonkeyPatch, mistake: str) -> Floats:
    if mistake == "layers off by one":
        layers = [n - 1 for n in TEXT_LAYERS]
        return encode(TextEncoder(checkpoint(tensors(reference)), _core.CpuDevice(2), layers))
    if mistake == "padding seen":
        run = _core.Batch.add
        patch.setattr(module._core.Batch, "add", lambda self, ids, **_: run(self, ids))
    elif mistake == "theta":
        return encode(load(reference, rope_theta=1e4))
    elif mistake == "pairs rotated":
        rope = Builder.rope
        patch.setattr(
            Builder,
            "rope",
            lambda self, x, config, dim: rope(self, x, replace(config, interleaved=True), dim),
        )
    elif mistake == "gains of heads ignored":
        norm = Builder.head_norm
        patch.setattr(
            Builder, "head_norm", lambda self, x, w, eps: norm(self, x, np.ones_like(w), eps)
        )
    elif mistake == "gate and up exchanged":
        patch.setattr(Builder, "swiglu", lambda self, a, b: self.graph.gated(b, a, "silu"))
    return encode(load(reference))


@pytest.mark.parametrize(
    "mistake",
    [
        "layers off by one",
        "padding seen",
        "theta",
        "pairs rotated",
        "gains of heads ignored",
        "gate and up exchanged",
    ],
)
def test_the_gate_sees_a_wrong_encoder(
    reference: Any, network: TextEncoder, monkeypatch: pytest.MonkeyPatch, mistake: str
) -> None:
    right = encode(network)
    other = wrong(reference, monkeypatch, mistake)
    assert not near(other, right), distance(other, right)


class Words:
    """One id for each character; control tokens have their own."""

    SPECIAL = ("<|im_start|>", "<|im_end|>", "<|endoftext|>", "<think>", "</think>")

    def encode(
        self, text: str, *, add_special: bool = True, parse_special: bool = False
    ) -> list[int]:
        ids: list[int] = []
        while text:
            found = next((s for s in self.SPECIAL if parse_special and text.startswith(s)), text[0])
            ids.append(400 + self.SPECIAL.index(found) if len(found) > 1 else ord(found))
            text = text[len(found) :]
        return ids


def test_a_prompt_is_a_users_message(reference: Any) -> None:
    own = checkpoint(tensors(reference))
    network = TextEncoder(own, _core.CpuDevice(1), TEXT_LAYERS, Words())
    start, end, pad, think, done = range(400, 405)
    assert network.pad_id == pad
    head = [end, 10, start, *map(ord, "assistant\n"), think, 10, 10, done, 10, 10]
    assert network.ids("a <think> pot") == [start, *map(ord, "user\na <think> pot"), *head]
    assert network.ids("") == [start, *map(ord, "user\n"), *head]
    want = network.encode_ids([network.ids("a pot")], 64, pad)
    np.testing.assert_array_equal(network.encode(["a pot"], 64), want)


def test_what_does_not_fit_is_named(reference: Any, network: TextEncoder) -> None:
    own = tensors(reference)
    device = _core.CpuDevice(1)
    with pytest.raises(FormatError, match="has 4 layers, where 27 are needed"):
        TextEncoder(checkpoint(own), device)
    with pytest.raises(UnsupportedError, match="llama"):
        checkpoint(own, model_type="llama")
    with pytest.raises(FormatError, match="hidden_size"):
        checkpoint(own, hidden_size=None)
    with pytest.raises(FormatError, match=r"lacks 1 of the parameters.*layers\.1\.mlp\.up_proj"):
        checkpoint({n: t for n, t in own.items() if n != "layers.1.mlp.up_proj.weight"})
    with pytest.raises(RequestError, match="no tokenizer"):
        network.encode(["a pot"])
    with pytest.raises(RequestError, match="no tokens"):
        network.encode_ids([[]], LENGTH, PAD)
    with pytest.raises(RequestError, match="not in order"):
        TextEncoder(checkpoint(own), device, (2, 1))
