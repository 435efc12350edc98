"""Folders of Hugging Face models to GGUF files."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bert_folder
from oxibonsai import FormatError, OxiBonsaiError, RequestError, UnsupportedError, _core
from oxibonsai.architectures import bert
from oxibonsai.architectures.schema.sources import ConfigJson
from oxibonsai.checkpoint import Checkpoint
from oxibonsai.convert.language_model import convert
from oxibonsai.models import read_config


def tensor_name(parameter: str) -> str | None:
    """What a file calls a parameter of the folder; None where it leaves the parameter out."""
    config = {**bert_folder.CONFIG, "num_hidden_layers": 12}
    c = bert.BERT.read_config_json(ConfigJson(config, Path("config.json")))
    entry = bert.BERT.table(c, "folder").entry_of(bert.BERT.spelled(parameter))
    return None if entry is None else entry.tensors[0]


def read(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Keys and tensors, by the public package."""
    reader = gguf.GGUFReader(path)
    return {k: f.contents() for k, f in reader.fields.items()}, {t.name: t for t in reader.tensors}


def test_keys_and_names_are_those_of_llama_cpp(tmp_path: Path) -> None:
    folder = bert_folder.write(tmp_path / "model")
    convert(folder, tmp_path / "m.gguf", name="tiny", dtype="f16")
    keys, tensors = read(tmp_path / "m.gguf")
    expected = {
        "general.architecture": "bert", "general.name": "tiny", "general.file_type": 1,
        "bert.block_count": 2, "bert.context_length": 96, "bert.embedding_length": 128,
        "bert.feed_forward_length": 256, "bert.attention.head_count": 4,
        "bert.attention.causal": False, "bert.pooling_type": 1,
        "tokenizer.ggml.model": "bert", "tokenizer.ggml.token_type_count": 2,
        "tokenizer.ggml.unknown_token_id": 1, "tokenizer.ggml.cls_token_id": 2,
        "tokenizer.ggml.seperator_token_id": 3, "tokenizer.ggml.padding_token_id": 0,
        "tokenizer.ggml.mask_token_id": 4,
    }  # fmt: skip
    assert {k: keys[k] for k in expected} == expected
    assert keys["bert.attention.layer_norm_epsilon"] == pytest.approx(1e-12)
    assert keys["tokenizer.ggml.tokens"][5:15:4] == ["\u2581hello", "\u2581tea", "able"]
    assert keys["tokenizer.ggml.tokens"][-1] == "[PAD300]"
    names = {n.removesuffix(".weight").removesuffix(".bias") for n in tensors}
    parts = ["attn_q", "attn_k", "attn_v", "attn_output", "attn_output_norm"]
    parts += ["ffn_up", "ffn_down", "layer_output_norm"]
    assert names == {"token_embd", "token_types", "position_embd", "token_embd_norm"} | {
        f"blk.{i}.{p}" for i in range(2) for p in parts
    }


@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_matrices_have_the_type_and_all_values_are_there(dtype: str, tmp_path: Path) -> None:
    convert(bert_folder.write(tmp_path / "model"), tmp_path / "m.gguf", dtype=dtype)
    _, tensors = read(tmp_path / "m.gguf")
    small = {"position_embd.weight", "token_types.weight"}
    for parameter, values in bert_folder.parameters().items():
        name = tensor_name(parameter)
        if parameter.startswith("pooler."):  # of a classifier's head, which this model lacks
            assert name not in tensors
            continue
        half = dtype == "f16" and values.ndim == 2 and name not in small
        assert tensors[name].tensor_type.name == ("F16" if half else "F32")
        assert np.array_equal(tensors[name].data, values.astype(np.float16 if half else np.float32))


