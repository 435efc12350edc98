"""Mixes choose what llama-quantize chooses; exceptions to them are the user's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from make_llama_cpp_choices import Case, by_role

from oxibonsai import RequestError
from oxibonsai.quantize import TypeRules, find_mix
from oxibonsai.quantize.mixes import MIXES, Mix, mix_of_file
from oxibonsai.quantize.type_choice import Choice, ModelShape, Tensor, choose

_RECORDED = json.loads(
    (Path(__file__).parents[1] / "truth/quantize/llama_cpp_choices.json").read_text()
)


def recorded_mix(name: str) -> Mix:
    return MIXES["Q2_0_g64" if name == "Q2_0" else name]


def chosen(case: Case, mix: str | Mix, **exceptions: Any) -> list[Choice]:
    tensors = [Tensor(name, shape, "F32") for name, shape in case.shapes().items()]
    mix = find_mix(mix) if isinstance(mix, str) else mix
    rules = TypeRules(mix, pure=case.pure, **exceptions)
    return choose(tensors, ModelShape.of(case.keys().get), rules, measured=case.measured)


def types(choices: list[Choice]) -> dict[str, str]:
    return {c.tensor.name: c.type.name for c in choices}


@pytest.mark.parametrize(
    "recorded", _RECORDED, ids=lambda r: "-".join(map(str, r["case"].values()))
)
def test_types_are_those_of_llama_quantize(recorded: dict[str, Any]) -> None:
    case = Case(**recorded["case"])
    for mix, expected in recorded["mixes"].items():
        found = by_role(types(chosen(case, recorded_mix(mix))))
        theirs = {role: runs.upper() for role, runs in expected.items()}
        ours = {role: runs.upper().replace("_G64", "") for role, runs in found.items()}
        assert ours == theirs, mix


def test_every_mix_is_recorded() -> None:
    recorded = [recorded_mix(m) for r in _RECORDED for m in r["mixes"]]
    assert [m for m in MIXES.values() if m not in recorded and m.base != "F32"] == []


@pytest.mark.parametrize(
    ("name", "same"),
    [("q4_k", "Q4_K_M"), ("Q3_K", "Q3_K_M"), ("q5_K", "Q5_K_M"), ("q2_0", "Q2_0_g64")],
)
def test_names_have_short_forms_in_any_case(name: str, same: str) -> None:
    assert find_mix(name) is find_mix(same)
    assert find_mix("pq2_0") == find_mix("Q2_0_g128")


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(RequestError, match=r"^q4_k_x is no type; .* knows F32, .*Q4_K_M, "):
        find_mix("q4_k_x")
    with pytest.raises(RequestError, match=r"^Q9 is no type; weights are written as F32, "):
        TypeRules(find_mix("q8_0"), output="Q9")


def test_pure_has_one_type_for_all_matrices() -> None:
    found = types(chosen(Case(pure=True), "Q2_K"))
    assert {t for n, t in found.items() if n.endswith(("_norm.weight", ".bias"))} == {"F32"}
    assert {t for n, t in found.items() if not n.endswith(("_norm.weight", ".bias"))} == {"Q2_K"}


def test_embeddings_and_output_have_types_of_their_own() -> None:
    both = {"token_embedding": "q8_0", "output": "f16"}
    found = types(chosen(Case(), "q4_k_s", **both))
    assert (found["token_embd.weight"], found["output.weight"]) == ("Q8_0", "F16")
    tied = Case(tied=True)
    assert types(chosen(tied, "q4_k_s", **both))["token_embd.weight"] == "Q8_0"
    assert types(chosen(tied, "q4_k_s", output="f16"))["token_embd.weight"] == "F16"
    assert types(chosen(Case(pure=True), "q4_k_s", output="f16"))["output.weight"] == "F16"


def test_the_last_pattern_that_matches_counts_before_everything_else() -> None:
    patterns = [(r"ffn_(up|down)", "q8_0"), (r"\.3\.ffn", "bf16"), ("^output", "q5_1")]
    found = types(chosen(Case(), "q4_k_s", output="f16", patterns=patterns))
    assert found["blk.2.ffn_up.weight"] == found["blk.2.ffn_down.weight"] == "Q8_0"
    assert {found[f"blk.3.ffn_{n}.weight"] for n in ("up", "down", "gate")} == {"BF16"}
    assert found["blk.2.ffn_gate.weight"] == "Q4_K"
    assert found["output.weight"] == "Q5_1"


@pytest.mark.parametrize(
    ("pattern", "sentence"),
    [
        ("ffn_dwon", "the pattern 'ffn_dwon' matches no matrix"),
        ("attn_norm", "matches no matrix"),  # a vector stays as it is
        ("(", r"'\(' is no regular expression: missing \)"),
    ],
)
def test_a_pattern_that_matches_nothing_is_an_error(pattern: str, sentence: str) -> None:
    with pytest.raises(RequestError, match=sentence):
        chosen(Case(), "q4_k_s", patterns=[("ffn_down", "q8_0"), (pattern, "q8_0")])


def test_a_type_whose_groups_do_not_fit_gives_way_and_says_so() -> None:
    for choice in chosen(Case(hidden=96, pure=True), "iq4_xs"):
        matrix = len(choice.tensor.shape) > 1
        assert (choice.type.name, choice.wanted) == (
            ("IQ4_NL", "IQ4_XS") if matrix else ("F32", None)
        )


@pytest.mark.parametrize(
    ("file_type", "type_name", "mix"),
    [
        (15, "Q4_K", "Q4_K_M"),
        (14, "Q4_K", "Q4_K_S"),
        (7, "Q8_0", "Q8_0"),
        (7, "Q4_K", "Q4_K"),  # the number is that of another file
        (None, "Q1_0", "Q1_0"),
    ],
)
def test_a_file_is_named_after_the_mix_that_it_was_written_with(
    file_type: int | None, type_name: str, mix: str
) -> None:
    assert mix_of_file(file_type, type_name) == mix
