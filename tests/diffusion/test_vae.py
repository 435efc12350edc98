"""The autoencoder against diffusers in float32, on live random weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

pytest.importorskip("diffusers")

import torch
from closeness import distance, near
from diffusers_models import VAE, tensors, vae

from oxibonsai import _core
from oxibonsai.diffusion import vae as module
from oxibonsai.diffusion.parameters import ArrayTensors
from oxibonsai.diffusion.vae import Vae, patchify, unpatchify
from oxibonsai.errors import FormatError, RequestError, UnsupportedError
from oxibonsai.graph import Builder, Value

Floats = npt.NDArray[np.float32]
ROWS, COLS = 3, 5


@pytest.fixture(scope="module")
def reference() -> Any:
    return vae()


@pytest.fixture(scope="module")
def network(reference: Any) -> Vae:
    return load(reference)


def load(reference: Any, threads: int = 2, tier: str = "", **config: Any) -> Vae:
    device = _core.CpuDevice(threads, tier)
    return Vae.load({**VAE, **config}, ArrayTensors(tensors(reference)), device)


def latents(seed: int) -> Floats:
    return np.random.default_rng(seed).standard_normal((ROWS, COLS, 32), dtype=np.float32)


def picture(seed: int) -> Floats:
    random = np.random.default_rng(seed)
    return random.uniform(-1, 1, (16 * ROWS, 16 * COLS, 3)).astype(np.float32)


def to_torch(x: Floats) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(x.transpose(2, 0, 1)))[None]


def to_numpy(x: torch.Tensor) -> Floats:
    return np.asarray(x[0].permute(1, 2, 0).numpy(), np.float32)


def statistics(reference: Any) -> tuple[torch.Tensor, torch.Tensor]:
    mean = reference.bn.running_mean.view(1, -1, 1, 1)
    return mean, torch.sqrt(reference.bn.running_var.view(1, -1, 1, 1) + 1e-4)


def decoded(reference: Any, z: Floats) -> Floats:
    mean, deviation = statistics(reference)
    x = to_torch(z) * deviation + mean
    n, c, h, w = x.shape
    x = x.reshape(n, c // 4, 2, 2, h, w).permute(0, 1, 4, 2, 5, 3).reshape(n, c // 4, 2 * h, 2 * w)
    return to_numpy(reference.decode(x, return_dict=False)[0])


def encoded(reference: Any, x: Floats) -> Floats:
    mean, deviation = statistics(reference)
    z = reference.encode(to_torch(x)).latent_dist.mode()
    n, c, h, w = z.shape
    z = z.view(n, c, h // 2, 2, w // 2, 2).permute(0, 1, 3, 5, 2, 4)
    return to_numpy((z.reshape(n, 4 * c, h // 2, w // 2) - mean) / deviation)


def test_a_picture_is_that_of_diffusers(reference: Any, network: Vae) -> None:
    assert near(network.decode(latents(1)), decoded(reference, latents(1)))


def test_latents_are_those_of_diffusers(reference: Any, network: Vae) -> None:
    assert near(network.encode(picture(1)), encoded(reference, picture(1)))


def test_each_level_is_that_of_diffusers(reference: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    want: dict[str, torch.Tensor] = {}
    names = [f"decoder.up_blocks.{i}" for i in range(4)]
    hooks = [
        reference.get_submodule(name).register_forward_hook(
            lambda _, __, out, name=name: want.__setitem__(name, out)
        )
        for name in names
    ]
    picture = decoded(reference, latents(2))
    for hook in hooks:
        hook.remove()
    got: list[Floats] = []
    run = Vae._run

    def level_by_level(self: Vae, levels: Any, x: Floats, into: int, out: int) -> Floats:
        for level in levels[:-1]:
            batch = _core.Batch()
            batch.add_span(x.shape[0] * x.shape[1])
            batch.set_grid(x.shape[1])
            batch.set_input("x", x.reshape(-1, x.shape[2]))
            y = self._device.compile(level).run(batch)["y"]
            x = y.reshape(out * x.shape[0], out * x.shape[1], -1)
            got.append(x)
        got.append(run(self, levels[-1:], x, into, out))
        return got[-1]

    monkeypatch.setattr(Vae, "_run", level_by_level)
    load(reference).decode(latents(2))
    for name, level in zip(names[:3], got, strict=False):
        assert near(level, to_numpy(want[name])), name
    assert near(got[3], picture)


def test_patches_have_their_channels_first() -> None:
    x = np.arange(4 * 6 * 2, dtype=np.float32).reshape(4, 6, 2)
    patches = patchify(x)
    assert patches.shape == (2, 3, 8)
    assert patches[1, 2, 1 * 4 + 1 * 2 + 0] == x[3, 4, 1]
    np.testing.assert_array_equal(unpatchify(patches), x)


def test_a_decoder_alone_decodes_and_refuses_to_encode(reference: Any, network: Vae) -> None:
    own = {n: t for n, t in tensors(reference).items() if not n.startswith("encoder.")}
    alone = Vae.load(VAE, ArrayTensors(own), _core.CpuDevice(1))
    np.testing.assert_array_equal(alone.decode(latents(1)), network.decode(latents(1)))
    with pytest.raises(UnsupportedError, match="no encoder"):
        alone.encode(picture(1))


def test_every_tier_gives_the_same_bytes_in_tiles_of_any_size(reference: Any) -> None:
    """More threads have lower tiles; statistics are always those of the whole picture."""
    network = load(reference, 1, "scalar")
    want, latent = network.decode(latents(3)), network.encode(picture(3))
    tiers = _core.cpu.tiers()
    for tier, threads in [*((tier, 2) for tier in tiers), (tiers[-1], 1), (tiers[-1], 7)]:
        other = load(reference, threads, tier)
        message = f"{tier}, {threads} threads"
        np.testing.assert_array_equal(other.decode(latents(3)), want, err_msg=message)
        np.testing.assert_array_equal(other.encode(picture(3)), latent, err_msg=message)


# Mistakes that would draw a worse picture: the gate must see each of them.


def no_statistics(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(module.np, "sqrt", np.ones_like)


def variance_for_deviation(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(module.np, "sqrt", np.asarray)


def patches_transposed(patch: pytest.MonkeyPatch) -> None:
    def swapped(x: Floats) -> Floats:
        h, w, c = x.shape
        return x.reshape(h, w, c // 4, 2, 2).transpose(0, 4, 1, 3, 2).reshape(2 * h, 2 * w, c // 4)

    patch.setattr(module, "unpatchify", swapped)


def channels_last_in_patches(patch: pytest.MonkeyPatch) -> None:
    def swapped(x: Floats) -> Floats:
        h, w, c = x.shape
        return x.reshape(h, w, 2, 2, c // 4).transpose(0, 2, 1, 3, 4).reshape(2 * h, 2 * w, c // 4)

    patch.setattr(module, "unpatchify", swapped)


def no_attention(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Builder, "attend_local", lambda self, q, k, v, **_: self.scale(v, 0.0))


def no_convolution_of_latents(patch: pytest.MonkeyPatch) -> None:
    conv = module._Network.conv

    def all_but_it(self: module._Network, x: Value, name: str, **rest: Any) -> Value:
        made = conv(self, x, name, **rest)
        return x if name == "post_quant_conv" else made

    patch.setattr(module._Network, "conv", all_but_it)


def no_activations(patch: pytest.MonkeyPatch) -> None:
    conv = module._Network.conv
    patch.setattr(
        module._Network,
        "conv",
        lambda self, x, name, **rest: conv(self, x, name, **{**rest, "silu": False}),
    )


def other_groups(patch: pytest.MonkeyPatch) -> None:
    moments = Builder.group_moments
    patch.setattr(Builder, "group_moments", lambda self, x, n, eps: moments(self, x, n // 2, eps))


def zeros_on_the_wrong_side(patch: pytest.MonkeyPatch) -> None:
    conv = module._Network.conv
    patch.setattr(
        module._Network,
        "conv",
        lambda self, x, name, **rest: conv(
            self, x, name, **{**rest, "pad": 1 if rest.get("stride", 1) == 2 else None}
        ),
    )


MISTAKES = [
    no_statistics,
    variance_for_deviation,
    patches_transposed,
    channels_last_in_patches,
    no_attention,
    no_convolution_of_latents,
    no_activations,
    other_groups,
]


@pytest.mark.parametrize("plant", MISTAKES, ids=lambda f: f.__name__)
def test_the_gate_sees_a_wrong_decoder(
    reference: Any,
    network: Vae,
    monkeypatch: pytest.MonkeyPatch,
    plant: Callable[[pytest.MonkeyPatch], None],
) -> None:
    right = network.decode(latents(1))
    plant(monkeypatch)
    wrong = load(reference).decode(latents(1))
    assert not near(wrong, right), distance(wrong, right)


def test_the_gate_sees_a_wrong_encoder(
    reference: Any, network: Vae, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = network.encode(picture(1))
    zeros_on_the_wrong_side(monkeypatch)
    assert not near(load(reference).encode(picture(1)), right)


def test_tiles_with_statistics_of_their_own_would_be_seen(network: Vae) -> None:
    whole = network.decode(latents(1))
    assert not near(network.decode(latents(1)[:, :3])[:, :32], whole[:, :32])


def test_both_epsilons_count(reference: Any, network: Vae, monkeypatch: pytest.MonkeyPatch) -> None:
    want = decoded(reference, latents(1))
    other = load(reference, batch_norm_eps=1e-2).decode(latents(1))
    assert not near(other, want)
    monkeypatch.setattr(module, "_EPS", np.float32(1e-2))
    assert not near(load(reference).decode(latents(1)), want)


def test_what_does_not_fit_is_named(reference: Any, network: Vae) -> None:
    own = tensors(reference)
    device = _core.CpuDevice(1)

    def fails(error: type[Exception], match: str, changed: dict[str, Any], **config: Any) -> None:
        parameters = {n: t for n, t in {**own, **changed}.items() if t is not None}
        with pytest.raises(error, match=match):
            Vae.load({**VAE, **config}, ArrayTensors(parameters), device)

    fails(FormatError, "lacks the tensor decoder.conv_in.weight", {"decoder.conv_in.weight": None})
    fails(UnsupportedError, "other, which", {"other": np.zeros(3, np.float32)})
    nan = np.full(48, np.nan, np.float32)
    fails(FormatError, "not finite", {"decoder.conv_in.bias": nan})
    wide = np.zeros((48, 9, 3, 3), np.float32)
    flat = np.zeros(48, np.float32)
    for name in ("decoder.conv_in", "decoder.up_blocks.1.resnets.0.conv1"):
        fails(FormatError, f"{name}.weight has shape", {f"{name}.weight": flat})
    fails(FormatError, "post_quant_conv.weight has shape", {"post_quant_conv.weight": flat})
    fails(FormatError, "makes no sense", {}, patch_size=2)
    fails(FormatError, "makes no sense", {}, block_out_channels=4)
    fails(FormatError, "which 8 channels do not fit", {"decoder.conv_in.weight": wide})
    fails(FormatError, "negative", {"bn.running_var": np.full(32, -1, np.float32)})
    fails(FormatError, "no 7 groups", {}, norm_num_groups=7)
    fails(FormatError, "latent_channels", {}, latent_channels="8")
    fails(UnsupportedError, "act_fn", {}, act_fn="gelu")
    with pytest.raises(RequestError, match="latents of shape"):
        network.decode(latents(1)[..., 1:])
    with pytest.raises(RequestError, match="not finite"):
        network.decode(latents(1) * np.nan)
    with pytest.raises(RequestError, match="multiples of 16"):
        network.encode(picture(1)[:40])
