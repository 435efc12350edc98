"""Language models within larger models: their fields and their parameters' names."""

from __future__ import annotations

import pytest
from fake_file import config_json

from oxibonsai.architectures.schema.wrapper import Wrapper
from oxibonsai.architectures.wrappers import wrapper_of
from oxibonsai.errors import FormatError


@pytest.mark.parametrize(
    ("parameter", "name"),
    [
        ("model.language_model.layers.0.mlp.up_proj.weight", "model.layers.0.mlp.up_proj.weight"),
        ("language_model.model.norm.weight", "model.norm.weight"),
        ("model.text_model.norm.weight", "model.norm.weight"),
        ("language_model.lm_head.weight", "lm_head.weight"),
        ("model.embed_tokens.weight", "model.embed_tokens.weight"),
        ("lm_head.weight", "lm_head.weight"),
        ("audio_tower.conv.weight", "audio_tower.conv.weight"),  # no family knows it
        ("model.vision_tower.patch.weight", None),
        ("visual.blocks.0.norm1.weight", None),
        ("model.image_newline", None),
    ],
)
def test_a_parameter_has_the_name_that_the_language_model_has_for_it(
    parameter: str, name: str | None
) -> None:
    assert Wrapper().text_name(parameter) == name


def test_other_parts_may_have_other_names() -> None:
    wrapper = Wrapper(others=("audio_tower.",))
    assert wrapper.text_name("model.audio_tower.conv.weight") is None
    assert wrapper.text_name("visual.norm.weight") == "visual.norm.weight"


def test_inner_fields_are_read_over_outer_ones_and_defaults_stand_between() -> None:
    wrapper = Wrapper(defaults={"hidden_size": 8, "head_dim": 4, "rope_theta": 1e6})
    config = config_json(
        model_type="whole", quantization={"bits": 4}, rope_theta=1e4, tie_word_embeddings=True,
        text_config={"model_type": "part", "hidden_size": 64, "tie_word_embeddings": False},
    )  # fmt: skip
    found = wrapper.text_config(config)
    assert found["quantization"] == {"bits": 4}
    assert (found["model_type"], found["hidden_size"], found["head_dim"]) == ("part", 64, 4)
    assert found["rope_theta"] == 1e6
    assert found["tie_word_embeddings"] is True


def test_the_fields_of_a_whole_that_says_nothing_of_ties_are_the_language_model_s() -> None:
    config = config_json(text_config={"hidden_size": 64, "tie_word_embeddings": False})
    assert Wrapper().text_config(config)["tie_word_embeddings"] is False
    assert "tie_word_embeddings" not in Wrapper().text_config(config_json(text_config={}))


def test_older_configurations_have_no_inner_object() -> None:
    assert Wrapper().text_config(config_json(hidden_size=64))["hidden_size"] == 64
    with pytest.raises(FormatError, match=r"config\.json: has no object text_config"):
        Wrapper(defaults={"hidden_size": 8}).text_config(config_json(model_type="whole"))


def test_a_folder_that_does_not_say_its_language_model_has_the_usual_one() -> None:
    found = wrapper_of(config_json(model_type="llava", text_config={}))
    assert (found.defaults["model_type"], found.defaults["hidden_size"]) == ("llama", 4096)
    found = wrapper_of(config_json(model_type="llava", text_config={"model_type": "qwen2"}))
    assert found.defaults == {"model_type": "qwen2"}
