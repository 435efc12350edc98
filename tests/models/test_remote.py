"""Decoders that transformers does not have: llama.cpp's logits, and one arithmetic for all."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import oxibonsai
from oxibonsai import FormatError, UnsupportedError
from oxibonsai.architectures import rwkv7
from oxibonsai.convert.language_model import convert

pytest.importorskip("gguf", reason="needs gguf (extra: test)")
import conversions
import dense_models as dm
import plamo2_reference
import remote_folders
import remote_models
from make_llama_cpp_remote import RECORDED
from test_same_bytes import TIERS, check_threads, digest, digests_by_tier, random_ids

pytestmark = pytest.mark.hf
LLAMA_CPP = json.loads(RECORDED.read_text())


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("remote")
    paths = {c.name: folder / f"{c.name}.gguf" for c in remote_models.CASES}
    for case in remote_models.CASES:
        remote_models.write(case, paths[case.name])
    return paths


@pytest.mark.parametrize("case", remote_models.CASES, ids=lambda c: c.name)
def test_logits_are_those_of_llama_cpp(
    case: remote_models.RemoteCase, files: dict[str, Path]
) -> None:
    truth = np.array(LLAMA_CPP[case.name])
    found = oxibonsai.load(files[case.name]).logits(dm.IDS)[-len(truth) :]
    assert np.abs(truth[1] - truth[0]).mean() > 0.1  # logits that hardly change prove nothing
    assert np.abs(found - truth).max() <= case.distance * np.abs(truth).max()


def test_another_epsilon_of_heads_would_be_noticed(
    files: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    case = next(c for c in remote_models.CASES if c.name == "rwkv7")
    truth = np.array(LLAMA_CPP[case.name])
    monkeypatch.setattr(rwkv7, "HEAD_EPSILON", 1.1 * rwkv7.HEAD_EPSILON)
    found = oxibonsai.load(files[case.name]).logits(dm.IDS)[-len(truth) :]
    assert np.abs(found - truth).max() > 10 * case.distance * np.abs(truth).max()


def test_a_hybrid_may_begin_with_a_layer_that_does_not_attend(tmp_path: Path) -> None:
    case = next(c for c in remote_models.CASES if c.name == "plamo2")
    counts = {k: v[::-1] for k, v in case.keys.items() if isinstance(v, list)}
    other = replace(
        case,
        keys={**case.keys, **counts},
        own_layers=case.own_layers[::-1],
        own_vectors=case.own_vectors[::-1],
    )
    configs = []
    for i, order in enumerate((case, other)):
        remote_models.write(order, tmp_path / f"{i}.gguf")
        configs.append(oxibonsai.load(tmp_path / f"{i}.gguf").model.config.of_family)
    assert configs[1] == replace(configs[0], layer_types=configs[0].layer_types[::-1])


@pytest.mark.parametrize(
    "folder",
    [f for f in remote_folders.FOLDERS if f.converted_by_llama_cpp],
    ids=lambda f: f.name,
)
def test_the_converted_file_is_that_of_llama_cpp(
    folder: remote_folders.RemoteFolder, tmp_path: Path
) -> None:
    remote_folders.save(folder, tmp_path / "model")
    convert(tmp_path / "model", tmp_path / "model.gguf", dtype="f32")
    found = conversions.summary(tmp_path / "model.gguf")
    theirs = json.loads(conversions.RECORDED.read_text())[folder.name]
    assert found["tensors"] == theirs["tensors"]
    assert conversions.different_keys(found, theirs) == set(folder.differences)
    assert oxibonsai.load(tmp_path / "model.gguf").logits(dm.IDS[:9]).std() > 0.1


def tensors_of(path: Path) -> dict[str, np.ndarray]:
    import gguf

    return {t.name: t.data for t in gguf.GGUFReader(path).tensors}


def converted(name: str, folder: Path) -> tuple[Path, dict[str, np.ndarray]]:
    """The file of a folder, and what the folder holds."""
    from safetensors.numpy import load_file

    case = next(f for f in remote_folders.FOLDERS if f.name == name)
    remote_folders.save(case, folder / "model")
    convert(folder / "model", folder / "model.gguf", dtype="f32")
    return folder / "model.gguf", load_file(folder / "model" / "model.safetensors")


def test_baichuans_fused_projection_is_cut_and_put_into_pairs(tmp_path: Path) -> None:
    path, held = converted("baichuan", tmp_path)
    found, width = tensors_of(path), dm.HIDDEN // dm.HEADS
    q, k, v = np.split(held["model.layers.1.self_attn.W_pack.weight"], 3)
    for name, rows in (("q", q), ("k", k)):
        paired = rows.reshape(dm.HEADS, 2, width // 2, -1).swapaxes(1, 2).reshape(rows.shape)
        assert np.array_equal(found[f"blk.1.attn_{name}.weight"], paired)
    assert np.array_equal(found["blk.1.attn_v.weight"], v)
    assert np.array_equal(found["output.weight"], held["lm_head.weight"])
    assert oxibonsai.load(path).logits(dm.IDS[:9]).std() > 0.1


def rewritten(folder: Path, change: Callable[[dict[str, np.ndarray]], None]) -> None:
    """Gives a folder other parameters."""
    from safetensors.numpy import load_file, save_file

    held = load_file(folder / "model.safetensors")
    change(held)
    save_file(held, folder / "model.safetensors", metadata={"format": "pt"})


def test_older_folders_of_rwkv_have_the_shares_of_the_token_before_as_one(tmp_path: Path) -> None:
    path, _ = converted("rwkv7", tmp_path)
    wanted = conversions.summary(path)

    def stack(held: dict[str, np.ndarray]) -> None:
        for i in range(dm.LAYERS):
            names = [f"model.layers.{i}.attn.x_{letter}" for letter in "rwkvag"]
            held[f"model.layers.{i}.attn.x_x"] = np.concatenate([held.pop(n)[0] for n in names])

    rewritten(tmp_path / "model", stack)
    convert(tmp_path / "model", path, dtype="f32")
    assert conversions.summary(path) == wanted


def test_rwkvs_first_layer_has_the_matrices_of_its_rates_twice(tmp_path: Path) -> None:
    found = tensors_of(converted("rwkv7", tmp_path)[0])
    for number in range(3):
        rates, values = (found[f"blk.0.time_mix_{n}{number}.weight"] for n in "av")
        assert np.array_equal(rates, values)
        assert found[f"blk.1.time_mix_a{number}.weight"].std() > 0.0


def test_lings_layers_that_predict_further_tokens_are_left_out(tmp_path: Path) -> None:
    path, held = converted("bailing_moe_v2", tmp_path)
    wanted = conversions.summary(path)
    found = tensors_of(path)
    assert np.array_equal(
        found["blk.1.ffn_up_exps.weight"][5], held["model.layers.1.mlp.experts.5.up_proj.weight"]
    )
    assert np.array_equal(
        found["blk.1.exp_probs_b.bias"], held["model.layers.1.mlp.gate.expert_bias"]
    )
    rewritten(
        tmp_path / "model",
        lambda held: held.update(
            {f"model.layers.{i}.eh_proj.weight": np.eye(4, dtype=np.float32) for i in (2, 3)}
        ),
    )
    convert(tmp_path / "model", path, dtype="f32")
    assert conversions.summary(path) == wanted
    assert oxibonsai.load(path).logits(dm.IDS[:9]).std() > 0.1


def test_plamos_heads_that_share_a_key_come_together(tmp_path: Path) -> None:
    path, held = converted("plamo", tmp_path)
    found, width = tensors_of(path), dm.HIDDEN // dm.HEADS
    q, o = (held[f"model.layers.layers.0.self_attn.{p}_proj.weight"] for p in "qo")
    kv = dm.HEADS // 2
    for head in range(dm.HEADS):  # of the folder, where head h reads key h % kv
        place = head % kv * 2 + head // kv
        own, moved = (slice(i * width, (i + 1) * width) for i in (head, place))
        assert np.array_equal(found["blk.0.attn_q.weight"][moved], q[own])
        assert np.array_equal(found["blk.0.attn_output.weight"][:, moved], o[:, own])
    assert oxibonsai.load(path).logits(dm.IDS[:9]).std() > 0.1


def test_plamo2_begins_with_a_scan_and_attends_within_its_window(tmp_path: Path) -> None:
    path, _ = converted("plamo2", tmp_path)
    config = oxibonsai.load(path).model.config.of_family
    assert [config.attends(i) for i in range(2)] == [False, True]
    truth = plamo2_reference.logits(tmp_path / "model", dm.IDS)
    found = oxibonsai.load(path).logits(dm.IDS)
    assert np.abs(found - truth).max() <= 1e-4 * np.abs(truth).max()


@pytest.mark.parametrize("name", ["plamo2", "rwkv7"])
def test_a_folder_runs_with_the_bytes_of_its_file(name: str, tmp_path: Path) -> None:
    path, _ = converted(name, tmp_path)
    found = oxibonsai.load(tmp_path / "model").logits(dm.IDS)
    assert found.tobytes() == oxibonsai.load(path).logits(dm.IDS).tobytes()


@pytest.mark.parametrize(
    ("name", "key", "value", "error", "sentence"),
    [
        ("rwkv7", "norm_eps", 1e-6, UnsupportedError, "no place for an epsilon"),
        ("rwkv7", "head_dim", 32, UnsupportedError, "no place for an epsilon"),
        ("rwkv7", "attn", {"layers": [1]}, UnsupportedError, "attn"),
        ("rwkv7", "norm_first", False, UnsupportedError, "norm_first"),
        ("rwkv7", "hidden_act", "relu", UnsupportedError, "hidden_act"),
        ("rwkv7", "a_low_rank_dim", 25, FormatError, "asks for"),
        ("rwkv7", "num_hidden_layers", 3, FormatError, "lacks"),
        ("bailing_moe_v2", "num_shared_experts", 2, UnsupportedError, "num_shared_experts"),
        ("bailing_moe_v2", "num_shared_experts", None, FormatError, "num_shared_experts"),
        ("bailing_moe_v2", "score_function", "softmax", UnsupportedError, "score_function"),
        ("bailing_moe_v2", "use_qkv_bias", True, UnsupportedError, "use_qkv_bias"),
        ("bailing_moe_v2", "moe_intermediate_size", 24, FormatError, "asks for"),
        ("internlm3", "bias", True, UnsupportedError, "bias"),
        ("plamo2", "mamba_enabled", False, UnsupportedError, "mamba_enabled"),
        ("plamo2", "rms_norm_eps", 1e-5, UnsupportedError, "rms_norm_eps"),
        ("plamo2", "mamba_step", 1, FormatError, "mamba_step"),
        ("plamo2", "num_hidden_layers", 3, FormatError, "lacks"),
        ("plamo2", "full_attention_idx", [2], FormatError, "full_attention_idx"),
        ("plamo2", "attention_window_size", None, FormatError, "attention_window_size"),
        ("plamo2", "rope_theta", "high", FormatError, "rope_theta"),
        ("plamo2", "rope_scaling", {"type": "linear", "factor": 2}, UnsupportedError, "rope_type"),
        ("plamo2", "mamba_num_heads", 8, FormatError, "asks for"),
    ],
)
def test_what_cannot_be_converted_is_said(
    name: str, key: str, value: object, error: type[Exception], sentence: str, tmp_path: Path
) -> None:
    remote_folders.save(
        next(f for f in remote_folders.FOLDERS if f.name == name), tmp_path / "model"
    )
    file = tmp_path / "model" / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), key: value}))
    with pytest.raises(error, match=sentence):
        convert(tmp_path / "model", tmp_path / "model.gguf")


@pytest.mark.parametrize(
    ("changes", "theta"),
    [
        ({"rope_theta": 5000.0}, 5000.0),
        ({"rope_theta": None}, 10000.0),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 7e4}}, 7e4),
    ],
)
def test_plamo2s_rotation_is_read_where_folders_have_it(
    changes: dict[str, object], theta: float, tmp_path: Path
) -> None:
    folder = next(f for f in remote_folders.FOLDERS if f.name == "plamo2")
    remote_folders.save(folder, tmp_path / "model")
    file = tmp_path / "model" / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))
    convert(tmp_path / "model", tmp_path / "model.gguf")
    assert oxibonsai.load(tmp_path / "model.gguf").model.config.rope.theta == theta


@pytest.mark.parametrize("name", ["internlm2", "xverse", "baichuan"])
def test_what_has_llamas_layers_is_saved_as_a_llama(name: str, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="needs transformers and torch")
    path, _ = converted(name, tmp_path)
    model = oxibonsai.AutoModelForCausalLM.from_pretrained(path)
    model.save_pretrained(tmp_path / "saved")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "saved").eval()
    assert type(theirs).__name__ == "LlamaForCausalLM"
    found = model.logits(dm.IDS)
    assert np.abs(dm.logits(theirs, dm.IDS) - found).max() <= 1e-4 * np.abs(found).max()


def test_internlm3_is_a_llama_without_a_bias_behind_attention(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="needs transformers and torch")
    import transformers

    path, held = converted("internlm3", tmp_path)
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    known = {k: v for k, v in config.items() if k not in ("model_type", "architectures")}
    theirs = transformers.LlamaForCausalLM(transformers.LlamaConfig(**known, attention_bias=True))
    state = {name: torch.from_numpy(values) for name, values in held.items()}
    none = {
        name: torch.zeros_like(p)
        for name, p in theirs.named_parameters()
        if name.endswith("o_proj.bias")
    }
    assert len(none) == dm.LAYERS
    theirs.load_state_dict({**state, **none})
    truth = dm.logits(theirs.eval(), dm.IDS)
    for place in (path, tmp_path / "model"):
        engine = oxibonsai.load(place)
        found = engine.logits(dm.IDS)
        assert np.abs(found - truth).max() <= 1e-4 * np.abs(truth).max()
    assert engine.model.config.architecture == "llama"


def test_an_architecture_without_pictures_reads_no_embeddings(files: dict[str, Path]) -> None:
    engine = oxibonsai.load(files["orion"])
    with pytest.raises(UnsupportedError, match=r"inputs_embeds needs .* takes pictures"):
        engine.logits(inputs_embeds=np.zeros((2, dm.HIDDEN), np.float32))


def test_internlm3_without_biases_is_saved_as_a_llama(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="needs transformers and torch")
    biased = next(f for f in remote_folders.FOLDERS if f.name == "internlm3")
    layer = {name: shape for name, shape in biased.layer.items() if not name.endswith(".bias")}
    plain = replace(biased, config={**biased.config, "qkv_bias": False}, layer=layer)
    remote_folders.save(plain, tmp_path / "model")
    model = oxibonsai.AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    model.save_pretrained(tmp_path / "saved")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "saved").eval()
    found = model.logits(dm.IDS)
    assert np.abs(dm.logits(theirs, dm.IDS) - found).max() <= 1e-4 * np.abs(found).max()
    remote_folders.save(biased, tmp_path / "biased")
    model = oxibonsai.AutoModelForCausalLM.from_pretrained(tmp_path / "biased")
    with pytest.raises(UnsupportedError, match=r"its lack of blk\.0\.attn_output\.bias"):
        model.save_pretrained(tmp_path / "again")


@pytest.mark.parametrize("name", [c.name for c in remote_models.CASES])
def test_threads_chunks_and_company_do_not_change_a_byte(
    name: str, files: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = dm.IDS[:48]
    check_threads(files[name], ids, monkeypatch)
    engine = oxibonsai.load(files[name])
    whole = digest(engine.logits(ids, chunk_size=len(ids)))
    assert all(digest(engine.logits(ids, chunk_size=size)) == whole for size in (1, 7, 64))
    texts = [ids, *(random_ids(n, dm.VOCABULARY, seed=n) for n in (5, 33, 48))]
    alone = [digest(engine.logits(text)) for text in texts]
    assert [digest(rows) for rows in engine.logits_batch(texts, chunk_size=7)] == alone


@pytest.mark.slow
def test_every_tier_gives_the_bytes_of_scalar(files: dict[str, Path], tmp_path: Path) -> None:
    found = {t: digests_by_tier(t, dm.IDS[:48], list(files.values()), tmp_path) for t in TIERS}
    assert all(found[tier] == found["scalar"] for tier in TIERS)
