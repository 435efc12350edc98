"""lm-evaluation-harness on our engine, beside its own ``hf`` model on the same weights."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hf_folders import CASES, save

import adapters
import oxibonsai
import tiny_model
from oxibonsai.cli.main import _run
from oxibonsai.errors import RequestError
from oxibonsai.evaluate import Continuation, ContinuationScore, score_continuations

pytest.importorskip("torch", reason="needs torch")
pytest.importorskip("transformers", reason="needs transformers")
pytest.importorskip("lm_eval", reason="needs the extra eval: 150 MB and more with its libraries")

pytestmark = [pytest.mark.hf, pytest.mark.filterwarnings("ignore")]  # of the harness's libraries

TASKS = Path(__file__).parent / "tasks"
CONTEXT = 96
CONTEXTS = ["Hello there, ", "a b c d e f g " * 20, "", "the same one"]
TEXTS = [" x", " y", "abc def", "long one " * 5]


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("HF_DATASETS_OFFLINE", "HF_HUB_OFFLINE"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "datasets"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("random") / "model"
    save({c.name: c for c in CASES}["llama"], path)
    return path


@pytest.fixture(scope="module")
def ours(folder: Path) -> Any:
    return model(folder, batch_size=5)


@pytest.fixture(scope="module")
def theirs(folder: Path) -> Any:
    from lm_eval.models.huggingface import HFLM

    return HFLM(
        pretrained=str(folder), dtype="float32", device="cpu", batch_size=1, max_length=CONTEXT
    )


def model(path: Path, **arguments: Any) -> Any:
    from oxibonsai.evaluate.lm_eval_model import OxiBonsaiLM

    return OxiBonsaiLM(str(path), ctx=CONTEXT, kv_type="f32", **arguments)


def requests(kind: str, *arguments: tuple[Any, ...]) -> list[Any]:
    from lm_eval.api.instance import Instance

    return [Instance(request_type=kind, doc={}, arguments=a, idx=0) for a in arguments]


def pairs() -> list[Any]:
    return requests("loglikelihood", *((c, t) for c in CONTEXTS for t in TEXTS))


def test_likelihoods_are_those_of_hf(ours: Any, theirs: Any) -> None:
    found = ours.loglikelihood(pairs(), disable_tqdm=True)
    truth = theirs.loglikelihood(pairs(), disable_tqdm=True)
    assert [f[0] for f in found] == pytest.approx([t[0] for t in truth], rel=2e-6)
    assert [f[1] for f in found] == [t[1] for t in truth]


def test_likelihoods_with_an_adapter_are_those_of_hf(folder: Path, tmp_path: Path) -> None:
    import peft
    import torch
    from lm_eval.models.huggingface import HFLM
    from transformers import AutoModelForCausalLM

    base = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    config = peft.LoraConfig(r=4, lora_alpha=10, target_modules="all-linear", task_type="CAUSAL_LM")
    adapted = peft.get_peft_model(base, config)
    torch.manual_seed(1)
    for name, parameter in adapted.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(parameter, std=0.1)
    adapted.save_pretrained(tmp_path)
    theirs = HFLM(pretrained=adapted, tokenizer=str(folder), batch_size=1, max_length=CONTEXT)
    truth = [t[0] for t in theirs.loglikelihood(pairs(), disable_tqdm=True)]
    found = model(folder, batch_size=5, lora=str(tmp_path)).loglikelihood(
        pairs(), disable_tqdm=True
    )
    assert [f[0] for f in found] == pytest.approx(truth, rel=1e-5)
    plain = model(folder, batch_size=5).loglikelihood(pairs(), disable_tqdm=True)
    assert [f[0] for f in found] != pytest.approx([p[0] for p in plain], rel=1e-2)


def test_greedy_continuations_are_known(ours: Any) -> None:
    ids = ours.tok_encode("Hello")
    logits = ours.engine.logits(ids)[-1]
    order = logits.argsort()
    best, second = int(order[-1]), int(order[-2])
    after = int(ours.engine.logits([*ids, best])[-1].argmax())
    texts = [
        Continuation(tuple(ids), tokens)
        for tokens in (
            (best,),
            (second,),
            (best, after),
            (best, (after + 1) % 256),
            (second, after),
        )
    ]
    scores = dict(score_continuations(ours.engine, texts, parallel=5))
    assert [scores[i].is_greedy for i in range(5)] == [True, False, True, False, False]


def test_rolling_likelihoods_are_those_of_hf(ours: Any, theirs: Any) -> None:
    texts = requests("loglikelihood_rolling", ("Hello world, it's 2026! " * 20,), ("short",))
    found = ours.loglikelihood_rolling(texts, disable_tqdm=True)
    assert found == pytest.approx(theirs.loglikelihood_rolling(texts, disable_tqdm=True), rel=2e-6)


def all_scores(lm: Any, parallel: int, order: int = 1) -> list[ContinuationScore]:
    texts = [
        lm._continuation(list(range(5, 5 + n)), [7, 8, last])
        for n in (1, 3, 64, 65, 90)
        for last in (9, 10, 11)
    ][::order]
    scores = dict(score_continuations(lm.engine, texts, parallel=parallel))
    return [scores[i] for i in range(len(texts))][::order]


@pytest.mark.parametrize("parallel", [1, 2, 5])
def test_no_score_depends_on_the_batch(ours: Any, parallel: int) -> None:
    assert all_scores(ours, parallel) == all_scores(ours, 3)
    assert all_scores(ours, parallel, order=-1) == all_scores(ours, 3)


def test_pages_are_given_back(ours: Any) -> None:
    all_scores(ours, 5)
    assert ours.engine.cache.used_bytes == 0


def test_answers_are_the_engines_texts(ours: Any) -> None:
    prompts = ["Hello", "the same"]
    free = ours.generate_until(
        requests("generate_until", *((p, {"until": [], "max_gen_toks": 12}) for p in prompts)),
        disable_tqdm=True,
    )
    params = oxibonsai.SamplingParams(max_tokens=12, temperature=0.0)
    assert free == ["".join(ours.engine.generate(p, params)) for p in prompts]
    assert all(len(text) > 3 for text in free)
    stop = free[0][2]
    (cut,) = ours.generate_until(
        requests("generate_until", ("Hello", {"until": [stop], "max_gen_toks": 12})),
        disable_tqdm=True,
    )
    assert cut == free[0].split(stop)[0]


def test_what_is_unknown_is_refused_by_name(ours: Any, folder: Path) -> None:
    with pytest.raises(RequestError, match="no argument trust_remote_code, x;"):
        model(folder, x=1, trust_remote_code=True)
    with pytest.raises(RequestError, match="no argument num_beams"):
        ours.generate_until(requests("generate_until", ("a", {"num_beams": 4, "until": []})))
    with pytest.raises(RequestError, match="batch_size is many"):
        model(folder, batch_size="many")
    with pytest.raises(RequestError, match="loaded already: load it with ctx_size, kv_type"):
        type(ours)(ours.engine, ctx=CONTEXT, kv_type="f32")


def test_a_chat_template_is_the_models(tmp_path: Path) -> None:
    tiny_model.write(tmp_path / "tiny.gguf")
    lm = model(tmp_path / "tiny.gguf", batch_size=1)
    turns = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "The answer"}]
    asked = lm.apply_chat_template(turns[:1])
    assert asked == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    assert lm.apply_chat_template(turns, add_generation_prompt=False) == asked + "The answer"
    assert lm.tok_encode("<|im_end|>") == [257]


@pytest.fixture
def in_tasks() -> Iterator[None]:
    before = Path.cwd()
    os.chdir(TASKS)  # where the files of data are
    yield
    os.chdir(before)


@pytest.mark.slow  # the harness reads thousands of its own task files
@pytest.mark.usefixtures("in_tasks")
def test_the_command_writes_results_and_resumes(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    tiny_model.write(tmp_path / "tiny.gguf")
    out = tmp_path / "out"
    line = [
        "eval",
        str(tmp_path / "tiny.gguf"),
        "--include-path",
        ".",
        "-o",
        str(out),
        "--limit",
        "2",
    ]
    assert _run([*line, "--tasks", "oxi_choice,oxi_answer", "--resume"]) == 2
    assert "leave out --resume" in capfd.readouterr().err
    assert _run([*line, "--tasks", "oxi_choice,oxi_answer"]) == 0
    shown = capfd.readouterr().out
    assert "oxi_choice" in shown
    assert "Stderr" in shown
    first = json.loads((out / "results.json").read_text())["results"]
    assert first["oxi_choice"]["sample_len"] == 2
    assert _run([*line, "--tasks", "oxi_choice,oxi_answer", "--resume"]) == 0
    assert "Scoring" not in capfd.readouterr().err  # all answers are known
    assert json.loads((out / "results.json").read_text())["results"] == first
    adapter = tmp_path / "adapter.gguf"
    adapters.write(adapter, adapters.tensors_of(adapters.random_pairs()))
    adapted = [*line, "--tasks", "oxi_choice,oxi_answer", "--lora-scaled", f"{adapter}:0.5"]
    assert _run([*adapted, "--resume"]) == 2  # the answers are those of another model
    assert _run(adapted) == 0
    results = json.loads((out / "results.json").read_text())
    assert results["config"]["model_args"]["lora"] == [[str(adapter), 0.5]]


@pytest.mark.slow
def test_an_unknown_task_is_said(tiny_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert _run(["eval", str(tiny_path), "--tasks", "oxi_none"]) == 2
    assert "there is no task 'oxi_none'" in capfd.readouterr().err
