"""Folders of EAGLE-3: llama.cpp's conversion, the GGUF file's proposals, and folders that don't fit."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from safetensors.numpy import save_file

import oxibonsai
from oxibonsai import FormatError, RequestError, UnsupportedError
from oxibonsai.checkpoint import Checkpoint
from oxibonsai.cli.main import _group
from oxibonsai.convert.eagle3 import convert_drafter
from oxibonsai.convert.language_model import convert
from oxibonsai.engine import EagleDraft, Options
from oxibonsai.engine.sequence import Wanted
from oxibonsai.engine.speculation.methods import choose_speculation
from oxibonsai.errors import OxiBonsaiError
from oxibonsai.export import save_model
from oxibonsai.loading import open_model
from oxibonsai.models import Weights, read_config
from oxibonsai.models.drafting import OpenedTarget

sys.path.insert(0, str(Path(__file__).parents[1] / "models"))
import conversions
import eagle_folders
import rotated_models
from drafted_texts import DRAWN, GREEDY, IDS, run, target, write_targets
from eagle_drafters import Drafter
from eagle_folders import CASES, LAYERS_FIELD, SOME
from rotated_models import VOCABULARY

LLAMA_CPP = json.loads(eagle_folders.RECORDED.read_text())
TENSORS = "model.safetensors"


@pytest.fixture(scope="module")
def twins(tmp_path_factory: pytest.TempPathFactory) -> rotated_models.Twins:
    return write_targets(tmp_path_factory.mktemp("target"))


@pytest.fixture(scope="module")
def model(twins: rotated_models.Twins) -> Checkpoint:
    return Checkpoint(twins.changes["folder"] / "plain.gguf")


def opened(folder: Path, model: Checkpoint) -> Checkpoint:
    """The folder as ``-md`` opens it."""
    return open_model(folder, drafts_for=OpenedTarget(read_config(model), Weights(model)))


def whole(file: Checkpoint) -> dict[str, tuple[Any, ...]]:
    return {
        t.name: (t.quant_type, tuple(t.shape), file.file.tensor_bytes(t.name).tobytes())
        for t in file.file.tensors
    }


@pytest.mark.parametrize("name", CASES)
def test_the_converted_file_is_that_of_llama_cpp(
    name: str, model: Checkpoint, tmp_path: Path
) -> None:
    folder = CASES[name].write(tmp_path / "drafter")
    convert_drafter(folder, tmp_path / "drafter.gguf", model)
    found, theirs = eagle_folders.summary(tmp_path / "drafter.gguf"), LLAMA_CPP[name]
    assert found["tensors"] == theirs["tensors"]
    assert conversions.different_keys(found, theirs) == set()
    ours, factors = (np.array(s.get("factors", ())) for s in (found, theirs))
    assert ours.shape == factors.shape
    assert np.abs(ours - factors).max(initial=0) <= 1e-6 * factors.max(initial=0)


@pytest.mark.parametrize("name", CASES)
def test_a_folder_has_the_bytes_of_the_file(name: str, model: Checkpoint, tmp_path: Path) -> None:
    """Of the file that it converts to, and of the one that has the same tensors in GGUF's order."""
    case = CASES[name]
    folder = case.write(tmp_path / "drafter")
    convert_drafter(folder, tmp_path / "drafter.gguf", model)
    found, converted = opened(folder, model), Checkpoint(tmp_path / "drafter.gguf")
    assert whole(found) == whole(converted)
    keys = [k for k in converted.file.keys() if not k.startswith("tokenizer.")]  # noqa: SIM118
    assert found.file.keys() == keys
    for key in keys:
        assert np.array_equal(found.file.get(key), converted.file.get(key)), key
    vocabulary = [k for k in model.file.keys() if k.startswith("tokenizer.")]  # noqa: SIM118
    assert [*keys, *vocabulary] == converted.file.keys()
    for key in vocabulary:
        assert np.array_equal(converted.file.get(key), model.file.get(key)), key
    of_file = whole(Checkpoint(case.make().write(tmp_path / "other.gguf")))
    scaled = {n: v for n, v in whole(found).items() if n != "rope_freqs.weight"}
    assert scaled == of_file


