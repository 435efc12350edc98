"""Bonsai 2 in every form that it is published in: what transformers says, and the same bytes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import bonsai2_models as b2
import numpy as np
import pytest

import make_random_bonsai as maker
import oxibonsai
from oxibonsai import FormatError, OxiBonsaiError, UnsupportedError, _core
from oxibonsai.convert.language_model import convert

pytest.importorskip("torch", reason="needs transformers and torch")
pytest.importorskip("transformers", reason="needs transformers and torch")
pytest.importorskip("gguf", reason="gguf (extra `bench` or `test`) is not installed")

pytestmark = pytest.mark.hf

SHAPES = [
    pytest.param("2B", None, id="2B"),
    pytest.param("2B", False, id="2B-untied", marks=pytest.mark.release),
    pytest.param("4B", None, id="4B", marks=pytest.mark.release),
    pytest.param("9B", None, id="9B", marks=pytest.mark.release),
    pytest.param("27B", None, id="27B", marks=pytest.mark.release),
]


@pytest.fixture(autouse=True)
def two_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every second layer attends, and the vocabulary is small."""
    monkeypatch.setattr(maker, "INTERVAL", 2)
    monkeypatch.setattr(maker, "HYBRID_ROWS", b2.ROWS)


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> b2.Bonsai2:
    return b2.make_small(tmp_path, monkeypatch)


def logits_of(path: Path) -> b2.Floats:
    return oxibonsai.load(path, kv_type="f32", parity="off", ctx_size=64).logits(b2.IDS)


def relative_distance(found: b2.Floats, truth: b2.Floats) -> float:
    return float(np.linalg.norm(found - truth) / np.linalg.norm(truth))


@pytest.mark.long("runs models of published width in torch")
@pytest.mark.parametrize(("size", "tied"), SHAPES)
def test_logits_are_those_of_transformers_on_the_weights_without_rotation(
    size: str, tied: bool | None, tmp_path: Path
) -> None:
    model = b2.make(tmp_path, size, tied=tied)
    truth = b2.reference_logits(model)
    convert(b2.write_folded(model, tmp_path / "folded"), tmp_path / "floats.gguf", dtype="f32")
    assert relative_distance(logits_of(tmp_path / "floats.gguf"), truth) <= 2e-3
    # With ternary weights, activations are rounded to int8.
    found = logits_of(model.path)
    cosine = np.vdot(found, truth) / np.linalg.norm(found) / np.linalg.norm(truth)
    assert 1 - cosine <= 2e-3


@pytest.mark.parametrize(("size", "tied"), SHAPES)
def test_every_form_has_the_same_codes_scales_and_logits(
    size: str, tied: bool | None, tmp_path: Path
) -> None:
    model = b2.make(tmp_path, size, tied=tied)
    convert(b2.write_pack(model, tmp_path / "pack"), tmp_path / "pack.gguf")
    convert(b2.write_folded(model, tmp_path / "folded"), tmp_path / "folded.gguf", dtype="pq2_0")
    for name in ("pack.gguf", "folded.gguf"):
        file = _core.GgufFile(str(tmp_path / name))
        for wanted in model.file.tensors:
            found = file.tensor(wanted.name)
            assert (found.quant_type, found.shape) == (wanted.quant_type, wanted.shape)
            same = model.file.tensor_bytes(wanted.name).tobytes()
            assert file.tensor_bytes(wanted.name).tobytes() == same, wanted.name
        for key in ("version", "block_size", "sign_widths", "sign_values", "gdn_v_grouped"):
            a, b = (np.asarray(f.get(f"prism.hadamard.{key}")) for f in (file, model.file))
            assert np.array_equal(a, b), key
    logits = logits_of(model.path)
    b2.as_base_three(model, tmp_path / "ptq.gguf")
    for name in ("pack.gguf", "folded.gguf", "ptq.gguf"):
        assert (logits_of(tmp_path / name) == logits).all(), name


def test_a_pack_becomes_base_3_with_the_same_scales(small: b2.Bonsai2, tmp_path: Path) -> None:
    wanted = _core.GgufFile(str(b2.as_base_three(small, tmp_path / "wanted.gguf")))
    convert(b2.write_pack(small, tmp_path / "pack"), tmp_path / "found.gguf", dtype="ptq1_0")
    found = _core.GgufFile(str(tmp_path / "found.gguf"))
    for name in small.rotated:
        assert found.tensor(name).quant_type == "PTQ1_0"
        assert (found.tensor_bytes(name) == wanted.tensor_bytes(name)).all()


