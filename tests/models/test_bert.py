"""BERT against transformers' float32 forward pass, and its own rules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import bert_folder
import gguf_copy
from oxibonsai import FormatError, RequestError, UnsupportedError, _core
from oxibonsai.checkpoint import Checkpoint
from oxibonsai.convert.language_model import convert
from oxibonsai.graph import Builder
from oxibonsai.models import Model, check_parity, load_model, read_config
from oxibonsai.models.parity import compare_ops
from oxibonsai.models.passes import EMBED

IDS: list[int] = np.random.default_rng(1).integers(0, bert_folder.ROWS, 90).tolist()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bert_folder.write(tmp_path_factory.mktemp("bert") / "model")


@pytest.fixture(scope="module", params=["f32", "f16", "Q1_0", "Q8_0"])
def path(request: pytest.FixtureRequest, folder: Path) -> Path:
    out = folder.parent / f"{request.param}.gguf"
    if request.param in ("f32", "f16"):
        convert(folder, out, dtype=request.param)
    else:
        _quantized(folder.parent / "whole.gguf", folder, out, request.param)
    return out


def _quantized(whole: Path, folder: Path, out: Path, quant_type: str) -> None:
    """The file with random blocks in place of its layers' matrices."""
    random_rows = pytest.importorskip("random_blocks").random_rows
    gguf_id = next(t["gguf_id"] for t in _core.quant_types() if t["name"] == quant_type)
    convert(folder, whole, dtype="f32")
    random = np.random.default_rng(4)
    blocks = {
        t.name: (gguf_id, random_rows(random, quant_type, *t.shape, t.shape[1] ** -0.5)[0])
        for t in _core.GgufFile(str(whole)).tensors
        if t.name.startswith("blk.") and len(t.shape) == 2
    }
    gguf_copy.copy(whole, out, tensors=blocks)


def load(path: Path, threads: int = 2) -> Model:
    return load_model(Checkpoint(path), _core.CpuDevice(threads))


def states(executable: _core.Executable, ids: list[int]) -> npt.NDArray[np.float32]:
    batch = _core.Batch()
    batch.add(ids, outputs=len(ids))
    return executable.run(batch)["hidden"]


@pytest.mark.hf
def test_float_weights_give_the_states_of_transformers(folder: Path, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="needs transformers and torch")
    import torch

    truth_model = transformers.BertModel.from_pretrained(folder, attn_implementation="eager")
    with torch.no_grad():
        truth = truth_model.eval()(torch.tensor([IDS])).last_hidden_state[0].numpy()
    convert(folder, tmp_path / "m.gguf", dtype="f32")
    model = load(tmp_path / "m.gguf")
    found = states(model.program(EMBED), IDS)
    assert truth.std(axis=0).mean() > 0.3  # states that hardly change with the text prove nothing
    assert np.abs(found - truth).max() <= 1e-5 * np.abs(truth).max()


def test_the_definition_and_any_number_of_threads_give_the_same_bytes(path: Path) -> None:
    found = set()
    for threads in (1, 3):
        model = load(path, threads)
        for device in (model.device, model.device.with_tier("scalar")):
            found.add(states(device.compile(model.graph), IDS).tobytes())
    assert len(found) == 1


def test_the_parity_check_knows_every_kernel(path: Path) -> None:
    model = load(path)
    assert compare_ops(model.graph, model.device, model.device.with_tier("scalar")) == []
    check_parity(model, "full", "f32")


def test_a_position_past_the_table_is_refused(path: Path) -> None:
    model = load(path)
    batch = _core.Batch()
    batch.add([5], first=bert_folder.CONTEXT, outputs=1)
    with pytest.raises(RequestError, match="position 96 is outside the table of 96"):
        model.program(EMBED).run(batch)


def test_a_text_sees_itself_alone(path: Path) -> None:
    model = load(path)
    texts = [IDS, IDS[:1], IDS[5:70], IDS[:64]]
    alone = [states(model.program(EMBED), ids).tobytes() for ids in texts]
    batch = _core.Batch()
    for ids in texts:
        batch.add(ids, outputs=len(ids))
    together = model.program(EMBED).run(batch)["hidden"]
    assert together.tobytes() == b"".join(alone)


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        ("bert.attention.head_count", (7, "u32"), "attention.key_length is missing"),
        ("bert.attention.causal", (True, "bool"), "attention.causal is True"),
        ("bert.pooling_type", (4, "u32"), "pooling_type is 4"),
        ("bert.attention.clamp_kqv", (1.0, "f32"), "clamp_kqv, which this version does not know"),
    ],
)
def test_what_a_file_asks_for_and_is_not_there_is_said(
    key: str, value: tuple[Any, str], sentence: str, folder: Path, tmp_path: Path
) -> None:
    convert(folder, tmp_path / "whole.gguf")
    gguf_copy.copy(tmp_path / "whole.gguf", tmp_path / "m.gguf", keys={key: value})
    with pytest.raises((UnsupportedError, FormatError), match=sentence):
        read_config(Checkpoint(tmp_path / "m.gguf"))


def test_shapes_are_checked_where_an_op_joins_the_graph(path: Path) -> None:
    builder = Builder()
    h = builder.embed(Checkpoint(path).weight("position_embd.weight"))
    with pytest.raises(RequestError, match=r"op 1 \(add_vector\): a vector has another width"):
        builder.add_vector(h, np.zeros(127, np.float32))
    with pytest.raises(RequestError, match=r"op 1 \(layer_norm\): a vector has another width"):
        builder.layer_norm(h, np.ones(128, np.float32), np.zeros(127, np.float32), 1e-5)
