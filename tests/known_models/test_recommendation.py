"""Which settings suit a model: the family that a file belongs to, and what goes before what."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest

import oxibonsai
import tiny_model
from oxibonsai.errors import FormatError
from oxibonsai.known_models import (
    EFFORTS,
    FAMILIES,
    Recommendation,
    Setting,
    missing_rotation,
    recommend,
)
from oxibonsai.sampling import SamplingParams
from oxibonsai.server.schemas.fields import Effort

# What Bonsai 2's files state of sampling, as float32.
STATED = {
    "general.sampling.temp": 1.0,
    "general.sampling.top_p": 0.949999988079071,
    "general.sampling.top_k": 20,
}
ROTATED = {"prism.hadamard.version": 1}
SIZES = {"2B": (24, 2048), "4B": (32, 2560), "9B": (32, 4096), "27B": (64, 5120)}


class Metadata(dict[str, Any]):
    """Stands for a file."""

    def keys(self) -> list[str]:  # type: ignore[override]
        return list(super().keys())


def metadata(
    architecture: str, layers: int, hidden: int, more: dict[str, Any] | None = None
) -> Metadata:
    return Metadata(
        {
            "general.architecture": architecture,
            f"{architecture}.block_count": layers,
            f"{architecture}.embedding_length": hidden,
            **(more or {}),
        }
    )


def family_of(path: str, *facts: Any) -> str | None:
    family = recommend(metadata(*facts), Path(path)).family
    return None if family is None else family.name


def bonsai2(more: dict[str, Any] | None = None) -> Recommendation:
    path = Path("Ternary-Bonsai-2-27B-PQ2_0.gguf")
    return recommend(metadata("qwen35", 64, 5120, more), path)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", ["PQ2_0", "PTQ1_0", "Q2_0", "Q2_0-prism-fork-required"])
def test_every_size_and_type_of_bonsai_2_is_known_by_its_file_name(size: str, kind: str) -> None:
    assert family_of(f"Ternary-Bonsai-2-{size}-{kind}.gguf", "qwen35", *SIZES[size]) == "Bonsai 2"


@pytest.mark.parametrize(
    ("path", "facts", "family"),
    [
        # general.name is a placeholder in published files, so a renamed one is known by its rotation.
        ("m.gguf", ("qwen35", 64, 5120, {**ROTATED, "general.name": "Hf"}), "Bonsai 2"),
        ("a/Ternary-Bonsai-2-27B-mlx-2bit/m.gguf", ("qwen35", 64, 5120), "Bonsai 2"),
        # The layer that drafts is counted in the file.
        ("m.gguf", ("qwen35", 65, 5120, {**ROTATED, "qwen35.nextn_predict_layers": 1}), "Bonsai 2"),
        ("Bonsai-27B-Q1_0.gguf", ("qwen35", 64, 5120), "Bonsai 27B"),
        ("Ternary-Bonsai-27B-PQ2_0.gguf", ("qwen35", 64, 5120), "Bonsai 27B"),
        ("m.gguf", ("qwen3", 28, 2048, {"general.name": "Ternary-Bonsai-1.7B"}), "Bonsai"),
        ("Bonsai-8B-Q1_0.gguf", ("qwen3", 36, 4096), "Bonsai"),
        ("Qwen3.8-27B-Q4_K_M.gguf", ("qwen35", 64, 5120), "Qwen3.8"),
        # No family: another model of the same shapes, and a name without the shape.
        ("Qwen3-8B-Q4_K_M.gguf", ("qwen3", 36, 4096), None),
        ("Bonsai-8B-Q1_0.gguf", ("llama", 36, 4096), None),
        ("Bonsai-8B-Q1_0.gguf", ("qwen3", 35, 4096), None),
    ],
)
def test_a_family_is_known_by_name_and_shape(
    path: str, facts: tuple[Any, ...], family: str | None
) -> None:
    assert family_of(path, *facts) == family


def test_bonsai_2_is_sampled_as_its_card_says() -> None:
    thinking, plain = bonsai2().values(None), bonsai2().values(False)
    assert thinking == {"temperature": 1.0, "top_p": 0.95, "top_k": 20, "min_p": 0.0}
    assert bonsai2().values(True) == thinking
    assert plain == {
        "temperature": 0.7, "top_p": 0.8, "top_k": 20, "min_p": 0.0, "presence_penalty": 1.5,
    }  # fmt: skip


def test_the_file_goes_before_the_family_and_each_value_names_its_source() -> None:
    found = bonsai2({**STATED, "general.sampling.temp": 0.6}).settings(True)
    assert found["temperature"] == Setting(0.6, "general.sampling.temp")
    assert found["top_p"] == Setting(0.95, "general.sampling.top_p")
    assert found["min_p"] == Setting(0.0, "Bonsai 2")


def test_what_a_file_states_is_for_the_mode_in_which_the_model_answers_by_itself() -> None:
    assert bonsai2(STATED).values(False) == bonsai2().values(False)
    # Where the family has one set for both, the file goes first in both.
    facts = metadata("qwen3", 36, 4096, {"general.sampling.temp": 0.9})
    small = recommend(facts, Path("Bonsai-8B-Q1_0.gguf"))
    assert small.values(False)["temperature"] == small.values(True)["temperature"] == 0.9


def test_given_parameters_go_before_all_and_general_defaults_fill_the_rest() -> None:
    params = bonsai2(STATED).params(True, {"top_k": 5, "seed": 1})
    assert params == SamplingParams(temperature=1.0, top_p=0.95, top_k=5, min_p=0.0, seed=1)
    assert Recommendation().params(None) == SamplingParams()


@pytest.mark.parametrize("value", [1.5, -0.1, "x", True])
def test_a_stated_value_out_of_range_is_named(value: Any) -> None:
    with pytest.raises(FormatError, match=r"general\.sampling\.top_p: top_p is"):
        bonsai2({"general.sampling.top_p": value})


def test_efforts_are_told_in_the_words_of_the_template() -> None:
    assert get_args(Effort) == EFFORTS
    told = {word: bonsai2().effort(word) for word in EFFORTS}
    assert told == {
        "none": None, "minimal": None,
        "low": "low", "medium": "medium", "high": "xhigh", "xhigh": "xhigh", "max": "xhigh",
    }  # fmt: skip
    assert [Recommendation().effort(word) for word in EFFORTS] == list(EFFORTS)


def test_an_effort_is_a_budget_where_the_template_knows_no_word() -> None:
    first = recommend(metadata("qwen35", 64, 5120), Path("Bonsai-27B-Q1_0.gguf"))
    assert [first.budget(w) for w in ("low", "medium", "high", "max")] == [512, 2048, 8192, None]
    assert bonsai2().budget("low") is None


@pytest.mark.parametrize(
    ("gib", "context"),
    [(8, 8192), (11.5, 16384), (32, 32768), (64, 65536), (128, 131072), (2000, 131072)],
)
def test_the_default_context_follows_the_memory(gib: float, context: int) -> None:
    assert bonsai2().context(gib) == Recommendation().context(gib) == context


def test_small_bonsais_have_a_smaller_largest_default() -> None:
    small = recommend(metadata("qwen3", 36, 4096), Path("Bonsai-8B-Q1_0.gguf"))
    assert [small.context(gib) for gib in (8, 32, 64, 128)] == [8192, 32768, 65536, 65536]


def test_no_record_recommends_what_sampling_refuses() -> None:
    for family in FAMILIES:
        for thinks in (True, False):
            Recommendation(family).params(thinks)
        assert {*family.effort_for.values()} <= {*family.efforts}


TERNARY = {"F32", "Q2_0_g128"}


def doubt(path: str, size: str, types: set[str], more: dict[str, Any] | None = None) -> str | None:
    return missing_rotation(metadata("qwen35", *SIZES[size], more), Path(path), types)


@pytest.mark.parametrize("size", SIZES)
def test_a_bonsai_2_without_its_keys_is_refused_where_name_shape_and_types_agree(size: str) -> None:
    path = f"Ternary-Bonsai-2-{size}-PQ2_0.gguf"
    with pytest.raises(FormatError, match=r"lacks the keys prism\.hadamard\.\*"):
        doubt(path, size, TERNARY)
    assert doubt(path, size, TERNARY, ROTATED) is None
    # Of other types it may have been turned back before it was quantized.
    assert doubt(path, size, {"F32", "Q4_K"}) is None


def test_shape_and_types_alone_are_a_doubt_that_is_said() -> None:
    said = doubt("m.gguf", "9B", TERNARY)
    assert said is not None
    assert "in the shape of Bonsai 2" in said
    # The first generation's 27B has the shape, too, and was never rotated.
    assert doubt("Ternary-Bonsai-27B-PQ2_0.gguf", "27B", TERNARY) is None
    assert missing_rotation(metadata("qwen35", 24, 1024), Path("m.gguf"), TERNARY) is None


def test_loading_says_the_doubt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "tiny.gguf"
    tiny_model.write(path)
    monkeypatch.setattr(
        "oxibonsai.engine.loading.missing_rotation", lambda file, path, types: f"{path} is doubtful"
    )
    with pytest.warns(UserWarning, match=r"tiny\.gguf is doubtful"):
        oxibonsai.load(path, parity="off")
