"""Each family read in every direction: its config, its table of tensors, its pass."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_file import CONFIG, config_json, keys_of, through_a_file
from hypothesis import given
from hypothesis import strategies as st

from oxibonsai import _core
from oxibonsai.architectures import bert, glm, glm4moe, llama, olmo2, qwen3_reranker, qwen3vl
from oxibonsai.architectures.families import all_families
from oxibonsai.architectures.rotary import read_rope
from oxibonsai.architectures.schema.family import (
    Family,
    family_of_config_json,
    family_of_gguf,
)
from oxibonsai.architectures.schema.sources import ConfigJson
from oxibonsai.architectures.schema.tensors import Lazy
from oxibonsai.checkpoint.folder import ModelFolder
from oxibonsai.convert.families import CONVERTERS, FamilyConverter, check_shapes, converters_of
from oxibonsai.convert.language_model import model_kind
from oxibonsai.errors import FormatError, RequestError, UnsupportedError

pytest.importorskip("transformers", reason="needs transformers and torch (extra: test)")
import cases

pytestmark = pytest.mark.hf

BY_TYPE = {kind: family for family in all_families() for kind in family.model_types}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders of all cases, made when they are asked for."""

    class Folders(dict[str, Path]):
        def __missing__(self, name: str) -> Path:
            case = next(c for c in cases.ALL if c.name == name)
            self[name] = tmp_path_factory.mktemp("families") / "model"
            case.save(self[name])
            return self[name]

    return Folders()


def names(family: Family[Any]) -> set[str]:
    """What the kind of a case may be."""
    return {family.kind, family.name, family.title, *family.model_types}


KINDS = {"Mistral", "XLMRoberta", "Roberta"}.union(*map(names, all_families()))
CASES = [c for c in cases.ALL if c.kind.removesuffix("Text") in KINDS]
NAMES = [c.name for c in CASES]
# What transformers' configuration says and a GGUF file does not.
NOT_SAVED = {"olmo3-magnitude": "rope scaling"}


def read(folder: Path) -> tuple[Family[Any], Any, ModelFolder]:
    source = ModelFolder(folder)
    converter = CONVERTERS[model_kind(source)]
    if converter.variant is not None:
        converter = converter.variant(source)
    assert isinstance(converter, FamilyConverter)
    source.config = converter.config(source)
    source.parameters = converter.parameters(source)  # by the family's names
    family = converter.family
    return family, family.read_config_json(stated(source, source.config)), source


def stated(source: ModelFolder, fields: dict[str, Any]) -> ConfigJson:
    """A ``config.json`` beside a folder's parameters."""
    return ConfigJson(fields, CONFIG, lambda: source.parameters)


def test_every_family_has_a_case() -> None:
    kinds = {c.kind.removesuffix("Text") for c in CASES}
    within = [
        qwen3vl.MOE,
        glm.SEEING,
        glm4moe.SEEING,
    ]  # larger models have them, which other tests convert
    lacking = [f for f in all_families() if not kinds & names(f) and f not in within]
    # Several cases are of RoBERTa's kind, by the names of others; rerankers are told by the files beside
    # config.json (tests/convert/test_qwen3_reranker.py).
    assert lacking == [bert.ROBERTA, qwen3_reranker.FAMILY]


@pytest.mark.parametrize("name", NAMES)
def test_the_config_of_a_folder_comes_back_from_a_file_and_from_a_folder(
    name: str, folders: dict[str, Path]
) -> None:
    family, c, source = read(folders[name])
    held = through_a_file(family, c, source.parameters)
    assert through_a_file(family, held, source.parameters) == held
    if name in NOT_SAVED:
        with pytest.raises(UnsupportedError, match=NOT_SAVED[name]):
            family.write_config_json(held)
        return
    written = json.loads(json.dumps(family.write_config_json(held)))
    again = family.read_config_json(stated(source, written))
    assert through_a_file(family, again, source.parameters) == held


@pytest.mark.parametrize("name", NAMES)
def test_every_entry_leads_there_and_back(name: str, folders: dict[str, Path]) -> None:
    family, c, source = read(folders[name])
    random = np.random.default_rng(1)
    for entry in family.table(c, name).of_parameters(source.parameters):
        if entry.one_way:
            continue
        shapes = [source.parameters[n].shape for n in entry.parameters]
        values = [random.uniform(0.6, 4.0, shape).astype(np.float32) for shape in shapes]
        there = entry.forwards([Lazy(v.shape, lambda v=v: v) for v in values])  # type: ignore[misc]
        back = entry.backwards(there)
        if entry.one_way:  # then it is the file that comes back
            values, back = [lazy.read() for lazy in there], entry.forwards(back)
        for before, after in zip(values, back, strict=True):
            assert before.shape == after.shape
            difference = np.abs(after.read() - before).max()
            assert difference <= (0.0 if entry.moves else 5e-7)


