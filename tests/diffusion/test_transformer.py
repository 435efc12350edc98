"""The transformer against diffusers in float32, on live random weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

pytest.importorskip("diffusers")

import torch
from closeness import distance, near
from diffusers_models import TRANSFORMER, tensors, transformer

from oxibonsai import _core
from oxibonsai.diffusion import transformer as module
from oxibonsai.diffusion.parameters import ArrayTensors
from oxibonsai.diffusion.transformer import ImageTransformer
from oxibonsai.errors import FormatError, RequestError, UnsupportedError
from oxibonsai.graph import AxialRope, Builder, Value

Floats = npt.NDArray[np.float32]
HEIGHT, WIDTH, TEXT = 12, 9, 140
TIME = 958.0853882


@pytest.fixture(scope="module")
def reference() -> Any:
    return transformer()


@pytest.fixture(scope="module")
def network(reference: Any) -> ImageTransformer:
    return load(tensors(reference))


def load(parameters: dict[str, Any], threads: int = 2, tier: str = "") -> ImageTransformer:
    device = _core.CpuDevice(threads, tier)
    return ImageTransformer.load(TRANSFORMER, ArrayTensors(parameters), device)


def image_ids() -> npt.NDArray[np.int32]:
    ids = np.zeros((HEIGHT * WIDTH, 4), np.int32)
    ids[:, 1], ids[:, 2] = np.divmod(np.arange(HEIGHT * WIDTH), WIDTH)
    return ids


def inputs(seed: int, pictures: int = 1) -> tuple[Floats, Floats]:
    random = np.random.default_rng(seed)
    latents = random.standard_normal((pictures, HEIGHT * WIDTH, 32), dtype=np.float32)
    return latents, random.standard_normal((pictures, TEXT, 192), dtype=np.float32)


def expected(reference: Any, latents: Floats, text: Floats, ids: Any = None) -> Floats:
    text_ids = np.zeros((TEXT, 4), np.int32)
    text_ids[:, 3] = np.arange(TEXT)
    out = reference(
        hidden_states=torch.from_numpy(latents),
        encoder_hidden_states=torch.from_numpy(text),
        timestep=torch.full((len(latents),), TIME / 1000),
        img_ids=torch.from_numpy(image_ids() if ids is None else ids)[None],
        txt_ids=torch.from_numpy(text_ids)[None],
        guidance=None,
        return_dict=False,
    )[0]
    return np.asarray(out.numpy(), np.float32)


def velocity(network: ImageTransformer, latents: Floats, text: Floats) -> Floats:
    return network.velocity(latents, network.embed_text(text), TIME, image_ids())


def test_the_velocity_is_that_of_diffusers(reference: Any, network: ImageTransformer) -> None:
    latents, text = inputs(1, pictures=2)
    got = velocity(network, latents, text)
    assert near(got, expected(reference, latents, text))


def test_tokens_of_a_reference_picture_have_a_time_of_their_own(
    reference: Any, network: ImageTransformer
) -> None:
    latents, text = inputs(2)
    ids = image_ids()
    ids[40:, 0] = 10
    got = network.velocity(latents, network.embed_text(text), TIME, ids)
    assert near(got, expected(reference, latents, text, ids))
    assert not near(got, velocity(network, latents, text))


# What each block gives, by the name of diffusers' module.
BLOCKS = [f"transformer_blocks.{i}" for i in range(2)]
BLOCKS += [f"single_transformer_blocks.{i}" for i in range(3)]


def test_each_block_is_that_of_diffusers(reference: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made: dict[str, list[Value]] = {}

    class Tapped(module._Step):
        def _double(self, name: str, *rest: Any) -> Any:
            made[name] = list(super()._double(name, *rest))
            return tuple(made[name])

        def _single(self, name: str, *rest: Any) -> Value:
            made[name] = [super()._single(name, *rest)]
            return made[name][0]

        def describe(self) -> _core.Graph:
            graph = super().describe()
            for name, values in made.items():
                for i, value in enumerate(values):
                    graph.set_output(f"{name}.{i}", value)
            return graph

    monkeypatch.setattr(module, "_Step", Tapped)
    network = load(tensors(reference))
    latents, text = inputs(3)
    want: dict[str, Any] = {}
    hooks = [
        reference.get_submodule(name).register_forward_hook(
            lambda _, __, out, name=name: want.__setitem__(name, out)
        )
        for name in BLOCKS
    ]
    expected(reference, latents, text)
    for hook in hooks:
        hook.remove()
    got = taps(network, latents, network.embed_text(text))
    for name in BLOCKS:
        outs = want[name] if isinstance(want[name], tuple) else (want[name],)
        for i, out in enumerate(outs):
            assert near(got[f"{name}.{i}"], out[0].numpy()), f"{name}.{i}"


def taps(network: ImageTransformer, latents: Floats, context: Floats) -> dict[str, Floats]:
    text_ids = np.zeros((TEXT, 4), np.int32)
    text_ids[:, 3] = np.arange(TEXT)
    batch = network.step_batch(
        latents[0], context[0], TIME, np.concatenate([text_ids, image_ids()])
    )
    return network._step.run(batch)


# Mistakes that would draw a worse picture: the gate must see each of them.


def wrong_theta(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        module, "AxialRope", lambda dims, _, interleaved: AxialRope(dims, 10000.0, interleaved)
    )


def halves_rotated(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(module, "AxialRope", lambda dims, theta, interleaved: AxialRope(dims, theta))


def sines_first(patch: pytest.MonkeyPatch) -> None:
    def sinusoids(self: Builder, x: Value, frequencies: Any) -> Value:
        out = self.graph.sinusoids(x, frequencies)
        half = out.cols // 2
        parts = self.select_columns(out, half, half), self.select_columns(out, 0, half)
        return self.join_heads(*parts, 1)

    patch.setattr(Builder, "sinusoids", sinusoids)


def halves_of_the_gate_swapped(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Builder, "swiglu", lambda self, gate, up: self.graph.gated(up, gate, "silu"))


def no_activation_before_modulations(patch: pytest.MonkeyPatch) -> None:
    silu = Builder.silu
    calls: list[int] = []

    def second_is_identity(self: Builder, x: Value) -> Value:
        calls.append(1)
        return x if len(calls) % 2 == 0 else silu(self, x)

    patch.setattr(Builder, "silu", second_is_identity)


def scale_and_shift_of_the_last_norm_swapped(patch: pytest.MonkeyPatch) -> None:
    modulations = module._Step._modulations

    def swapped(self: module._Step) -> Any:
        image, text, single, (scale, shift) = modulations(self)
        return image, text, single, (shift, scale)

    patch.setattr(module._Step, "_modulations", swapped)


def modulations_of_text_and_picture_exchanged(patch: pytest.MonkeyPatch) -> None:
    modulations = module._Step._modulations

    def exchanged(self: module._Step) -> Any:
        image, text, single, last = modulations(self)
        return text, image, single, last

    patch.setattr(module._Step, "_modulations", exchanged)


def _swap_shift_and_scale(patch: pytest.MonkeyPatch, which: str) -> None:
    modulations = module._Step._modulations

    def swapped(self: module._Step) -> Any:
        image, text, single, last = modulations(self)
        swap = [module._Modulation(m.scale, m.shift, m.gate) for m in [*image, *text, single]]
        if which == "single":
            return image, text, swap[4], last
        return swap[:2], swap[2:4], single, last

    patch.setattr(module._Step, "_modulations", swapped)


def shift_and_scale_of_single_blocks_swapped(patch: pytest.MonkeyPatch) -> None:
    _swap_shift_and_scale(patch, "single")


def shift_and_scale_of_double_blocks_swapped(patch: pytest.MonkeyPatch) -> None:
    _swap_shift_and_scale(patch, "double")


def gains_of_heads_ignored(patch: pytest.MonkeyPatch) -> None:
    def norm(self: module._Step, x: Value, name: str) -> Value:
        self.p.array(f"{name}.weight", self.c.attention_head_dim)
        return self.g.head_norm(x, np.ones(self.c.attention_head_dim, np.float32), self.c.eps)

    patch.setattr(module._Step, "_head_norm", norm)


def picture_before_text(patch: pytest.MonkeyPatch) -> None:
    join, split = Builder.join_rows, Builder.split_rows
    patch.setattr(Builder, "join_rows", lambda self, a, b: join(self, b, a))

    def swapped(self: Builder, x: Value, first: Value, last: Value) -> tuple[Value, Value]:
        b, a = split(self, x, last, first)
        return a, b

    patch.setattr(Builder, "split_rows", swapped)


def last_block_left_out(patch: pytest.MonkeyPatch) -> None:
    single = module._Step._single

    def all_but_last(self: module._Step, name: str, x: Value, m: Any) -> Value:
        made = single(self, name, x, m)
        return x if name.endswith(".2") else made

    patch.setattr(module._Step, "_single", all_but_last)


DESCRIBED_WRONG = [
    wrong_theta,
    halves_rotated,
    sines_first,
    halves_of_the_gate_swapped,
    no_activation_before_modulations,
    scale_and_shift_of_the_last_norm_swapped,
    modulations_of_text_and_picture_exchanged,
    shift_and_scale_of_single_blocks_swapped,
    shift_and_scale_of_double_blocks_swapped,
    gains_of_heads_ignored,
    picture_before_text,
    last_block_left_out,
]


@pytest.mark.parametrize("plant", DESCRIBED_WRONG, ids=lambda f: f.__name__)
def test_the_gate_sees_a_wrong_network(
    reference: Any,
    network: ImageTransformer,
    monkeypatch: pytest.MonkeyPatch,
    plant: Callable[[pytest.MonkeyPatch], None],
) -> None:
    plant(monkeypatch)
    latents, text = inputs(1)
    right = velocity(network, latents, text)
    wrong = velocity(load(tensors(reference)), latents, text)
    assert not near(wrong, right), distance(wrong, right)


def called_wrong(network: ImageTransformer, mistake: str) -> Floats:
    latents, text = inputs(1)
    image, time, rows = image_ids(), TIME, None
    if mistake == "no prompt":
        text = np.zeros_like(text)
    elif mistake == "hidden states in reverse order":
        text = np.concatenate(np.split(text, 3, axis=2)[::-1], axis=2)
    elif mistake == "no positions in the picture":
        image[:] = 0
    elif mistake == "rows and columns exchanged":
        image = image[:, [0, 2, 1, 3]]
    elif mistake == "no positions in the text":
        rows = np.zeros((TEXT, 4), np.int32)
    elif mistake == "text on the time axis":
        rows = np.zeros((TEXT, 4), np.int32)
        rows[:, 0] = np.arange(TEXT)
    elif mistake == "padding left out":
        text = text[:, :100]
    elif mistake == "time rounded to bfloat16":
        time = 960.0
    elif mistake == "time from 0 to 1":
        time /= 1000
    return network.velocity(latents, network.embed_text(text), time, image, rows)


@pytest.mark.parametrize(
    "mistake",
    [
        "no prompt",
        "hidden states in reverse order",
        "no positions in the picture",
        "rows and columns exchanged",
        "no positions in the text",
        "text on the time axis",
        "padding left out",
        "time rounded to bfloat16",
        "time from 0 to 1",
    ],
)
def test_the_gate_sees_a_wrong_call(network: ImageTransformer, mistake: str) -> None:
    right = called_wrong(network, "none")
    wrong = called_wrong(network, mistake)
    assert not near(wrong, right), distance(wrong, right)


def test_the_epsilon_of_head_norms_counts(reference: Any) -> None:
    other = ImageTransformer.load(
        {**TRANSFORMER, "eps": 1e-3}, ArrayTensors(tensors(reference)), _core.CpuDevice(1)
    )
    latents, text = inputs(1)
    assert not near(velocity(other, latents, text), expected(reference, latents, text))


def packed(reference: Any, quant_type: str) -> tuple[dict[str, Any], dict[str, Floats]]:
    """The blocks' matrices in blocks of a type, and what these decode to."""
    stored: dict[str, Any] = tensors(reference)
    decoded = dict(stored)
    for name, values in tensors(reference).items():
        if "blocks" in name and values.ndim == 2:
            blocks = _core.encode(values, quant_type)
            stored[name] = _core.Weight.from_blocks(name, quant_type, blocks, values.shape[1])
            decoded[name] = np.asarray(_core.decode(quant_type, blocks)).reshape(values.shape)
    return stored, decoded


