"""A run: it learns, goes on as if never ended, and its files hold what the network computes."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import Qwen3ForCausalLM

import oxibonsai
from oxibonsai.errors import FormatError, RequestError, UnsupportedError
from oxibonsai.train import NetworkShape, Sources, TrainSettings, train
from oxibonsai.train.checkpoints import found
from oxibonsai.train.data import TrainTokenizer
from oxibonsai.train.log import read_rows
from oxibonsai.train.network import exact_state, read_checkpoint, read_network
from oxibonsai.train.optimization import Objective

SETTINGS = TrainSettings(
    weight_format="q1_0",
    steps=6,
    batch=4,
    context=32,
    warmup=1,
    save_every=3,
    keep=0,
    precision="float32",
    seed=1,
)


@pytest.fixture(scope="module")
def binary_run(
    sources: Sources, shape: NetworkShape, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    out = tmp_path_factory.mktemp("runs") / "binary"
    train(out, sources, SETTINGS, shape)
    return out


@pytest.fixture(scope="module")
def float_run(
    sources: Sources, shape: NetworkShape, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    out = tmp_path_factory.mktemp("runs") / "float"
    settings = replace(SETTINGS, weight_format="float", steps=40, optimizer="adamw", save_every=20)
    train(out, sources, settings, shape)
    return out


def test_a_run_leaves_its_log_its_checkpoints_and_its_model(binary_run: Path) -> None:
    names = {p.name for p in binary_run.iterdir()}
    assert names == {
        "log.csv", "loss.png", "step-000003.pt", "step-000006.pt", "model", "binary.gguf",
    }  # fmt: skip
    rows = read_rows(binary_run / "log.csv")
    assert [r.step for r in rows] == [1, 2, 3, 4, 5, 6]
    assert [r.tokens for r in rows] == [128, 256, 384, 512, 640, 768]
    assert [r.held_out is not None for r in rows] == [False, False, True] * 2
    assert (binary_run / "loss.png").read_bytes().startswith(b"\x89PNG")


def test_a_network_learns(float_run: Path) -> None:
    held_out = [r.held_out for r in read_rows(float_run / "log.csv") if r.held_out is not None]
    assert held_out[0] > held_out[1]
    assert held_out[1] < 3.0  # of log(272) = 5.6 at the start


def test_a_resumed_run_ends_with_the_same_bytes(
    binary_run: Path, sources: Sources, shape: NetworkShape, tmp_path: Path
) -> None:
    out = tmp_path / "binary"
    out.mkdir()
    shutil.copy(binary_run / "step-000003.pt", out)
    # As a killed run leaves it: rows after the checkpoint, the last one not whole.
    lines = (binary_run / "log.csv").read_text().splitlines(keepends=True)
    (out / "log.csv").write_text("".join(lines[:5]) + lines[5][:9])
    train(out, sources, SETTINGS, shape, resume=True)
    for name in ("binary.gguf", "model/model.safetensors"):
        assert (out / name).read_bytes() == (binary_run / name).read_bytes(), name
    straight, resumed = read_rows(binary_run / "log.csv"), read_rows(out / "log.csv")
    assert [replace(r, tokens_per_second=0.0) for r in resumed] == [
        replace(r, tokens_per_second=0.0) for r in straight
    ]


def test_a_run_of_other_settings_is_not_resumed(
    binary_run: Path, sources: Sources, shape: NetworkShape
) -> None:
    other = replace(SETTINGS, seed=2, steps=9)
    with pytest.raises(RequestError, match="other settings: seed was 1, not 2, steps was 6, not 9"):
        train(binary_run, sources, other, shape, resume=True)


def test_a_run_of_other_sizes_is_not_resumed(
    binary_run: Path, sources: Sources, shape: NetworkShape
) -> None:
    with pytest.raises(RequestError, match=r"holds NetworkShape\(.*layers=1.*, not .*layers=2"):
        train(binary_run, sources, SETTINGS, replace(shape, layers=2), resume=True)


def test_a_finished_run_resumed_writes_the_same_again(binary_run: Path, sources: Sources) -> None:
    before = (binary_run / "binary.gguf").read_bytes()
    result = train(binary_run, sources, SETTINGS, resume=True)
    assert result.gguf.read_bytes() == before
    assert result.perplexity is not None


def test_a_tokenizer_that_no_file_can_hold_is_refused_before_the_first_step(
    sources: Sources, shape: NetworkShape, tmp_path: Path
) -> None:
    folder = tmp_path / "tokenizer"
    shutil.copytree(sources.tokenizer, folder)
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    tokenizer["pre_tokenizer"] = {"type": "Whitespace"}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises(UnsupportedError, match="pre-tokenizer"):
        train(tmp_path / "run", replace(sources, tokenizer=folder), SETTINGS, shape)
    assert not (tmp_path / "run").exists()


def test_only_the_newest_checkpoints_are_kept(
    sources: Sources, shape: NetworkShape, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    train(out, sources, replace(SETTINGS, steps=3, save_every=1, keep=2), shape)
    assert [p.name for p in found(out)] == ["step-000002.pt", "step-000003.pt"]


def test_a_folder_in_use_is_not_taken(
    binary_run: Path, sources: Sources, shape: NetworkShape, tmp_path: Path
) -> None:
    with pytest.raises(RequestError, match="is not empty: name another folder, or go on with"):
        train(binary_run, sources, SETTINGS, shape)
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(RequestError, match="is a file; name a folder for the run"):
        train(file, sources, SETTINGS, shape)


@pytest.mark.parametrize("weight_format", ["q1_0", "q2_0_g64", "pq2_0"])
def test_the_file_computes_what_the_network_does(
    weight_format: str, float_run: Path, sources: Sources, tmp_path: Path
) -> None:
    settings = replace(SETTINGS, weight_format=weight_format, steps=2, save_every=2)
    out = tmp_path / "run"
    result = train(out, replace(sources, init=float_run / "model"), settings)
    stored = read_checkpoint(out / "step-000002.pt")
    network = read_network(out / "step-000002.pt")
    exact = exact_state(network, weight_format)
    network.load_state_dict(exact)
    folder = Qwen3ForCausalLM.from_pretrained(out / "model", dtype=torch.float32)
    for name, value in folder.state_dict().items():
        assert torch.equal(value, exact[name]), name
    assert not torch.equal(stored["network"]["lm_head.weight"], exact["lm_head.weight"])

    ids = TrainTokenizer(sources.tokenizer).tokens(sources.texts)[:32]
    with torch.no_grad():
        expected = network(input_ids=torch.from_numpy(ids)[None]).logits[0]
    engine = oxibonsai.load(result.gguf)
    found_logits = torch.from_numpy(np.array(engine.logits(ids.tolist())))
    distance = torch.nn.functional.kl_div(
        found_logits.log_softmax(-1), expected.log_softmax(-1), reduction="none", log_target=True
    ).sum(-1)
    assert float(distance.mean()) < 1e-3
    assert engine.tokenizer.encode("The cat") == ids_of(sources, "The cat")


def ids_of(sources: Sources, text: str) -> list[int]:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(sources.tokenizer / "tokenizer.json"))
    ids: list[int] = tokenizer.encode(text).ids
    return ids


def test_parts_of_a_batch_add_up_to_its_gradient(
    sources: Sources, shape: NetworkShape, tmp_path: Path
) -> None:
    states = []
    for accumulate in (1, 2):
        settings = replace(
            SETTINGS, weight_format="float", steps=1, warmup=0, accumulate=accumulate
        )
        out = tmp_path / str(accumulate)
        train(out, sources, settings, shape)
        states.append(read_checkpoint(out / "step-000001.pt")["optimizers"][0]["state"])
    whole, parts = states
    for i in whole:
        assert torch.allclose(whole[i]["exp_avg"], parts[i]["exp_avg"], rtol=1e-3, atol=1e-6)


def test_a_teacher_is_learnt_from(
    float_run: Path, sources: Sources, shape: NetworkShape, tmp_path: Path
) -> None:
    """Told only the teacher's logits of its own init, a network stands still: there is no distance."""
    settings = replace(SETTINGS, weight_format="float", distill=1.0, steps=2, save_every=2)
    checkpoint = float_run / "step-000040.pt"
    both = replace(sources, init=checkpoint, teacher=checkpoint)
    train(tmp_path / "run", both, settings)
    rows = read_rows(tmp_path / "run" / "log.csv")
    assert abs(rows[0].loss) < 1e-5
    assert rows[0].entropy > 0.1
    assert rows[0].gradient_norm < 1e-2


