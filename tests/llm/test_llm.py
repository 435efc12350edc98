"""Whole requests from Python: batches, conversations, coroutines, and how an engine ends."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oxibonsai
from oxibonsai import LLM, AsyncLLM, RequestError, SamplingParams
from oxibonsai.engine.logits import DLPackArray
from oxibonsai.llm.requests import Request

PARAMS = SamplingParams(max_tokens=12, temperature=0.0, ignore_eos=True)
CHAT = [{"role": "user", "content": "Hi"}]


@pytest.fixture(scope="module")
def llm(tiny_path: Path) -> Iterator[LLM]:
    with LLM(tiny_path) as made:
        yield made


def test_many_prompts_give_what_each_gives_alone(llm: LLM) -> None:
    prompts = ["abc", "Once", "xyz", "ab"]
    outputs = llm.generate(prompts, PARAMS)
    assert [o.prompt for o in outputs] == prompts
    for prompt, output in zip(prompts, outputs, strict=True):
        assert output.outputs[0].text == "".join(llm.engine.generate(prompt, PARAMS))
        assert output.prompt_token_ids == llm.get_tokenizer().encode(prompt)
        assert output.finished
        assert output.outputs[0].finish_reason == "length"
        assert len(output.outputs[0].token_ids) == 12
    assert len({o.request_id for o in outputs}) == 4


@pytest.mark.parametrize(
    "prompt",
    [
        "abc",
        {"prompt": "abc"},
        {"prompt_token_ids": [66, 65]},
        [66, 65],
        np.array([66, 65]),
        DLPackArray(np.array([66, 65])),
    ],
    ids=["text", "dict", "ids-dict", "ids", "numpy", "dlpack"],
)
def test_forms_of_a_prompt(llm: LLM, prompt: Any) -> None:
    (one,) = llm.generate(prompt, PARAMS)
    (listed,) = llm.generate([prompt], PARAMS)
    assert one.outputs[0].token_ids == listed.outputs[0].token_ids
    text = llm.get_tokenizer().encode("abc")
    has_text = isinstance(prompt, str) or (isinstance(prompt, dict) and "prompt" in prompt)
    assert one.prompt_token_ids == (text if has_text else [66, 65])


def test_samples_and_parameters_of_each(llm: LLM) -> None:
    params = SamplingParams(max_tokens=6, temperature=1.0, seed=5)
    (output,) = llm.generate("abc", params, n=3)
    assert [o.index for o in output.outputs] == [0, 1, 2]
    assert [o.seed for o in output.outputs] == [5, 6, 7]
    first, second = llm.generate(["abc", "abc"], [PARAMS, params])
    assert len(first.outputs[0].token_ids) == 12
    assert second.outputs[0].token_ids == output.outputs[0].token_ids
    with pytest.raises(RequestError, match="2 prompts and 1"):
        llm.generate(["a", "b"], [PARAMS])


def test_log_probabilities(llm: LLM) -> None:
    params = SamplingParams(max_tokens=4, temperature=0.0, logprobs=True, top_logprobs=3)
    (output,) = llm.generate("abc", params)
    found = output.outputs[0]
    assert found.logprobs is not None
    total = 0.0
    for token, listed in zip(found.token_ids, found.logprobs, strict=True):
        assert len(listed) == 3
        assert listed[token].rank == 1  # greedy
        assert isinstance(listed[token].decoded_token, str)
        total += listed[token].logprob
    assert found.cumulative_logprob == pytest.approx(total)
    assert llm.generate("abc", PARAMS)[0].outputs[0].logprobs is None


def test_why_a_text_ended(llm: LLM) -> None:
    text = llm.generate("abc", PARAMS)[0].outputs[0].text
    stopped = llm.generate("abc", SamplingParams(temperature=0.0, stop=(text[3:5],)))[0].outputs[0]
    assert (stopped.finish_reason, stopped.stop_reason) == ("stop", text[3:5])
    assert stopped.text == text[: text.index(text[3:5])]


def test_conversations(llm: LLM) -> None:
    one = llm.chat(CHAT, PARAMS)
    several = llm.chat([CHAT, [*CHAT, {"role": "assistant", "content": "x"}, *CHAT]], PARAMS)
    assert len(one) == 1
    assert len(several) == 2
    assert one[0].prompt is not None
    assert "<|im_start|>user\nHi<|im_end|>" in one[0].prompt
    assert several[0].outputs[0].text == one[0].outputs[0].text
    assert several[0].outputs[0].reply is not None
    assert several[0].outputs[0].reply.content == one[0].outputs[0].text
    reply = llm.engine.chat(CHAT, PARAMS)
    assert "".join(d.content for d in reply if d.content) == one[0].outputs[0].text
    assert repr(reply) == f"ChatReply({one[0].outputs[0].text!r}, finish_reason='length')"
    for bad in ([], "Hi", CHAT[0]):
        with pytest.raises(RequestError, match="messages is no list"):
            llm.chat(bad)  # type: ignore[arg-type]
    with pytest.raises(RequestError, match="messages has a string"):
        llm.chat(["Hi"])  # type: ignore[list-item]
    with pytest.raises(RequestError, match="sampling_params has 'greedy'"):
        llm.generate("Hi", "greedy")  # type: ignore[arg-type]


def test_vectors(llm: LLM) -> None:
    first, second = llm.embed(["abc", "ab"])
    expected = llm.engine.embed(["abc", "ab"])
    assert np.array_equal(np.float32(first.outputs.embedding), expected[0])
    assert np.array_equal(np.float32(second.outputs.embedding), expected[1])


def test_a_refused_prompt_leaves_nothing_running(llm: LLM) -> None:
    with pytest.raises(RequestError, match="token id 9999"):
        llm.generate(["abc", [9999]], PARAMS)
    assert llm.engine.num_running == 0
    assert not llm.engine.has_work


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda e: e.generate(5, PARAMS), "a prompt is a list of token ids"),
        (lambda e: e.generate([1.5], PARAMS), "a prompt is a list of token ids"),
        (lambda e: e.generate([[1, 2]], PARAMS), "a prompt is a list of token ids"),
        (lambda e: e.generate("a", {"max_tokens": 3}), "it must be SamplingParams"),
        (lambda e: e.generate("a", PARAMS, {"tenant": "x"}), "it must be Options"),
        (lambda e: e.logits_batch(["abc"]), "a prompt is a list of token ids here, not str"),
        (lambda e: e.generate(b"abc", PARAMS), "a prompt is a list of token ids here, not bytes"),
        (lambda e: e.embed("abc"), "give a list of texts"),
        (lambda e: e.embed(5), "texts is 5; give a list of texts"),
        (lambda e: e.tokenizer.encode(b"abc"), "a text is a string, not bytes"),
        (lambda e: e.tokenizer.decode("abc"), "a token id is an integer, not 'a'"),
    ],
)
def test_wrong_types_are_named(llm: LLM, call: Any, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        call(llm.engine)


@pytest.mark.parametrize("source", [5, b"model.gguf", [Path("model.gguf")]], ids=str)
def test_a_model_is_named_by_a_string_or_a_path(source: Any) -> None:
    for load in (
        oxibonsai.load, LLM, oxibonsai.AutoTokenizer.from_pretrained,
        oxibonsai.AutoModelForCausalLM.from_pretrained,
    ):  # fmt: skip
        with pytest.raises(RequestError, match="a model is named by a string or a path, not by"):
            load(source)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"device": 3}, "device is 3"),
        ({"threads": "2"}, "threads is '2'"),
        ({"ctx_size": 12.5}, "ctx_size is 12.5"),
        ({"parallel": None}, "parallel is None"),
        ({"threads": 0}, "threads is 0"),
    ],
)
def test_wrong_types_of_loading_are_named(tiny_path: Path, options: Any, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        oxibonsai.load(tiny_path, **options)


def test_names_of_vllm(tiny_path: Path) -> None:
    with LLM(tiny_path, max_model_len=64, max_num_seqs=2) as made:
        assert made.engine.ctx_size == 64
    with pytest.raises(TypeError, match="tensor_parallel_size"):
        LLM(tiny_path, tensor_parallel_size=2)


def test_an_engine_is_closed_and_says_so(tiny_path: Path) -> None:
    with oxibonsai.load(tiny_path) as engine:
        assert "tiny.gguf" in repr(engine)
        assert "architecture='qwen3'" in repr(engine)
        text = engine.generate("abc", PARAMS)
        next(text)
    assert repr(engine) == "ChatEngine(closed)"
    for call in (
        lambda: engine.generate("abc", PARAMS),
        lambda: engine.logits([1]),
        lambda: engine.tokenizer,
    ):
        with pytest.raises(RequestError, match="has been closed"):
            call()
    assert list(text) == []
    engine.close()


def test_an_engine_that_another_thread_steps_is_not_closed(tiny_path: Path) -> None:
    pool = oxibonsai.EnginePool([oxibonsai.load(tiny_path)], parallel=1)
    with pytest.raises(RequestError, match="another thread"):
        pool.engines[0].close()
    pool.close()
    pool.engines[0].close()


def test_coroutines_share_steps_and_see_texts_grow(tiny_path: Path, llm: LLM) -> None:
    async def follow(made: AsyncLLM, prompt: str) -> list[str]:
        return [o.outputs[0].text async for o in made.generate(prompt, PARAMS)]

    async def main() -> list[list[str]]:
        async with AsyncLLM(tiny_path) as made:
            found = await asyncio.gather(*(follow(made, p) for p in ("abc", "xyz", "Once")))
            chat = [o.outputs[0].text async for o in made.chat(CHAT, PARAMS)]
            return [*found, chat]

    *found, chat = asyncio.run(main())
    for prompt, texts in zip(("abc", "xyz", "Once"), found, strict=True):
        assert texts[-1] == llm.generate(prompt, PARAMS)[0].outputs[0].text
        assert all(b.startswith(a) for a, b in pairwise(texts))
    assert chat[-1] == llm.chat(CHAT, PARAMS)[0].outputs[0].text


def test_a_cancelled_task_ends_its_request(tiny_path: Path) -> None:
    async def main() -> None:
        async with AsyncLLM(tiny_path) as made:

            async def run() -> None:
                endless = SamplingParams(max_tokens=500, ignore_eos=True)
                async for _ in made.generate("abc", endless):
                    started.set()

            started = asyncio.Event()
            task = asyncio.create_task(run())
            await started.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            with pytest.raises(RequestError, match="token id 9999"):
                async for _ in made.generate([9999], PARAMS):
                    pass
            while made.engine.has_work:
                await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(main(), 60))


def test_a_task_that_is_cancelled_while_its_prompt_is_read_leaves_nothing_running(
    tiny_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with AsyncLLM(tiny_path) as made:
            submit, reading, go_on = made.submit, threading.Event(), threading.Event()
            submitted: list[Request] = []

            def slowly(*arguments: Any) -> Request:
                reading.set()
                go_on.wait()
                submitted.append(submit(*arguments))
                return submitted[0]

            monkeypatch.setattr(made, "submit", slowly)
            endless = SamplingParams(max_tokens=500, ignore_eos=True)
            task = asyncio.create_task(anext(made.generate("abc", endless)))  # type: ignore[arg-type]
            await asyncio.to_thread(reading.wait)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            go_on.set()
            while not submitted or not submitted[0].sequences[0].finished:
                await asyncio.sleep(0.01)
            assert submitted[0].sequences[0].finish_reason == "cancelled"

    asyncio.run(asyncio.wait_for(main(), 60))


@pytest.mark.hf
def test_tensors_in_and_out(llm: LLM) -> None:
    torch = pytest.importorskip("torch")
    ids = torch.tensor([66, 65])
    logits = llm.engine.logits_torch(ids)
    assert torch.equal(logits, torch.from_numpy(llm.engine.logits([66, 65])))
    vectors = llm.engine.embeddings_torch(["abc"])
    assert torch.equal(vectors, torch.from_numpy(llm.engine.embed(["abc"])))
    assert llm.generate(ids, PARAMS)[0].prompt_token_ids == [66, 65]
    rows = torch.randn(5, llm.engine.model.config.hidden_size, generator=torch.manual_seed(1))
    (found,) = llm.generate({"prompt_embeds": rows}, PARAMS)
    given, options = llm.engine.embedded_prompt(rows)
    assert found.prompt is None
    assert found.outputs[0].token_ids == list(llm.engine.generate_tokens(given, PARAMS, options))


def test_the_package_lists_its_names_and_stays_light() -> None:
    assert set(dir(oxibonsai)) == set(oxibonsai.__all__)
    for name in oxibonsai.__all__:
        assert getattr(oxibonsai, name) is not None
    code = "import sys, oxibonsai; dir(oxibonsai); print({'numpy', 'torch'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
