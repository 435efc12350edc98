"""Pipelines, harnesses, adapters and vectors: code that was written for Hugging Face's libraries."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bert_folder
from oxibonsai import RequestError, UnsupportedError
from oxibonsai.hf import (
    AutoModelForCausalLM,
    CausalLM,
    PreTrainedTokenizer,
    SentenceTransformer,
    pipeline,
)

transformers = pytest.importorskip("transformers")
torch = pytest.importorskip("torch")
pytestmark = pytest.mark.hf

TEXT = "Once upon a time"
CHAT = "{% for m in messages %}{{ m['content'] }};{% endfor %}"


def test_pipelines_of_transformers_take_the_model(
    model: CausalLM, tokenizer: PreTrainedTokenizer, theirs: Any, their_tokenizer: Any
) -> None:
    options = {"max_new_tokens": 8, "do_sample": False, "pad_token_id": 0}
    expected = transformers.pipeline("text-generation", model=theirs, tokenizer=their_tokenizer)
    for given in (model, model.transformers_model):
        made = transformers.pipeline("text-generation", model=given, tokenizer=tokenizer)
        assert made(TEXT, **options) == expected(TEXT, **options)
        batch = [TEXT, "the end of it"]
        assert made(batch, batch_size=2, **options) == expected(batch, batch_size=2, **options)
    chat = [{"role": "user", "content": "Hello"}]
    made.tokenizer.chat_template = expected.tokenizer.chat_template = CHAT
    assert made(chat, **options) == expected(chat, **options)


def test_the_pipeline_of_this_package(hf_folder: Path, model: CausalLM) -> None:
    made = pipeline("text-generation", model=hf_folder, model_kwargs={"ctx_size": 64})
    text = made(TEXT, max_new_tokens=5, do_sample=False)[0]["generated_text"]
    again = pipeline(model=model)(TEXT, max_new_tokens=5, do_sample=False)[0]["generated_text"]
    assert text == again
    assert text.startswith(TEXT)


def test_what_a_harness_asks_of_a_model(
    model: CausalLM, theirs: Any, tokenizer: PreTrainedTokenizer
) -> None:
    """The calls of lm-eval's HFLM with a model and a tokenizer that are loaded already."""
    view = model.transformers_model
    assert isinstance(view, transformers.PreTrainedModel)
    assert isinstance(tokenizer.transformers_tokenizer, transformers.PreTrainedTokenizerFast)
    view.eval()
    view.tie_weights()
    assert view.device == torch.device("cpu")
    assert view.config.model_type == "qwen3"
    assert view.config.max_position_embeddings == 512
    rows = [tokenizer.encode(t) for t in (TEXT, "the end")]
    width = max(map(len, rows))
    batch = torch.tensor([row + [0] * (width - len(row)) for row in rows])
    with torch.no_grad():
        ours, expected = (
            torch.log_softmax(m(batch).logits, dim=-1, dtype=torch.float32) for m in (view, theirs)
        )
    torch.testing.assert_close(ours, expected, rtol=1e-3, atol=2e-3)


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing:FutureWarning")
def test_adapters_of_peft(hf_folder: Path, tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    base = transformers.AutoModelForCausalLM.from_pretrained(hf_folder, dtype="float32")
    torch.manual_seed(2)
    config = peft.LoraConfig(r=4, target_modules=["q_proj", "down_proj"], init_lora_weights=False)
    adapted = peft.get_peft_model(base, config)
    folder = tmp_path / "adapter"
    adapted.save_pretrained(folder)
    ids = torch.tensor([[65, 66, 67, 68]])
    model = AutoModelForCausalLM.from_pretrained(hf_folder)
    before = model(ids).logits
    model.load_adapter(folder)
    with torch.no_grad():
        expected = adapted.eval()(ids).logits
    torch.testing.assert_close(model(ids).logits, expected, rtol=1e-3, atol=2e-3)
    assert not torch.allclose(before, expected, atol=0.1)


def test_vectors_as_of_sentence_transformers(tmp_path: Path) -> None:
    folder = bert_folder.write(tmp_path / "bert")
    model = SentenceTransformer(folder, prompts={"query": "hello "})
    texts = ["hello world", "world"]
    vectors = model.encode(texts)
    assert vectors.shape == (2, model.get_sentence_embedding_dimension())
    assert np.array_equal(vectors, model.engine.embed(texts))
    assert np.array_equal(model.encode("world"), vectors[1])
    assert np.array_equal(model.encode(texts, batch_size=1), vectors)
    assert np.array_equal(model.encode("world", prompt_name="query"), vectors[0])
    assert np.array_equal(model.encode("world", prompt="hello "), vectors[0])
    tensor = model.encode(texts, convert_to_tensor=True)
    assert torch.equal(tensor, torch.from_numpy(vectors))
    assert model.similarity(tensor, tensor).diagonal().tolist() == pytest.approx([1.0, 1.0])
    assert model.encode(texts, truncate_dim=16).shape == (2, 16)
    long = model.encode(texts, normalize_embeddings=False)
    assert not np.allclose(np.linalg.norm(long, axis=1), 1.0)
    with pytest.raises(UnsupportedError, match="precision"):
        model.encode(texts, precision="int8")
    with pytest.raises(RequestError, match="no prompt 'passage'"):
        model.encode(texts, prompt_name="passage")
    with pytest.raises(RequestError, match="texts"):
        model.encode([])


def test_torch_and_transformers_are_only_imported_where_they_are_used(tiny_path: Path) -> None:
    code = (
        "import sys, oxibonsai\n"
        "assert not {'numpy', 'torch', 'transformers'} & sys.modules.keys()\n"
        f"model = oxibonsai.AutoModelForCausalLM.from_pretrained({str(tiny_path)!r})\n"
        f"tokenizer = oxibonsai.AutoTokenizer.from_pretrained({str(tiny_path)!r})\n"
        "ids = tokenizer('abc', return_tensors='np').input_ids\n"
        "out = model.generate(ids, max_new_tokens=3, eos_token_id=[])\n"
        "print(out.shape, {'torch', 'transformers'} & sys.modules.keys())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "(1, 5) set()\n"