@pytest.mark.parametrize("quant_type", ["TQ2_0_g128", "Q1_0", "Q4_0"])
def test_packed_matrices_differ_by_the_rounding_of_activations_alone(
    reference: Any, quant_type: str
) -> None:
    stored, decoded = packed(reference, quant_type)
    latents, text = inputs(4)
    got = velocity(load(stored), latents, text)
    want = velocity(load(decoded), latents, text)
    cosine, relative = distance(got, want)
    # Activations have 8 bits; with random weights no layer is more tolerant than another.
    assert 0.0 < relative < 0.08
    assert cosine < 3e-3


TIERS = _core.cpu.tiers()


@pytest.mark.parametrize("quant_type", ["F32", "TQ2_0_g128"])
def test_every_tier_gives_the_same_bytes_on_any_number_of_threads(
    reference: Any, quant_type: str
) -> None:
    stored = tensors(reference) if quant_type == "F32" else packed(reference, quant_type)[0]
    latents, text = inputs(5, pictures=2)
    want = velocity(load(stored, 1, TIERS[-1]), latents, text)
    for tier, threads in [*((tier, 2) for tier in TIERS), (TIERS[-1], 3)]:
        got = velocity(load(stored, threads, tier), latents, text)
        np.testing.assert_array_equal(got, want, err_msg=f"{tier}, {threads} threads")
    alone = velocity(load(stored), latents[1:], text[1:])
    np.testing.assert_array_equal(alone, want[1:])