@pytest.mark.parametrize("params", [GREEDY, DRAWN], ids=["greedy", "drawn"])
@pytest.mark.parametrize("name", ["of EAGLE", "of speculators"])
def test_texts_are_those_without_a_drafter_and_proposals_those_of_the_file(
    name: str, params: oxibonsai.SamplingParams, twins: rotated_models.Twins, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    case, engine = CASES[name], target(twins)
    folder, file = case.write(tmp_path / "drafter"), case.make().write(tmp_path / "drafter.gguf")
    wanted, _ = run(engine, [IDS], params, Options())
    proposals: list[list[list[int]]] = []
    propose = EagleDraft.propose

    def noted(draft: EagleDraft, asked: list[Wanted]) -> list[list[int]]:
        drafted = propose(draft, asked)
        proposals[-1] += drafted
        return drafted

    monkeypatch.setattr(EagleDraft, "propose", noted)
    for draft in (folder, file):
        proposals.append([])
        chosen = choose_speculation(engine, "auto", str(draft), length=4, threshold=0.0)
        assert chosen.kinds == ("draft-eagle3",)
        found, _ = run(engine, [IDS], params, Options(speculate=chosen.make))
        assert found == wanted
    assert proposals[0] == proposals[1]
    assert len({tuple(drafted) for drafted in proposals[0]}) > 5


@pytest.mark.parametrize(
    ("config", "layers"),
    [
        ({LAYERS_FIELD: [1, 2, 3]}, [1, 2, 3]),
        ({LAYERS_FIELD: None, "eagle_config": {LAYERS_FIELD: [0, 1, 2]}}, [1, 2, 3]),
        ({LAYERS_FIELD: [0, 1, 3], "eagle_config": {LAYERS_FIELD: [0, 1, 1]}}, [0, 1, 3]),
        ({LAYERS_FIELD: None, "eagle_config": {"use_aux_hidden_state": True}}, [2, 1, 0]),
    ],
)
def test_layers_are_inputs_at_the_top_and_outputs_within(
    config: dict[str, Any], layers: list[int], model: Checkpoint, tmp_path: Path
) -> None:
    folder = CASES["of EAGLE"].write(tmp_path / "drafter", **config)
    stated = opened(folder, model).file.get("eagle3.target_layers")
    assert list(stated) == layers


def test_a_drafter_that_names_no_class_is_known_by_its_fields(
    model: Checkpoint, tmp_path: Path
) -> None:
    changes = {"architectures": ["LlamaForCausalLM"], "rope_theta": None}
    folder = CASES["of EAGLE"].write(tmp_path / "drafter", **changes)
    assert opened(folder, model).architecture == "eagle3"
    assert opened(folder, model).file.get("eagle3.rope.freq_base") == 10000.0


def change_tensors(folder: Path, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    made = Drafter(hidden=128, target_hidden=128, vocabulary=VOCABULARY, ids=SOME).draw()
    save_file(change(made.parameters()), folder / TENSORS)


def offsets(ids: list[int]) -> Any:
    """Offsets of ids, of which the first ones are these."""
    found = SOME.copy()
    found[: len(ids)] = ids
    return found - np.arange(len(found))


@pytest.mark.parametrize(
    ("config", "error", "message"),
    [
        ({"target_hidden_size": 96}, FormatError, "of 96 columns .target_hidden_size., but .* has 128"),
        ({"draft_vocab_size": 149}, FormatError, "149 tokens .draft_vocab_size. need as many offsets"),
        ({"draft_vocab_size": 0}, FormatError, "draft_vocab_size is 0"),
        ({"num_hidden_layers": 2}, UnsupportedError, "2 layers; known are drafters of one"),
        ({LAYERS_FIELD: [0, 1, 9]}, FormatError, "layer 9, but .* has 3"),
        ({LAYERS_FIELD: [0, 1, -1]}, FormatError, "no list of the model's layers"),
        ({LAYERS_FIELD: "0, 1, 2"}, FormatError, "no list of the model's layers"),
        ({LAYERS_FIELD: None, "eagle_config": {LAYERS_FIELD: ["x"]}}, FormatError, "no list of"),
        ({LAYERS_FIELD: [0, 1]}, FormatError, "fc.weight"),
        ({"hidden_size": 64, "head_dim": 32}, FormatError, "columns|shape"),
        ({"norm_before_fc": True}, FormatError, "input_norm"),
        ({"norm_before_residual": "yes"}, FormatError, "norm_before_residual is 'yes'"),
        ({"attention_bias": True}, UnsupportedError, "attention_bias is True"),
        ({"rope_scaling": {"rope_type": "longrope"}}, UnsupportedError, "rope_type is 'longrope'"),
    ],
    ids=str,
)  # fmt: skip
def test_fields_that_do_not_fit_are_refused(
    config: dict[str, Any], error: type[OxiBonsaiError], message: str, model: Checkpoint,
    tmp_path: Path,
) -> None:  # fmt: skip
    folder = eagle_folders.Case({"ids": SOME}).write(tmp_path / "drafter", **config)
    with pytest.raises(error, match=message) as raised:
        opened(folder, model)
    assert str(folder) in str(raised.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t | {"d2t": offsets([0, 0])}, "d2t is no list of different tokens"),
        (lambda t: t | {"d2t": offsets([VOCABULARY])}, "d2t is no list of different tokens"),
        (lambda t: t | {"d2t": offsets([-1])}, "d2t is no list of different tokens"),
        (lambda t: t | {"d2t": t["d2t"].astype(np.float32)}, "d2t has shape .* and type F32"),
        (lambda t: t | {"d2t": t["d2t"][:-1].copy()}, "d2t has shape .149,. .* 150 tokens"),
        (lambda t: {n: v for n, v in t.items() if n != "d2t"}, "has no d2t, which says which"),
        (lambda t: {n: v for n, v in t.items() if n != "fc.weight"}, "fc.weight"),
        (lambda t: {n: v for n, v in t.items() if n != "lm_head.weight"}, "lm_head.weight|output"),
        (lambda t: t | {"layers.0.hidden_norm.weight": t["midlayer.hidden_norm.weight"]}, "two"),
        (lambda t: t | {"midlayer.more.weight": t["norm.weight"].copy()}, "midlayer.more.weight|more"),
        (lambda t: t | {"fc.weight": t["fc.weight"][:, :-1].copy()}, "fc"),
    ],
)  # fmt: skip
def test_tensors_that_do_not_fit_are_refused(
    change: Any, message: str, model: Checkpoint, tmp_path: Path
) -> None:
    folder = eagle_folders.Case({"ids": SOME}).write(tmp_path / "drafter")
    opened(folder, model)
    change_tensors(folder, change)
    with pytest.raises((FormatError, UnsupportedError), match=message) as raised:
        opened(folder, model)
    assert str(folder) in str(raised.value)