def test_a_scale_is_kept_where_all_weights_of_a_group_are_zero(
    small: b2.Bonsai2, tmp_path: Path
) -> None:
    name = "blk.0.ffn_up.weight"
    blocks = np.array(small.file.tensor_bytes(name)).reshape(-1, 34)
    blocks[3, 2:] = 0b01010101  # code 1, which is zero, in every field
    b2.gguf_copy.copy(small.path, tmp_path / "zeros.gguf", tensors={name: (142, blocks)})
    model = b2.Bonsai2(tmp_path / "zeros.gguf", small.size, small.layers)
    convert(b2.write_pack(model, tmp_path / "pack"), tmp_path / "m.gguf")
    assert (_core.GgufFile(str(tmp_path / "m.gguf")).tensor_bytes(name) == blocks.ravel()).all()


def test_a_pack_and_a_folded_checkpoint_open_as_folders(small: b2.Bonsai2, tmp_path: Path) -> None:
    for write in (b2.write_pack, b2.write_folded):
        folder = write(small, tmp_path / write.__name__)
        assert np.isfinite(logits_of(folder)).all()
    assert (logits_of(tmp_path / "write_pack") == logits_of(small.path)).all()


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"schema_version": 3}, UnsupportedError, "schema_version is 3; known is 2"),
        ({"gdn_activation_layout": "tiled"}, UnsupportedError, "gdn_activation_layout is 'tiled'"),
        ({"quantization": {"bits": 4}}, UnsupportedError, "quantization is {'bits': 4}"),
        ({"modules": None}, FormatError, "has no list of modules"),
        ({"modules": []}, FormatError, "no block that is the same for all"),
    ],
)
def test_a_pack_of_another_kind_is_refused_by_name(
    changes: dict[str, Any],
    error: type[OxiBonsaiError],
    message: str,
    small: b2.Bonsai2,
    tmp_path: Path,
) -> None:
    folder = b2.write_pack(small, tmp_path / "pack", **changes)
    with pytest.raises(error, match=message):
        convert(folder, tmp_path / "m.gguf")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m | {"block": 128}, "no block that is the same for all"),
        (lambda m: m | {"path": "model.layers.9.mlp.up_proj"}, "lacks the weight or the signs of"),
        (lambda m: m | {"dtype": "bfloat16"}, "has other fields than are known"),
    ],
)
def test_a_pack_whose_modules_do_not_fit_is_refused(
    change: Any, message: str, small: b2.Bonsai2, tmp_path: Path
) -> None:
    folder = b2.write_pack(small, tmp_path / "pack")
    config = json.loads((folder / "config.json").read_text())
    config["modules"][1] = change(config["modules"][1])
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(OxiBonsaiError, match=message):
        convert(folder, tmp_path / "m.gguf")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"schema_version": 4}, "schema_version is 4; known are 1, 2 and 3"),
        ({"schema_version": 2}, "tied_output is True, but schema 2 says otherwise"),
        ({"tied_output": False}, "tied_output is False, but schema 3 says otherwise"),
        ({"kind": "x"}, "kind is 'x'"),
        ({"transform": {"name": "dct"}}, "name is 'dct'"),
        ({"signs": {}}, "sign_mode is explicit, but there are no signs"),
        ({"signs": {"256": [1, 2]}}, "holds a value other than -1 and 1"),
        ({"signs": {"256": [1, -1]}}, "there are 2 signs for the width 256"),
        (
            {"tensors": [{"name": "lm_head.weight", "axis": 0}]},
            "has role 'fold-before-matmul' and axis 0",
        ),
        (
            {"tensors": [{"name": "model.layers.7.mlp.up_proj.weight", "axis": -1}]},
            "layers.7.mlp.up_proj.weight is said to be rotated, but the model has none",
        ),
    ],
)
def test_a_manifest_that_does_not_hold_is_refused(
    changes: dict[str, Any], message: str, small: b2.Bonsai2, tmp_path: Path
) -> None:
    folder = b2.write_folded(small, tmp_path / "folded", **changes)
    with pytest.raises(OxiBonsaiError, match=message):
        convert(folder, tmp_path / "m.gguf", dtype="f32")


def test_schema_2_is_read_as_schema_1(tmp_path: Path) -> None:
    model = b2.make(tmp_path, "2B", tied=False)
    convert(b2.write_folded(model, tmp_path / "a", schema_version=2), tmp_path / "a.gguf")
    assert _core.GgufFile(str(tmp_path / "a.gguf")).get("prism.hadamard.version") == 1