def test_factors_that_a_file_has_in_its_weights_are_one_in_a_saved_folder(
    folders: dict[str, Path],
) -> None:
    family, c, source = read(folders["falcon-h1"])
    held = through_a_file(family, c, source.parameters)
    again = family.read_config_json(config_json(**family.write_config_json(held)))
    random = np.random.default_rng(1)
    values = {
        n: random.uniform(0.6, 4.0, p.shape).astype(np.float32)
        for n, p in source.parameters.items()
    }
    changed = set()
    for config in (c, again):
        for entry in family.table(config, "folder").of_parameters(source.parameters):
            (name, *_) = entry.parameters
            (made,) = entry.forwards([Lazy(v.shape, lambda v=v: v) for v in [values[name]]])  # type: ignore[misc]
            if entry.one_way and not np.array_equal(made.read(), values[name]):
                changed.add((config is c, entry.tensors[0].split(".")[-2]))
    inside = {"token_embd", "output", "attn_q", "attn_k", "attn_v", "attn_output"}
    inside |= {"ffn_gate", "ffn_down", "ssm_in", "ssm_out"}
    assert changed == {(True, part) for part in inside}


@pytest.mark.parametrize("name", NAMES)
def test_the_pass_asks_for_the_shapes_that_a_folder_has(
    name: str, folders: dict[str, Path]
) -> None:
    family, c, source = read(folders[name])
    table = family.table(c, name)
    shapes = {n: values.shape for n, values in table.from_config.items()}
    for entry in table.of_parameters(source.parameters):
        held = [Lazy(s, np.empty) for n in entry.parameters if (s := source.parameters[n].shape)]
        shapes |= {n: t.shape for n, t in zip(entry.tensors, entry.forwards(held), strict=True)}
    check_shapes(family, c, name, shapes)
    outputs = ("attn_output", "ssm_out", "time_mix_output", "ffn_down", "ffn_down_shexp")
    names = [f"blk.1.{part}.weight" for part in outputs]
    tensor = next(n for n in (*names, "enc.blk.1.ffn_down.weight") if n in shapes)
    rows, columns = shapes[tensor]
    with pytest.raises(FormatError, match=rf"{re.escape(name)}.*{tensor} has shape"):
        check_shapes(family, c, name, {**shapes, tensor: (rows + 1, columns)})
    with pytest.raises(FormatError, match=rf"{re.escape(name)} lacks .*{tensor}"):
        check_shapes(family, c, name, {n: s for n, s in shapes.items() if n != tensor})
    with pytest.raises(UnsupportedError, match="attn_stray"):
        check_shapes(family, c, name, {**shapes, "blk.0.attn_stray.weight": (4,)})


@given(st.data())
def test_a_family_s_config_json_fails_with_one_typed_error(data: st.DataObject) -> None:
    family = data.draw(st.sampled_from(all_families()))
    fields = {
        "vocab_size": 32, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64,
        "rms_norm_eps": 1e-6, "rope_theta": 1e4, "sliding_window": 8,
    }  # fmt: skip
    name = data.draw(st.sampled_from([*fields, "rope_scaling", "head_dim", "hidden_act"]))
    value = data.draw(
        st.sampled_from([None, True, -1, 0, 7, 1.5, 2**40, "", "x", [], [[]], {}, {"a": 1}])
    )
    try:
        c = family.read_config_json(config_json(**{**fields, name: value}))
        family.write_gguf(c)
    except (FormatError, UnsupportedError) as e:
        message = str(e)
    else:
        return
    # A reranker is told by its vocabulary, too.
    assert "config.json" in message or "tokenizer.json" in message


def test_every_model_type_of_a_family_is_converted_by_it() -> None:
    for family in all_families():
        whole = family.wrapper.model_types if family.wrapper else ()
        for kind in (*family.model_types, *whole):
            converter = CONVERTERS[kind]
            assert converter.architecture == family.name or converter.variant is not None


def test_of_several_families_the_first_that_owns_a_model_describes_it(
    folders: dict[str, Path],
) -> None:
    source, keys = ModelFolder(folders["llama"]), keys_of("llama", {})
    none = replace(
        llama.FAMILY, owns_gguf=lambda keys: False, owns_config_json=lambda config: False
    )
    config = config_json(**source.config)
    assert family_of_gguf([none, llama.FAMILY], keys) is llama.FAMILY
    assert family_of_config_json([none, llama.FAMILY], config) is llama.FAMILY
    converter = converters_of([none, llama.FAMILY])["llama"]
    assert converter.variant is not None
    chosen = converter.variant(source)
    assert isinstance(chosen, FamilyConverter)
    assert chosen.family is llama.FAMILY
    with pytest.raises(UnsupportedError, match=r"file\.gguf: it is of no kind"):
        family_of_gguf([none], keys)
    with pytest.raises(UnsupportedError, match=r"config\.json: it is of no kind"):
        family_of_config_json([none], config)


