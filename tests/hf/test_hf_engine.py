"""The Hugging Face style front: its meanings, defaults and kinds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tiny_model
from oxibonsai import AutoModelForCausalLM, AutoTokenizer, RequestError, SourceError
from oxibonsai.hf import CausalLM

IDS = [[65, 66, 67, 68]]


@pytest.fixture(scope="module")
def model(tiny_path: Path) -> CausalLM:
    return AutoModelForCausalLM.from_pretrained(tiny_path)


def test_greedy_generation_returns_prompt_and_new_tokens(model: CausalLM) -> None:
    out = model.generate(np.array(IDS))
    assert out.dtype == np.int64
    assert out.shape[1] <= 4 + 20
    assert out[:, :4].tolist() == IDS
    logits = model.logits(out[0])
    assert out[0, 4:].tolist() == np.argmax(logits[3:-1], axis=1).tolist()


def test_max_length_counts_the_prompt(model: CausalLM) -> None:
    assert model.generate(IDS, max_length=9, eos_token_id=()).shape == (1, 9)
    assert model.generate(IDS, max_new_tokens=3, eos_token_id=()).shape == (1, 7)


def test_an_eos_token_ends_and_is_kept(model: CausalLM) -> None:
    plain = model.generate(IDS, max_new_tokens=10, eos_token_id=())[0]
    ended = model.generate(IDS, max_new_tokens=10, eos_token_id=int(plain[6]))[0]
    first = plain[4:].tolist().index(plain[6])
    assert ended.tolist() == plain[: 4 + first + 1].tolist()


def test_padding_is_left_out_and_rows_are_padded(model: CausalLM) -> None:
    batch = np.array([[0, 0, 65, 66], [65, 66, 67, 68]])
    mask = np.array([[0, 0, 1, 1], [1, 1, 1, 1]])
    out = model.generate(batch, attention_mask=mask, max_new_tokens=5, eos_token_id=())
    alone = model.generate([[65, 66]], max_new_tokens=5, eos_token_id=())
    assert out[0, 4:].tolist() == alone[0, 2:].tolist()


def test_sampling_repeats_with_its_seed(model: CausalLM) -> None:
    options = {"do_sample": True, "temperature": 1.5, "max_new_tokens": 30, "eos_token_id": ()}
    first = model.generate(IDS, seed=1, **options)
    assert np.array_equal(first, model.generate(IDS, seed=1, **options))
    assert not np.array_equal(first, model.generate(IDS, seed=2, **options))


@pytest.mark.parametrize(
    ("ids", "options", "message"),
    [
        ([[]], {}, "input_ids is empty"),
        ([[0.5]], {}, "must be integers"),
        ([[[1]]], {}, "shape"),
        (IDS, {"max_new_tokens": 0}, "max_tokens is 0"),
        (IDS, {"do_sample": True, "temperature": 0.0}, "temperature is 0"),
        (IDS, {"top_p": 2.0}, "top_p is 2"),
        ([[999]], {}, "token id 999"),
    ],
)
def test_bad_arguments_are_refused(model: CausalLM, ids: list, options: dict, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        model.generate(ids, **options)


@pytest.mark.hf
def test_torch_goes_in_and_comes_out(model: CausalLM, tiny_path: Path) -> None:
    torch = pytest.importorskip("torch")
    tokenizer = AutoTokenizer.from_pretrained(tiny_path)
    inputs = tokenizer("abc", return_tensors="pt")
    out = model.generate(**inputs, max_new_tokens=4, eos_token_id=())
    assert isinstance(out, torch.Tensor)
    expected = model.generate(inputs["input_ids"].numpy(), max_new_tokens=4, eos_token_id=())
    assert out.tolist() == expected.tolist()


@pytest.mark.hf
def test_the_seed_of_torch_decides_where_none_is_given(model: CausalLM) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    options = {"do_sample": True, "temperature": 1.5, "max_new_tokens": 30, "eos_token_id": ()}

    def draw() -> list[list[int]]:
        return model.generate([*IDS, *IDS], **options).tolist()

    torch.manual_seed(1)
    first, second = draw(), draw()
    torch.manual_seed(1)
    assert (draw(), draw()) == (first, second)
    transformers.set_seed(1)
    assert draw() == first
    torch.manual_seed(2)
    assert draw() != first
    assert first != second  # the generator goes on
    assert first[0] != first[1]


@pytest.mark.hf
def test_streamers_of_transformers_work(model: CausalLM, tiny_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    tokenizer = AutoTokenizer.from_pretrained(tiny_path)
    streamer = transformers.TextIteratorStreamer(tokenizer, skip_prompt=True)
    out = model.generate(IDS, max_new_tokens=6, eos_token_id=(), streamer=streamer)
    assert "".join(streamer) == tokenizer.decode(out[0, 4:])


def test_tokenizer_names(tiny_path: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny_path)
    batch = tokenizer(["a", "abc"], return_tensors="np", padding=True)
    assert batch["input_ids"].shape == (2, 2)  # "ab" is one token
    assert batch["attention_mask"].tolist() == [[0, 1], [1, 1]]
    assert tokenizer.batch_decode(batch["input_ids"][1:]) == ["abc"]
    assert tokenizer.eos_token_id == 257
    messages = [{"role": "user", "content": "Hi"}]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert text.startswith("<|im_start|>user\nHi<|im_end|>")
    ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    assert ids[0] == 256
    assert tokenizer.decode(ids) == text
    with pytest.raises(RequestError, match="different lengths"):
        tokenizer(["a", "abc"], return_tensors="np")


def test_samples_and_beams_follow_their_prompts(model: CausalLM) -> None:
    prompts = [[1, 2, 3], [4, 5, 6]]
    drawn = model.generate(
        prompts, do_sample=True, seed=3, num_return_sequences=2, max_new_tokens=6, eos_token_id=[]
    )
    assert [row[:3] for row in drawn.tolist()] == [prompts[0]] * 2 + [prompts[1]] * 2
    first = model.generate([prompts[1]], do_sample=True, seed=3, max_new_tokens=6, eos_token_id=[])
    assert drawn[2].tolist() == first[0].tolist()
    beams = model.generate(prompts, num_beams=3, num_return_sequences=2, max_new_tokens=4)
    assert beams.shape[0] == 4


def test_a_file_says_how_to_sample_and_where_nothing_else_is_asked(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    keys = {"general.sampling.temp": (1.5, "f32"), "general.sampling.top_k": (7, "i32")}
    tiny_model.write(path, changes=keys)
    model = AutoModelForCausalLM.from_pretrained(path)
    plain = {"max_new_tokens": 30, "eos_token_id": ()}
    asked = model.generate(IDS, do_sample=True, temperature=1.5, top_k=7, seed=3, **plain)
    assert np.array_equal(model.generate(IDS, seed=3, **plain), asked)
    greedy = model.generate(IDS, do_sample=False, **plain)
    assert greedy[0, 4:].tolist() == np.argmax(model.logits(greedy[0])[3:-1], axis=1).tolist()
    assert not np.array_equal(greedy, asked)


def test_a_repository_in_a_cache_of_ones_own(tmp_path: Path, tiny_path: Path) -> None:
    repository = tmp_path / "models--org--repo"
    snapshot = repository / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "v2").write_text("0" * 40)
    (snapshot / "tiny.gguf").write_bytes(tiny_path.read_bytes())
    there = {"cache_dir": tmp_path, "revision": "v2", "local_files_only": True}
    model = AutoModelForCausalLM.from_pretrained("org/repo", gguf_file="tiny.gguf", **there)
    assert model.logits(IDS).shape == (4, 300)
    tokenizer = AutoTokenizer.from_pretrained("org/repo", gguf_file="tiny.gguf", **there)
    assert tokenizer("ab").input_ids == [299]
    with pytest.raises(SourceError, match=r"has no other\.gguf"):
        AutoModelForCausalLM.from_pretrained("org/repo", gguf_file="other.gguf", **there)
    with pytest.raises(SourceError, match="cannot fetch hf:org/repo with revision"):
        AutoModelForCausalLM.from_pretrained(
            "org/repo", gguf_file="tiny.gguf", **{**there, "revision": "v3"}
        )
