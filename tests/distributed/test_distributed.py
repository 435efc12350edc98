"""Several processes give the bytes of one, and strangers are refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs torch (extra: hf)")
pytest.importorskip("transformers", reason="needs transformers (extra: hf)")
import dense_models as dm
import drafting_models
import expert_models as em
import processes
import random_models as rm
import recurrent_models as rc
from answers import answers

from oxibonsai.convert.language_model import convert

pytestmark = [pytest.mark.slow, pytest.mark.hf]

ANSWERS = Path(__file__).parent / "answers.py"
PROGRAM = ("-m", "oxibonsai.distributed")
QUICK = ("--interface", "lo", "--group-timeout", "60", "--start-timeout", "240")
TIMEOUT = 240
SHARED_CORES = [
    pytest.mark.release,
    pytest.mark.long("more processes than cores, which meet 121 times a token"),
]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Dense ones of one and two bits, with experts, with latent attention, two with recurrent state,
    one that drafts.
    """
    folder = tmp_path_factory.mktemp("models")
    for name, quant_type in (("q1", "Q1_0"), ("pq2", "Q2_0_g128")):
        rm.build(rm.QWEN3, folder / f"{name}.gguf", quant_type)
    dm.save(em.CASES[0], folder / "experts")
    dm.save(next(c for c in em.CASES if c.name == "deepseek2-v3"), folder / "latent")
    for case in rc.CASES:
        if case.name in ("qwen35", "mamba2"):
            case.save(folder / case.name)
    for source in [p for p in folder.iterdir() if p.is_dir()]:
        convert(source, folder / f"{source.name}.gguf", dtype="q8_0")
    drafting_models.make("glm4moe", tmp_path_factory.mktemp("drafting")).path.rename(
        folder / "drafting.gguf"
    )
    return sorted(folder.glob("*.gguf"))


@pytest.fixture(scope="module")
def expected(models: list[Path]) -> dict[str, dict[str, object]]:
    found = {str(m): answers(m) for m in models}
    for of_model in found.values():
        assert of_model["texts"] == of_model["cached"]
        assert of_model["plain"] == of_model["drafted"]
        assert of_model["side_by_side"] == [of_model["texts"]] * 2
    return found


@pytest.mark.parametrize(
    ("tensor", "pipeline"),
    [pytest.param(3, 1, marks=pytest.mark.release), (1, 2), (2, 2)],
)
def test_answers_are_those_of_one_process(
    tensor: int,
    pipeline: int,
    models: list[Path],
    expected: dict[str, dict[str, object]],
) -> None:
    ranks = processes.start([ANSWERS, str(tensor), str(pipeline), *models], tensor * pipeline)
    results = processes.finish(ranks, TIMEOUT)
    assert [code for code, _, _ in results] == [0] * len(ranks), [r[2] for r in results]
    lines = [json.loads(line) for line in results[0][1].splitlines()]
    assert {line.pop("model"): line for line in lines} == expected


@pytest.fixture(scope="module")
def smollm2_answers(smollm2_path: Path) -> dict[str, object]:
    return answers(smollm2_path)


# Nine heads, of which keys and values have three: four processes have more than there are of these.
@pytest.mark.parametrize(
    ("tensor", "pipeline"),
    [
        (2, 1),
        (1, 3),
        pytest.param(3, 1, marks=SHARED_CORES),
        pytest.param(4, 1, marks=SHARED_CORES),
        *(pytest.param(1, p, marks=pytest.mark.release) for p in (2, 4)),
    ],
)
def test_smollm2_has_the_ids_and_logits_of_one_process(
    tensor: int, pipeline: int, smollm2_path: Path, smollm2_answers: dict[str, object]
) -> None:
    ranks = processes.start([ANSWERS, str(tensor), str(pipeline), smollm2_path], tensor * pipeline)
    results = processes.finish(ranks, TIMEOUT)
    assert [code for code, _, _ in results] == [0] * len(ranks), [r[2] for r in results]
    found = json.loads(results[0][1])
    assert found.pop("model") == str(smollm2_path)
    assert found == smollm2_answers


def test_another_file_or_secret_is_refused_by_every_rank(models: list[Path]) -> None:
    def command(model: Path) -> list[str | Path]:
        return [*PROGRAM, "run", "--tensor-parallel", "3", *QUICK, "-m", model, "-p", "a"]

    ranks = processes.start(
        command(models[0]),
        3,
        more={2: {processes.SECRET: "another"}},
        others={1: command(models[1])},
    )
    for rank, (code, out, err) in enumerate(processes.finish(ranks, TIMEOUT)):
        assert (code, out) == (2, "")
        (line,) = [x for x in err.splitlines() if x.startswith("oxibonsai")]
        if rank == 0:
            assert "rank 1 has another model file" in line
            assert "rank 2 has another secret" in line
        if rank == 1:
            assert "rank 0 has another model file" in line


def test_a_world_of_another_size_is_refused(tiny_path: Path) -> None:
    arguments = [*PROGRAM, "run", "--pipeline-parallel", "3", "-m", tiny_path, "-p", "a"]
    ((code, _, err),) = processes.finish(processes.start(arguments, 1), TIMEOUT)
    assert code == 2
    assert "torchrun has started 1 processes" in err