def test_the_config_of_a_family_that_is_saved_as_another_has_its_fields() -> None:
    held = [(f, f.saved_as) for f in all_families() if f.saved_as is not None]
    assert held
    for family, other in held:
        assert issubclass(family.config, other.config)
        assert other.kind


def test_a_weight_of_a_shape_takes_no_memory() -> None:
    weight = _core.Weight.of_shape("w", 1 << 20, 1 << 20, 4)  # 16 TiB
    assert (weight.experts, weight.rows, weight.cols) == (4, 1 << 20, 1 << 20)
    assert weight.slice(3, 9).rows == 6
    for shape in ((0, 4), (4, 0), (1 << 40, 1 << 40)):
        with pytest.raises(RequestError, match="matrix w has no shape"):
            _core.Weight.of_shape("w", *shape)


def test_a_part_of_a_head_is_refused_where_files_cannot_say_it(folders: dict[str, Path]) -> None:
    family, _, source = read(folders["qwen3"])
    rope = {"rope_type": "default", "rope_theta": 1e6, "partial_rotary_factor": 0.5}
    with pytest.raises(UnsupportedError, match="partial_rotary_factor is not 1"):
        family.read_config_json(config_json(**{**source.config, "rope_parameters": rope}))


@pytest.mark.parametrize(
    "fields",
    [
        {"layer_types": ["full_attention", "sliding_attention", "full_attention"]},
        {"layer_types": None, "sliding_window": 24, "max_window_layers": 2},
    ],
)
def test_dots1_with_windows_is_refused(fields: dict[str, Any], folders: dict[str, Path]) -> None:
    family, _, source = read(folders["dots1"])
    with pytest.raises(UnsupportedError, match="some layers have a sliding window"):
        family.read_config_json(config_json(**{**source.config, **fields}))


def test_dots1_s_published_word_for_its_scores_is_known(folders: dict[str, Path]) -> None:
    family, config, source = read(folders["dots1"])
    published = config_json(**{**source.config, "scoring_func": "noaux_tc"})
    assert family.read_config_json(published) == config
    with pytest.raises(UnsupportedError, match="scoring_func is 'softmax'"):
        family.read_config_json(config_json(**{**source.config, "scoring_func": "softmax"}))


@pytest.mark.parametrize(
    ("kinds", "dense"),
    [(["dense"] * 2 + ["sparse"] * 3, 2), (["sparse"] * 5, 0), (None, 1)],
)
def test_dense_layers_of_k_exaone_are_listed_or_counted(
    kinds: list[str] | None, dense: int, folders: dict[str, Path]
) -> None:
    family, _, source = read(folders["exaone-moe"])
    config = family.read_config_json(config_json(**{**source.config, "mlp_layer_types": kinds}))
    assert config.first_dense_layers == dense


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"mlp_layer_types": ["sparse", "dense", "sparse", "sparse", "sparse"]}, "before sparse"),
        ({"mlp_layer_types": ["dense"]}, "does not list 5 layers"),
        ({"layer_types": None, "sliding_window_pattern": 3}, "pattern is 3 without layer_types"),
        ({"scoring_func": "softmax"}, "scoring_func is 'softmax'"),
    ],
)
def test_k_exaone_with_other_layers_is_refused(
    fields: dict[str, Any], problem: str, folders: dict[str, Path]
) -> None:
    family, _, source = read(folders["exaone-moe"])
    with pytest.raises((UnsupportedError, FormatError), match=problem):
        family.read_config_json(config_json(**{**source.config, **fields}))


@pytest.mark.parametrize("rope_type", ["default", "yarn"])
def test_a_base_of_frequencies_is_above_1(rope_type: str) -> None:
    config = config_json(
        rope_parameters={"rope_type": rope_type, "rope_theta": 1, "factor": 4.0},
        max_position_embeddings=64,
    )
    with pytest.raises(FormatError, match=r"config\.json: rope_theta is 1\.0, not above 1"):
        read_rope(config, ("default", "yarn"), also=("factor",))
    keys = keys_of("olmo2", {"olmo2.rope.freq_base_swa": 1.0})
    with pytest.raises(FormatError, match=r"freq_base_swa is 1\.0, not above 1"):
        olmo2.OLMO3.fields()["local_theta"].read_gguf(keys, {})
