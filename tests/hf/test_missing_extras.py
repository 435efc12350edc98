"""What needs torch or transformers says which extra brings them, and torch.compile what it can't do."""

from __future__ import annotations

import sys

import pytest

import oxibonsai
from oxibonsai import AutoModelForCausalLM, AutoTokenizer
from oxibonsai.errors import UnsupportedError

SEEDLING = "seedling-ternary"


def test_an_import_that_is_missing_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)  # as if it were not installed
    tokenizer = AutoTokenizer.from_pretrained(SEEDLING)
    wanted = r"torch is not installed: pip install 'oxibonsai\[hf\]' brings it"
    with pytest.raises(UnsupportedError, match=wanted):
        tokenizer("a", return_tensors="pt")
    with oxibonsai.load(SEEDLING) as engine, pytest.raises(UnsupportedError, match=wanted):
        engine.logits_torch([1, 2])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, of its modules
def test_torch_compile_is_refused_in_a_sentence() -> None:
    torch = pytest.importorskip("torch")
    model = AutoModelForCausalLM.from_pretrained(SEEDLING)
    with pytest.raises(UnsupportedError, match=r"torch\.compile has nothing to compile here"):
        torch.compile(model)


def test_a_text_is_continued_with_the_defaults() -> None:
    with oxibonsai.load(SEEDLING) as engine:
        assert "".join(engine.generate("a cat"))
        assert list(engine.generate_tokens(engine.tokenizer.encode("a cat")))