def test_what_does_not_fit_is_named(reference: Any, network: ImageTransformer) -> None:
    device = _core.CpuDevice(1)
    parameters = tensors(reference)
    with pytest.raises(FormatError, match=r"lacks the tensor proj_out\.weight"):
        load({n: t for n, t in parameters.items() if n != "proj_out.weight"})
    with pytest.raises(FormatError, match=r"x_embedder\.weight has shape"):
        load({**parameters, "x_embedder.weight": np.zeros((128, 33), np.float32)})
    with pytest.raises(UnsupportedError, match="other, which this version does not use"):
        load({**parameters, "other": np.zeros(3, np.float32)})
    norm = "transformer_blocks.0.attn.norm_q.weight"
    with pytest.raises(FormatError, match="not finite"):
        load({**parameters, norm: np.full(32, np.nan, np.float32)})
    for key, value in (("num_layers", 0), ("axes_dims_rope", (8, 8)), ("in_channels", None)):
        with pytest.raises(FormatError):
            ImageTransformer.load({**TRANSFORMER, key: value}, ArrayTensors(parameters), device)
    for key, value in (("patch_size", 2), ("guidance_embeds", True)):
        with pytest.raises(UnsupportedError, match=key):
            ImageTransformer.load({**TRANSFORMER, key: value}, ArrayTensors(parameters), device)
    latents, text = inputs(1)
    context = network.embed_text(text)
    with pytest.raises(RequestError, match="image_ids"):
        network.velocity(latents, context, TIME, image_ids()[1:])
    with pytest.raises(RequestError, match="latents of shape"):
        network.velocity(latents[..., 1:], context, TIME, image_ids())
    with pytest.raises(RequestError, match="not finite"):
        network.velocity(latents * np.inf, context, TIME, image_ids())
    with pytest.raises(RequestError, match="as many texts"):
        network.velocity(np.concatenate([latents, latents]), context, TIME, image_ids())