def test_a_drafter_is_no_model_and_a_model_no_drafter(
    twins: rotated_models.Twins, model: Checkpoint, tmp_path: Path
) -> None:
    folder = CASES["of EAGLE"].write(tmp_path / "drafter")
    with pytest.raises(UnsupportedError, match=r"is a drafter .* give it with --draft-model"):
        oxibonsai.load(folder)
    with pytest.raises(UnsupportedError, match="--target-model-dir"):
        convert(folder, tmp_path / "drafter.gguf")
    config = json.loads((folder / "config.json").read_text())
    del config["draft_vocab_size"]
    config["architectures"] = ["LlamaForCausalLM"]
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(RequestError, match="no drafter of EAGLE-3: its config"):
        convert_drafter(folder, tmp_path / "drafter.gguf", model)
    assert not (tmp_path / "drafter.gguf").exists()


@pytest.mark.hf
def test_pickled_weights_are_not_read_and_the_advice_works(
    model: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch", reason="needs torch (extra: test)")
    pytest.importorskip("safetensors.torch")
    folder = CASES["of EAGLE"].write(tmp_path / "drafter")
    wanted = whole(opened(folder, model))
    tensors = {n: torch.from_numpy(v) for n, v in CASES["of EAGLE"].make().parameters().items()}
    torch.save(tensors, folder / "pytorch_model.bin")
    (folder / TENSORS).unlink()
    pattern = r"are pickled \(pytorch_model.bin\), and pickles are never read: .* once with (.*)$"
    with pytest.raises(OxiBonsaiError, match=pattern) as raised:
        opened(folder, model)
    with pytest.raises(FormatError, match=pattern):
        convert_drafter(folder, tmp_path / "drafter.gguf", model)
    monkeypatch.chdir(folder)
    import safetensors.torch

    advice = str(raised.value).partition("once with ")[2]
    eval(advice, {"torch": torch, "safetensors": safetensors})
    assert whole(opened(folder, model)) == wanted


def test_matrices_of_halves_stay_halves(model: Checkpoint, tmp_path: Path) -> None:
    folder = eagle_folders.Case({"ids": SOME}).write(tmp_path / "drafter")
    exact = whole(opened(folder, model))
    change_tensors(
        folder, lambda ts: {n: v if n in ("d2t", "t2d") else v.astype(np.float16) for n, v in ts.items()}
    )  # fmt: skip
    found = whole(opened(folder, model))
    kinds = {name: kind for name, (kind, _, _) in found.items()}
    matrices = {n for n, (_, shape, _) in exact.items() if len(shape) == 2}
    assert kinds == {n: "F16" if n in matrices else "I64" if n == "d2t" else "F32" for n in exact}
    halves = np.frombuffer(found["blk.0.attn_q.weight"][2], np.float16)
    floats = np.frombuffer(exact["blk.0.attn_q.weight"][2], np.float32)
    assert np.array_equal(halves, floats.astype(np.float16))


def command(*line: str | Path) -> None:
    """Run ``oxibonsai``."""
    CliRunner().invoke(_group(), [str(part) for part in line], catch_exceptions=False)


def test_the_command_takes_the_model_as_a_file_or_a_folder(
    twins: rotated_models.Twins, model: Checkpoint, tmp_path: Path
) -> None:
    folder = CASES["of speculators"].write(tmp_path / "drafter")
    convert_drafter(folder, tmp_path / "wanted.gguf", model)
    out, path = tmp_path / "drafter.gguf", twins.changes["folder"] / "plain.gguf"
    command("convert", folder, out, "--target-model-dir", path)
    assert out.read_bytes() == (tmp_path / "wanted.gguf").read_bytes()
    save_model(model, tmp_path / "model")
    command("convert", folder, tmp_path / "again.gguf", "--target-model-dir", tmp_path / "model")
    assert whole(Checkpoint(tmp_path / "again.gguf")) == whole(Checkpoint(out))
    for option in ("--mmproj", "--onnx", "--base=x"):
        with pytest.raises(RequestError, match="--target-model-dir is for a drafter's folder"):
            command("convert", folder, tmp_path / "x.gguf", "--target-model-dir", path, option)
    with pytest.raises(RequestError, match="no drafter of EAGLE-3"):
        command("convert", tmp_path / "model", tmp_path / "x.gguf", "--target-model-dir", path)
    with pytest.raises(RequestError, match="an OXCK file holds a whole language model"):
        command("convert", folder, tmp_path / "x.oxck", "--target-model-dir", path)
    assert not (tmp_path / "x.gguf").exists()
