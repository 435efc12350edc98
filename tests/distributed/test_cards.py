"""Several cards share the rows of a model, or its layers: a process for each, with the CPU's bytes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs torch (extra: hf)")
pytest.importorskip("transformers", reason="needs transformers (extra: hf)")
import dense_models as dm
import expert_models as em
import processes
import recurrent_models as rc
from card_logits import answers

from native_build import build, needs_compiler
from oxibonsai import RequestError
from oxibonsai.convert.language_model import convert
from oxibonsai.distributed.session import Choice

PROGRAM = Path(__file__).parent / "card_logits.py"
TIMEOUT = 240


@pytest.fixture(scope="module")
def fake_library() -> Path:
    """A driver whose card computes on the CPU (tests/gpu/fake_cuda.cc)."""
    return build("native", target="fake_cuda") / "tests" / "native" / "libfake_cuda.so"


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory, tiny_path: Path) -> dict[str, Path]:
    """A dense one, one with experts, and one whose scans are split by heads."""
    folder = tmp_path_factory.mktemp("models")
    dm.save(em.CASES[0], folder / "experts")
    next(c for c in rc.CASES if c.name == "qwen35").save(folder / "recurrent")
    for name in ("experts", "recurrent"):
        convert(folder / name, folder / f"{name}.gguf", dtype="q8_0")
    return {p.stem: p for p in (tiny_path, *folder.glob("*.gguf"))}


@pytest.mark.slow
@pytest.mark.hf
@needs_compiler
@pytest.mark.parametrize(
    ("name", "tensor", "pipeline", "devices"),
    [
        ("tiny", 2, 1, ("cuda:0", "cuda:0")),
        *(
            pytest.param(*case, marks=pytest.mark.release)
            for case in (
                ("tiny", 2, 1, ("cpu", "cuda:0")),
                ("tiny", 1, 2, ("cuda:0", "cuda:0")),
                ("experts", 2, 1, ("cuda:0", "cuda:0")),
                ("recurrent", 2, 1, ("cuda:0", "cuda:0")),
            )
        ),
    ],
)
def test_processes_with_a_card_each_have_the_bytes_of_the_cpu(
    name: str,
    tensor: int,
    pipeline: int,
    devices: tuple[str, ...],
    models: dict[str, Path],
    fake_library: Path,
    tmp_path: Path,
) -> None:
    path, shares = models[name], (str(tensor), str(pipeline))
    variables = {
        "OXIBONSAI_LIBCUDA": str(fake_library),
        "OXIBONSAI_LIBNVRTC": str(fake_library),
        "OXIBONSAI_CACHE": str(tmp_path / "cache"),
    }
    ranks = processes.start(
        [],
        len(devices),
        more=dict.fromkeys(range(len(devices)), variables),
        others={r: [PROGRAM, *shares, device, path] for r, device in enumerate(devices)},
    )
    results = processes.finish(ranks, TIMEOUT)
    assert [code for code, _, _ in results] == [0] * len(ranks), [r[2] for r in results]
    assert json.loads(results[0][1]) == answers(path)


def test_each_process_of_a_machine_has_its_own_card(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert Choice("a.gguf", device="cuda").own_device() == "cuda:3"
    assert Choice("a.gguf", device="cuda:1").own_device() == "cuda:1"
    assert Choice("a.gguf").own_device() == "cpu"


@pytest.mark.parametrize("device", ["auto", "cuda:0,cuda:1"])
def test_a_choice_of_devices_for_one_process_is_refused(device: str) -> None:
    with pytest.raises(RequestError, match="start a process for each card, with --device cuda"):
        Choice("a.gguf", device=device).own_device()