def test_the_distance_is_the_mean_over_tokens_of_the_divergence(float_run: Path) -> None:
    teacher = read_network(float_run / "step-000040.pt")
    network = read_network(float_run / "step-000020.pt")
    windows = torch.arange(18).reshape(2, 9)
    with torch.no_grad():
        loss, entropy = Objective(network, teacher, distill=0.25, temperature=2.0)(windows)
        p, q = (n(input_ids=windows[:, :-1]).logits / 2.0 for n in (teacher, network))
        each = (p.softmax(-1) * (p.log_softmax(-1) - q.log_softmax(-1))).sum(-1)
    assert float(loss) == pytest.approx(0.75 * float(entropy) + 0.25 * 4.0 * float(each.mean()))


def test_pairs_of_arguments_that_make_no_run_are_refused(
    float_run: Path, sources: Sources, shape: NetworkShape, tmp_path: Path
) -> None:
    out, checkpoint = tmp_path / "run", float_run / "step-000040.pt"
    with pytest.raises(RequestError, match=r"distill is 0\.5 but there is no teacher"):
        train(out, sources, replace(SETTINGS, distill=0.5), shape)
    with pytest.raises(RequestError, match="a teacher but distill is 0"):
        train(out, replace(sources, teacher=checkpoint), SETTINGS, shape)
    with pytest.raises(RequestError, match="sizes are those of"):
        train(out, replace(sources, init=checkpoint), SETTINGS, shape)
    with pytest.raises(RequestError, match=r"context is 64; .* is made for 32"):
        train(out, replace(sources, init=checkpoint), replace(SETTINGS, context=64))
    assert not out.exists()


def test_weights_that_are_none_are_refused(
    sources: Sources, binary_run: Path, tmp_path: Path
) -> None:
    with pytest.raises(RequestError, match=r"neither a checkpoint \(.pt\) nor a folder"):
        read_network(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama"}))
    with pytest.raises(UnsupportedError, match="of type 'llama'; train knows qwen3"):
        read_network(tmp_path)
    broken = tmp_path / "step-000001.pt"
    broken.write_bytes((binary_run / "step-000003.pt").read_bytes()[:1000])
    with pytest.raises(FormatError, match="is no checkpoint of oxibonsai train"):
        read_network(broken)
