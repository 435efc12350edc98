"""Each family read in every direction: its config, its table of tensors, its pass."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_file import config_json, through_a_file
from hypothesis import given
from hypothesis import strategies as st

from oxibonsai import _core
from oxibonsai.architectures import FAMILIES
from oxibonsai.architectures.schema.family import Family
from oxibonsai.architectures.schema.tensors import Lazy
from oxibonsai.convert.families import check_shapes
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.recipes import RECIPES
from oxibonsai.errors import FormatError, RequestError, UnsupportedError

pytest.importorskip("transformers", reason="needs transformers and torch (extra: test)")
import cases

pytestmark = pytest.mark.hf

BY_TYPE = {kind: family for family in FAMILIES for kind in family.model_types}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders of all cases, made when they are asked for."""

    class Folders(dict[str, Path]):
        def __missing__(self, name: str) -> Path:
            case = next(c for c in cases.DECODERS if c.name == name)
            self[name] = tmp_path_factory.mktemp("families") / "model"
            case.save(self[name])
            return self[name]

    return Folders()


KINDS = {family.kind for family in FAMILIES} | set(BY_TYPE) | {"Mistral"}
CASES = [c for c in cases.DECODERS if c.kind.removesuffix("Text") in KINDS]
NAMES = [c.name for c in CASES]


def read(folder: Path) -> tuple[Family[Any], Any, ModelFolder]:
    source = ModelFolder(folder)
    family = BY_TYPE[source.config["model_type"]]
    return family, family.read_config_json(config_json(**source.config)), source


def test_every_family_has_a_case() -> None:
    kinds = {c.kind.removesuffix("Text") for c in CASES}
    assert all(kinds & {family.kind, *family.model_types} for family in FAMILIES)


@pytest.mark.parametrize("name", NAMES)
def test_the_config_of_a_folder_comes_back_from_a_file_and_from_a_folder(
    name: str, folders: dict[str, Path]
) -> None:
    family, c, source = read(folders[name])
    held = through_a_file(family, c, source.parameters)
    assert through_a_file(family, held, source.parameters) == held
    written = json.loads(json.dumps(family.write_config_json(held)))
    again = family.read_config_json(config_json(**written))
    assert through_a_file(family, again, source.parameters) == held


@pytest.mark.parametrize("name", NAMES)
def test_every_entry_leads_there_and_back(name: str, folders: dict[str, Path]) -> None:
    family, c, source = read(folders[name])
    random = np.random.default_rng(1)
    for entry in family.table(c, name).of_parameters(source.parameters):
        shapes = [source.parameters[n].shape for n in entry.parameters]
        values = [random.uniform(0.6, 4.0, shape).astype(np.float32) for shape in shapes]
        there = entry.forwards([Lazy(v.shape, lambda v=v: v) for v in values])  # type: ignore[misc]
        back = entry.backwards(there)
        for before, after in zip(values, back, strict=True):
            assert before.shape == after.shape
            difference = np.abs(after.read() - before).max()
            assert difference <= (0.0 if entry.moves else 5e-7)


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
    tensor = "blk.1.attn_output.weight"
    rows, columns = shapes[tensor]
    with pytest.raises(FormatError, match=rf"{re.escape(name)}.*{tensor} has shape"):
        check_shapes(family, c, name, {**shapes, tensor: (rows + 1, columns)})
    with pytest.raises(FormatError, match=rf"{re.escape(name)} lacks .*{tensor}"):
        check_shapes(family, c, name, {n: s for n, s in shapes.items() if n != tensor})
    with pytest.raises(UnsupportedError, match="attn_stray"):
        check_shapes(family, c, name, {**shapes, "blk.0.attn_stray.weight": (4,)})


@given(st.data())
def test_a_family_s_config_json_fails_with_one_typed_error(data: st.DataObject) -> None:
    family = data.draw(st.sampled_from(FAMILIES))
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
    assert "config.json" in message


def test_every_model_type_of_a_family_is_converted_by_it() -> None:
    for kind, family in BY_TYPE.items():
        assert RECIPES[kind].architecture == family.name


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
