"""Settings that a model or a machine can't have as they are: cut or left out, with a warning."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

import tiny_model
from oxibonsai import RequestError, load
from oxibonsai.engine.placement import device_for_layers


def test_a_context_above_the_models_is_cut_with_a_warning(tiny_path: Path) -> None:
    said = f"ctx_size is 100000, and this model takes {tiny_model.CONTEXT} positions at most"
    with pytest.warns(UserWarning, match=said), load(tiny_path, ctx_size=100_000) as engine:
        assert engine.ctx_size == tiny_model.CONTEXT
    with pytest.raises(RequestError, match="ctx_size is 0; this model takes 1 to"):
        load(tiny_path, ctx_size=0)


def test_layers_for_a_gpu_without_a_device_mean_any_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OXIBONSAI_DEVICE", raising=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert device_for_layers(None, 99) == ("auto", 99)
        assert device_for_layers("cuda:1", 99) == ("cuda:1", 99)
        assert device_for_layers(None, None) == (None, None)
        assert device_for_layers("cpu", 0) == ("cpu", 0)


@pytest.mark.parametrize(("device", "variable"), [("cpu", ""), (None, "cpu")])
def test_layers_for_a_gpu_on_a_named_cpu_are_left_out_with_a_warning(
    monkeypatch: pytest.MonkeyPatch, device: str | None, variable: str
) -> None:
    monkeypatch.setenv("OXIBONSAI_DEVICE", variable)
    with pytest.warns(UserWarning, match="99 layers for a GPU have no effect"):
        assert device_for_layers(device, 99) == (device, None)
