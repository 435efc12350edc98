"""The text encoder against transformers in float32, on live random weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

pytest.importorskip("diffusers")

import torch
from closeness import distance, near
from diffusers_models import TEXT_ENCODER, TEXT_LAYERS, tensors, text_encoder

from oxibonsai import _core
from oxibonsai.diffusion import text_encoder as module
from oxibonsai.diffusion.parameters import ArrayTensors
from oxibonsai.diffusion.text_encoder import TextEncoder
from oxibonsai.errors import FormatError, RequestError, UnsupportedError
from oxibonsai.graph import Builder, RopeConfig

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


def load(reference: Any, threads: int = 2, tier: str = "", **config: Any) -> TextEncoder:
    own = ArrayTensors(tensors(reference))
    device = _core.CpuDevice(threads, tier)
    return TextEncoder.load({**CONFIG, **config}, own, device, layers=TEXT_LAYERS)


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
    other = TextEncoder.load(CONFIG, ArrayTensors(used), _core.CpuDevice(2), layers=TEXT_LAYERS)
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
        own = ArrayTensors(tensors(reference))
        device = _core.CpuDevice(2)
        return encode(TextEncoder.load(CONFIG, own, device, layers=[n - 1 for n in TEXT_LAYERS]))
    if mistake == "padding seen":
        run = _core.Batch.add
        patch.setattr(module._core.Batch, "add", lambda self, ids, **_: run(self, ids))
    elif mistake == "theta":
        return encode(load(reference, rope_theta=1e4))
    elif mistake == "pairs rotated":
        patch.setattr(
            module, "RopeConfig", lambda dim, theta: RopeConfig(dim, theta, interleaved=True)
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
    own = ArrayTensors(tensors(reference))
    network = TextEncoder.load(CONFIG, own, _core.CpuDevice(1), Words(), layers=TEXT_LAYERS)
    start, end, pad, think, done = range(400, 405)
    assert network.pad_id == pad
    head = [end, 10, start, *map(ord, "assistant\n"), think, 10, 10, done, 10, 10]
    assert network.ids("a <think> pot") == [start, *map(ord, "user\na <think> pot"), *head]
    assert network.ids("") == [start, *map(ord, "user\n"), *head]
    want = network.encode_ids([network.ids("a pot")], 64, pad)
    np.testing.assert_array_equal(network.encode(["a pot"], 64), want)


def test_what_does_not_fit_is_named(reference: Any, network: TextEncoder) -> None:
    own = ArrayTensors(tensors(reference))
    device = _core.CpuDevice(1)
    with pytest.raises(FormatError, match="has 4 layers, where 27 are needed"):
        TextEncoder.load(CONFIG, own, device)
    with pytest.raises(UnsupportedError, match="llama"):
        TextEncoder.load({**CONFIG, "model_type": "llama"}, own, device)
    with pytest.raises(FormatError, match="hidden_size"):
        TextEncoder.load({n: v for n, v in CONFIG.items() if n != "hidden_size"}, own, device)
    with pytest.raises(RequestError, match="no tokenizer"):
        network.encode(["a pot"])
    with pytest.raises(RequestError, match="no tokens"):
        network.encode_ids([[]], LENGTH, PAD)
    with pytest.raises(RequestError, match="not in order"):
        TextEncoder.load(CONFIG, own, device, layers=(2, 1))
