"""Programs that measure models through a server: lm-eval and guidellm."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from running_server import RunningServer
from weather import MODEL, openai_url

from oxibonsai.hf import AutoModelForCausalLM, AutoTokenizer

# They warn of their own insides.
pytestmark = [pytest.mark.suite, pytest.mark.filterwarnings("ignore")]

ASKED = [
    {"question": "The capital of France is", "answer": 0},
    {"question": "The capital of Italy is", "answer": 1},
]
CHOICES = """
task: capitals
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{question}}}}"
doc_to_choice: [Paris, Rome]
doc_to_target: answer
metric_list: [{{metric: acc}}]
"""
TEXTS = """
task: sentences
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: generate_until
doc_to_text: "{{{{question}}}}"
doc_to_target: Paris
generation_kwargs: {{until: ["zz"], max_gen_toks: 8, do_sample: false}}
metric_list: [{{metric: exact_match}}]
"""


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tasks")
    data = folder / "asked.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in ASKED))
    for name, text in (("capitals", CHOICES), ("sentences", TEXTS)):
        (folder / f"{name}.yaml").write_text(text.format(data=data))
    return folder


def answers(model: Any, tasks: Path, *names: str, **options: Any) -> list[Any]:
    """What a model answered to each request of the tasks, in their order."""
    lm_eval = pytest.importorskip("lm_eval", reason="lm-eval is not installed")
    from lm_eval.tasks import TaskManager

    manager = TaskManager(include_path=str(tasks), include_defaults=False)
    found = lm_eval.simple_evaluate(
        model=model, tasks=list(names), task_manager=manager, bootstrap_iters=0, **options
    )
    return [sample["resps"] for name in names for sample in found["samples"][name]]


def test_lm_eval_over_http_is_lm_eval_in_the_process(
    smollm2_server: RunningServer, smollm2_path: Path, tasks: Path
) -> None:
    arguments = {
        "model": MODEL, "base_url": f"{openai_url(smollm2_server)}/completions",
        "tokenizer_backend": "remote", "num_concurrent": 2, "max_retries": 1,
    }  # fmt: skip
    served = answers("local-completions", tasks, "capitals", "sentences", model_args=arguments)
    from lm_eval.models.huggingface import HFLM

    model = AutoModelForCausalLM.from_pretrained(smollm2_path, ctx_size=4096)
    tokenizer = AutoTokenizer.from_pretrained(smollm2_path)
    inside = HFLM(pretrained=model.transformers_model, tokenizer=tokenizer.transformers_tokenizer)
    own = answers(inside, tasks, "capitals", "sentences")
    for mine, other in zip(served[:2], own[:2], strict=True):
        for (one,), (two,) in zip(mine, other, strict=True):
            assert float(one[0]) == pytest.approx(float(two[0]), abs=1e-3)
            assert str(one[1]) == str(two[1])
    assert served[2:] == own[2:]


def test_lm_eval_chats(smollm2_server: RunningServer, tasks: Path) -> None:
    arguments = {
        "model": MODEL, "base_url": f"{openai_url(smollm2_server)}/chat/completions",
        "num_concurrent": 2, "max_retries": 1,
    }  # fmt: skip
    found = answers(
        "local-chat-completions", tasks, "sentences", model_args=arguments,
        apply_chat_template=True,
    )  # fmt: skip
    assert all(text for ((text,),) in found)


def test_guidellm_measures_a_server(
    smollm2_server: RunningServer, smollm2_path: Path, tmp_path: Path
) -> None:
    if find_spec("guidellm") is None:
        pytest.skip("guidellm is not installed")
    AutoTokenizer.from_pretrained(smollm2_path).save_pretrained(tmp_path / "tokenizer")
    report = tmp_path / "report.json"
    target = openai_url(smollm2_server).removesuffix("/v1")
    command = [
        sys.executable, "-m", "guidellm", "run", "--disable-console",
        "--backend", f"kind=openai_http,target={target},model={MODEL}",
        "--tokenizer", f"kind=huggingface_auto,model={tmp_path / 'tokenizer'}",
        "--data", "kind=synthetic_text,prompt_tokens=32,output_tokens=8",
        "--profile", "kind=synchronous", "--constraint", "kind=max_requests,count=3",
        "--output", f"kind=json,path={report}",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    (benchmark,) = json.loads(report.read_text())["benchmarks"]
    assert len(benchmark["requests"]["successful"]) == 3
    assert benchmark["requests"]["errored"] == []