def test_progress_is_told_up_to_the_end(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    folder = bert_folder.write(tmp_path / "model")
    convert(folder, tmp_path / "m.gguf", progress=lambda done, total: told.append((done, total)))
    assert told[-1][0] == told[-1][1] > 0
    assert told == sorted(told)


def test_shards_and_a_prefix_of_names_give_the_same_file(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    whole = bert_folder.write(tmp_path / "whole")
    cut = bert_folder.write(tmp_path / "cut")
    (cut / "model.safetensors").unlink()
    weights = {f"bert.{n}": v for n, v in bert_folder.parameters().items()}
    names = sorted(weights)
    shards = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for file, held in shards.items():
        save_file({n: weights[n] for n in held}, cut / file)
    index = {"weight_map": {n: file for file, held in shards.items() for n in held}}
    (cut / "model.safetensors.index.json").write_text(json.dumps(index))
    for folder in (whole, cut):
        convert(folder, tmp_path / f"{folder.name}.gguf", name="same")
    assert (tmp_path / "whole.gguf").read_bytes() == (tmp_path / "cut.gguf").read_bytes()


@pytest.mark.hf
def test_bfloat16_is_widened(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from safetensors.torch import save_file

    folder = bert_folder.write(tmp_path / "model")
    weights = {
        n: torch.from_numpy(v).to(torch.bfloat16) for n, v in bert_folder.parameters().items()
    }
    save_file(weights, folder / "model.safetensors")
    convert(folder, tmp_path / "m.gguf", dtype="f32")
    _, tensors = read(tmp_path / "m.gguf")
    name = "encoder.layer.1.output.dense.weight"
    truth = weights[name].float().numpy()
    assert np.array_equal(tensors["blk.1.ffn_down.weight"].data, truth)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, "cls"),
        ({"pooling_mode": "lasttoken"}, "last"),
        ({"pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": False}, "mean"),
    ],
)
def test_pooling_is_kept(config: dict[str, Any], expected: str, tmp_path: Path) -> None:
    convert(bert_folder.write(tmp_path / "model", pooling=config), tmp_path / "m.gguf")
    assert read_config(Checkpoint(tmp_path / "m.gguf")).pooling == expected


def test_a_folder_without_modules_leaves_pooling_open(tmp_path: Path) -> None:
    folder = bert_folder.write(tmp_path / "model")
    (folder / "modules.json").unlink()
    convert(folder, tmp_path / "m.gguf")
    assert "bert.pooling_type" not in read(tmp_path / "m.gguf")[0]
    assert read_config(Checkpoint(tmp_path / "m.gguf")).pooling == "mean"


_DENSE = [*bert_folder.MODULES, {"path": "3_Dense", "type": "sentence_transformers.models.Dense"}]
_BPE = {"model": {"type": "BPE", "vocab": {}}}


@pytest.mark.parametrize(
    ("changes", "error", "sentence"),
    [
        (
            {"config": {"model_type": "bonsai"}},
            UnsupportedError,
            "type 'bonsai'; convert knows afmoe, ",
        ),
        ({"config": {"hidden_act": "relu"}}, UnsupportedError, "hidden_act is 'relu'"),
        ({"config": {"is_decoder": True}}, UnsupportedError, "is_decoder is True"),
        ({"config": {"num_hidden_layers": "6"}}, FormatError, "num_hidden_layers is '6'"),
        ({"config": {"num_hidden_layers": 2**31 - 1}}, FormatError, "count up to 9999"),
        ({"config": {"vocab_size": 5}}, FormatError, "'hello' has id 5, outside"),
        ({"modules": _DENSE}, UnsupportedError, "module Dense"),
        ({"modules": [{"idx": 0}]}, FormatError, "modules.json"),
        ({"pooling": {"pooling_mode_max_tokens": True}}, UnsupportedError, "max_tokens"),
        ({"tokenizer": _BPE}, FormatError, "no vocab or no merges"),
        ({"tokenizer": {"normalizer": {"type": "NFC"}}}, UnsupportedError, "normaliser"),
        ({"weights": {"wte.weight": np.zeros((2, 2), np.float32)}}, UnsupportedError, "wte.weight"),
        (
            {"weights": {"embeddings.LayerNorm.bias": np.zeros(2, np.int8)}},
            UnsupportedError,
            "type I8",
        ),
    ],
)
def test_what_cannot_be_converted_is_said_and_nothing_is_written(
    changes: dict[str, Any], error: type[Exception], sentence: str, tmp_path: Path
) -> None:
    folder = bert_folder.write(tmp_path / "model", **changes)
    with pytest.raises(error, match=sentence):
        convert(folder, tmp_path / "m.gguf")
    assert [p.name for p in tmp_path.iterdir()] == ["model"]


_READ = ["config.json", "tokenizer.json", "special_tokens_map.json"]


@pytest.mark.parametrize("name", _READ)
@pytest.mark.parametrize("damage", [None, "{", "[]"])
def test_a_missing_or_damaged_file_is_named(name: str, damage: str | None, tmp_path: Path) -> None:
    folder = bert_folder.write(tmp_path / "model")
    (folder / name).unlink() if damage is None else (folder / name).write_text(damage)
    with pytest.raises(FormatError, match=name):
        convert(folder, tmp_path / "m.gguf")


_VALUES = st.sampled_from(
    [None, True, -1, 0, 7, 1e30, 2**40, "", "[CLS]", "x", [], [[]], {}, {"a": 1}]
)


def _leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where every value of a JSON document lies, containers too."""
    if not isinstance(value, dict | list):
        return [path]
    inside = value.items() if isinstance(value, dict) else enumerate(value)
    return [path, *(p for k, v in inside for p in _leaves(v, (*path, k)))]


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bert_folder.write(tmp_path_factory.mktemp("fuzzed") / "model")


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_any_value_anywhere_is_converted_or_refused(data: st.DataObject, fuzzed: Path) -> None:
    files = ["config.json", "tokenizer.json", "special_tokens_map.json"]
    name = data.draw(st.sampled_from([*files, "modules.json", "1_Pooling/config.json"]))
    file = fuzzed / name
    before = file.read_text()
    document = {"": json.loads(before)}
    *path, last = data.draw(st.sampled_from(_leaves(document)[1:]))
    inner: Any = document
    for key in path:
        inner = inner[key]
    inner[last] = data.draw(_VALUES)
    try:
        file.write_text(json.dumps(document[""]))
        with suppress(OxiBonsaiError):
            convert(fuzzed, fuzzed.parent / "m.gguf")
            _core.GgufFile(str(fuzzed.parent / "m.gguf"))
    finally:
        file.write_text(before)


def test_special_tokens_may_be_in_the_tokenizers_configuration(tmp_path: Path) -> None:
    folder = bert_folder.write(tmp_path / "model")
    convert(folder, tmp_path / "map.gguf")
    (folder / "special_tokens_map.json").rename(folder / "tokenizer_config.json")
    convert(folder, tmp_path / "config.gguf")
    assert (tmp_path / "map.gguf").read_bytes() == (tmp_path / "config.gguf").read_bytes()


@pytest.mark.hf
def test_a_folder_that_transformers_saves_gives_the_same_tensors(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="needs transformers and torch")
    folder = bert_folder.write(tmp_path / "model")
    transformers.BertModel.from_pretrained(folder).save_pretrained(tmp_path / "saved")
    transformers.AutoTokenizer.from_pretrained(folder).save_pretrained(tmp_path / "saved")
    convert(folder, tmp_path / "m.gguf")
    convert(tmp_path / "saved", tmp_path / "saved.gguf")
    (keys, tensors), (saved_keys, saved) = (read(tmp_path / f"{n}.gguf") for n in ("m", "saved"))
    for key in ("tokens", "token_type", "cls_token_id", "normalizer.lowercase"):
        assert saved_keys[f"tokenizer.ggml.{key}"] == keys[f"tokenizer.ggml.{key}"]
    assert saved.keys() == tensors.keys()
    assert all(np.array_equal(saved[n].data, t.data) for n, t in tensors.items())


def test_old_names_of_norms_are_known() -> None:
    assert tensor_name("bert.embeddings.LayerNorm.gamma") == "token_embd_norm.weight"
    assert (
        tensor_name("bert.encoder.layer.11.output.LayerNorm.beta")
        == "blk.11.layer_output_norm.bias"
    )
    with pytest.raises(UnsupportedError, match="delta"):
        tensor_name("bert.encoder.layer.0.output.LayerNorm.delta")


@pytest.mark.parametrize("kept", [0, 7, 100, -1])
def test_damaged_safetensors_are_named(kept: int, tmp_path: Path) -> None:
    folder = bert_folder.write(tmp_path / "model")
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:kept])
    with pytest.raises(FormatError, match=r"model\.safetensors"):
        convert(folder, tmp_path / "m.gguf")


def test_values_too_large_for_f16_are_said(tmp_path: Path) -> None:
    weights = bert_folder.parameters()
    weights["encoder.layer.0.output.dense.weight"][3, 5] = 70000.0
    folder = bert_folder.write(tmp_path / "model", weights=dict(weights))
    with pytest.raises(FormatError, match="too large for F16"):
        convert(folder, tmp_path / "m.gguf", dtype="f16")
    convert(folder, tmp_path / "m.gguf", dtype="f32")
    with pytest.raises(RequestError, match="no type 'q1'"):
        convert(folder, tmp_path / "m.gguf", dtype="q1")
