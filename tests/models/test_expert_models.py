"""Models with experts: logits against transformers, and the same bytes however they run."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt
import pytest

from oxibonsai import _core
from oxibonsai.checkpoint import Checkpoint
from oxibonsai.convert.language_model import convert
from oxibonsai.errors import OxiBonsaiError
from oxibonsai.models import Model, check_parity, load_model

pytest.importorskip("transformers", reason="needs transformers and torch (extra: test)")
import conversions
import dense_models as dm
import expert_models as em

import gguf_copy

pytestmark = pytest.mark.hf

Floats = npt.NDArray[np.float32]
TIERS = _core.cpu.tiers()
N = len(dm.IDS)
LLAMA_CPP = json.loads(conversions.RECORDED.read_text())
_BY_NAME = {c.name: c for c in em.CASES}
_GPT_OSS, _V3 = _BY_NAME["gpt-oss"], _BY_NAME["deepseek2-v3"]
TYPES = [(c, t) for c in em.CASES for t in ("f32", "q8_0")]
TYPES += [(c, t) for c in em.CASES if c.name in ("gpt-oss", "qwen3moe") for t in ("mxfp4",)]


@dataclass
class Made:
    """A case's folder, the logits of transformers, and its files by type."""

    folder: Path
    truth: Floats

    def file(self, dtype: str) -> Path:
        path = self.folder / f"{dtype}.gguf"
        if not path.exists():
            convert(self.folder, path, dtype=dtype)
        return path


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[dm.Case], Made]:
    found: dict[str, Made] = {}

    def make(case: dm.Case) -> Made:
        if case.name not in found:
            folder = tmp_path_factory.mktemp(case.name)
            model = dm.save(case, folder)
            found[case.name] = Made(folder, dm.logits(model, dm.IDS))
        return found[case.name]

    return make


def load(path: Path, tier: str = TIERS[-1], threads: int = 2) -> Model:
    return load_model(Checkpoint(path), _core.CpuDevice(threads, tier))


def run(model: Model, pages: _core.KvPages, *spans: tuple[int, int, int]) -> list[Floats]:
    """Logits of positions first .. last - 1 of each sequence."""
    batch = _core.Batch()
    for sequence, first, last in spans:
        own = list(range(2 * sequence, 2 * sequence + 2))
        batch.add(dm.IDS[first:last], first=first, pages=own, outputs=last - first)
    rows = model.run(batch, [pages])
    return np.split(rows, np.cumsum([b - a for _, a, b in spans])[:-1])


def logits(model: Model, chunk: int = N, kv: str = "f32") -> Floats:
    pages = model.new_pages(kv, 2)
    cut = [(0, a, min(a + chunk, N)) for a in range(0, N, chunk)]
    return np.concatenate([run(model, pages, span)[0] for span in cut])


@pytest.mark.parametrize("case", em.CASES, ids=lambda c: c.name)
def test_float_weights_give_the_logits_of_transformers(
    case: dm.Case, made: Callable[[dm.Case], Made]
) -> None:
    truth = made(case).truth
    assert truth.std(axis=0).mean() > 0.3  # logits that hardly change with the text prove nothing
    found = logits(load(made(case).file("f32")))
    assert np.abs(found - truth).max() <= 1e-4 * np.abs(truth).max()


@pytest.mark.parametrize("case", em.CASES, ids=lambda c: c.name)
def test_the_converted_file_is_that_of_llama_cpp(
    case: dm.Case, made: Callable[[dm.Case], Made]
) -> None:
    found, theirs = conversions.summary(made(case).file("f32")), LLAMA_CPP[case.name]
    assert found["tensors"] == theirs["tensors"]
    assert conversions.different_keys(found, theirs) == set(case.differences)


@pytest.mark.parametrize(("case", "dtype"), TYPES, ids=lambda v: getattr(v, "name", v))
def test_bytes_depend_on_the_text_alone(
    case: dm.Case, dtype: str, made: Callable[[dm.Case], Made]
) -> None:
    path = made(case).file(dtype)
    truth = logits(load(path, "scalar", 1)).tobytes()
    for tier in TIERS:
        model = load(path, tier, 3)
        for size in (1, 7, 64) if tier == TIERS[0] else (7,):
            assert logits(model, size).tobytes() == truth, f"{tier}, chunks of {size}"
        pages = model.new_pages("f32", 8)
        first = run(model, pages, (1, 0, 5), (0, 0, 64), (2, 0, 1), (3, 0, 40))
        then = run(model, pages, (3, 40, N), (2, 1, 3), (0, 64, N), (1, 5, 6))
        assert np.concatenate([first[1], then[2]]).tobytes() == truth, f"{tier}, in a batch"
        assert np.concatenate([first[3], then[0]]).tobytes() == truth, f"{tier}, in a batch"


@pytest.mark.parametrize("kv_type", ["f16", "q8_0", "q4_0"])
def test_a_latent_cache_gives_the_same_bytes_in_every_type(
    kv_type: str, made: Callable[[dm.Case], Made]
) -> None:
    path = made(_V3).file("f32")
    truth = logits(load(path, "scalar", 1), kv=kv_type)
    for tier in TIERS:
        assert logits(load(path, tier), 7, kv_type).tobytes() == truth.tobytes()


@pytest.mark.parametrize("case", [_GPT_OSS, _V3], ids=lambda c: c.name)
def test_the_parity_guard_finds_no_difference(
    case: dm.Case, made: Callable[[dm.Case], Made]
) -> None:
    model = load(made(case).file("q8_0"))
    check_parity(model, "full", "f16")


def test_a_latent_cache_holds_one_vector_a_token(made: Callable[[dm.Case], Made]) -> None:
    (layer, *others) = load(made(_V3).file("f32")).graph.paged_layers
    assert (layer.kv_heads, layer.key_dim, layer.value_dim, layer.value_in_key) == (1, 72, 64, True)
    assert all(other == layer for other in others)


_FP4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)


def test_mxfp4_of_a_folder_is_kept_as_it_is(
    made: Callable[[dm.Case], Made], tmp_path: Path
) -> None:
    from safetensors.numpy import load_file, save_file

    folder = tmp_path / "mxfp4"
    shutil.copytree(made(_GPT_OSS).folder, folder)
    tensors, random, wanted = load_file(folder / "model.safetensors"), np.random.default_rng(1), {}
    for name in [n for n in tensors if n.endswith(("experts.gate_up_proj", "experts.down_proj"))]:
        experts, columns, rows = tensors.pop(name).shape
        codes = random.integers(0, 256, (experts, rows, columns // 32, 16), dtype=np.uint8)
        scales = random.integers(121, 126, (experts, rows, columns // 32), dtype=np.uint8)
        tensors |= {f"{name}_blocks": codes, f"{name}_scales": scales}
        pairs = np.stack([_FP4[codes & 15], _FP4[codes >> 4]], axis=-1).reshape(*scales.shape, 32)
        values = pairs * np.exp2(scales.astype(np.float32) - 127)[..., None]
        wanted[name] = values.reshape(experts, rows, columns)
    save_file(tensors, folder / "model.safetensors")
    for dtype, stored in (("auto", "MXFP4"), ("f32", "F32")):
        convert(folder, tmp_path / f"{dtype}.gguf", dtype=dtype)
        found = {t.name: t for t in gguf.GGUFReader(tmp_path / f"{dtype}.gguf").tensors}
        for name, values in wanted.items():
            b = f"blk.{name.split('.')[2]}.ffn"
            parts = {f"{b}_down_exps.weight": values}
            if "gate_up" in name:
                parts = {
                    f"{b}_gate_exps.weight": values[:, ::2],
                    f"{b}_up_exps.weight": values[:, 1::2],
                }
            for tensor, part in parts.items():
                held = found[tensor]
                assert held.tensor_type.name == stored
                decoded = gguf.quants.dequantize(held.data, held.tensor_type)
                assert np.array_equal(decoded.reshape(part.shape), part)
    load(tmp_path / "auto.gguf")


# What an expert model's file could claim: each is one clear error.
HOSTILE = {
    "more experts of a token than there are": ({"expert_used_count": 9}, "9 experts of a token"),
    "no expert of a token": ({"expert_used_count": 0}, "expert_used_count is 0"),
    "no experts": ({"expert_count": 0}, "expert_count is 0"),
    "other experts than the tensors hold": ({"expert_count": 12}, "need"),
    "two thousand million experts": ({"expert_count": 2**31 - 8}, "more than a model may have"),
    "a width that the tensors lack": ({"expert_feed_forward_length": 64}, "need"),
    "groups that do not divide": ({"expert_group_count": 3}, "groups"),
    "more kept groups than groups": ({"expert_group_used_count": 5}, "groups"),
    "kept groups too small for a token": (
        {"expert_group_count": 8, "expert_group_used_count": 1}, "groups",
    ),
    "an unknown scoring": ({"expert_gating_func": 9}, "expert_gating_func is 9"),
    "a norm that is a number": ({"expert_weights_norm": 2.5}, "expert_weights_norm is 2.5"),
    "a negative scale": ({"expert_weights_scale": -1.0}, "not above zero"),
    "more dense layers than layers": ({"leading_dense_block_count": 2**32 - 1}, "lead"),
    "dense layers without tensors": ({"leading_dense_block_count": 2}, "lacks the tensor"),
    "shared experts of another width": ({"expert_shared_count": 3}, "need"),
    "a latent vector of another width": ({"attention.kv_lora_rank": 16}, "follow"),
    "heads that are all rotated": ({"attention.key_length_mla": 8}, "no latent attention"),
    "values of another width": ({"attention.value_length_mla": 24}, "need"),
    "keys for each head": ({"attention.head_count_kv": 4}, "no latent attention"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_file_that_claims_nonsense_is_refused(
    name: str, made: Callable[[dm.Case], Made], tmp_path: Path
) -> None:
    changed, message = HOSTILE[name]
    path = tmp_path / "changed.gguf"
    rewrite(made(_V3).file("f32"), path, {f"deepseek2.{k}": v for k, v in changed.items()})
    with pytest.raises(OxiBonsaiError, match=message):
        load(path)


def test_a_file_with_keys_and_values_in_one_matrix_gives_the_same_bytes(
    made: Callable[[dm.Case], Made], tmp_path: Path
) -> None:
    source, a = made(_V3).file("f32"), "deepseek2.attention"
    nope, value, rank = (
        int(_V3.options[key]) for key in ("qk_nope_head_dim", "v_head_dim", "kv_lora_rank")
    )
    tensors = {t.name: t for t in gguf.GGUFReader(source).tensors}
    more: dict[str, Floats] = {}
    left_out: dict[str, tuple[int, ...] | None] = {}
    for name in [n for n in tensors if n.endswith("attn_k_b.weight")]:
        other = name.replace("k_b", "v_b")
        keys = tensors[name].data.reshape(dm.HEADS, rank, nope).swapaxes(1, 2)
        values = tensors[other].data.reshape(dm.HEADS, value, rank)
        both = np.concatenate([keys, values], axis=1).reshape(-1, rank)
        more[name.replace("k_b", "kv_b")] = np.ascontiguousarray(both)
        left_out |= {name: None, other: None}
    path = tmp_path / "old.gguf"
    changed = {
        f"{a}.key_length_mla": None,
        f"{a}.value_length_mla": None,
        f"{a}.key_length": nope + int(_V3.options["qk_rope_head_dim"]),
        f"{a}.value_length": value,
        f"{a}.head_count_kv": dm.HEADS,
    }
    rewrite(source, path, changed, left_out, more)
    assert (logits(load(path)) == logits(load(source))).all()


@pytest.mark.parametrize("listed", [5, 6])
def test_a_layer_that_predicts_a_further_token_changes_nothing(
    listed: int, made: Callable[[dm.Case], Made], tmp_path: Path
) -> None:
    case = _BY_NAME["exaone-moe"]
    source, path = made(case).file("f32"), tmp_path / "predicting.gguf"
    names = {t.name: t for t in gguf.GGUFReader(source).tensors}
    own = {"eh_proj": (dm.HIDDEN, 2 * dm.HIDDEN)}
    own |= dict.fromkeys(("enorm", "hnorm", "shared_head_norm"), (dm.HIDDEN,))
    gguf_copy.copy(
        source, path,
        keys={
            "exaone-moe.block_count": (6, "u32"),
            "exaone-moe.nextn_predict_layers": (1, "u32"),
            "exaone-moe.attention.sliding_window_pattern":
                ([True, True, True, False, True, True][:listed], "arr[bool]"),
        },
        more={
            **{n.replace("blk.0.", "blk.5."): np.array(t.data) for n, t in names.items()
               if n.startswith("blk.0.")},
            **{f"blk.5.nextn.{n}.weight": np.ones(s, np.float32) for n, s in own.items()},
        },
    )  # fmt: skip
    assert logits(load(path)).tobytes() == logits(load(source)).tobytes()


@pytest.mark.parametrize(
    ("tensor", "order", "message"),
    [
        ("blk.1.ffn_gate_exps.weight", (2, 1, 0), "ffn_gate_exps"),
        ("blk.1.ffn_down_exps.weight", (1, 0, 2), "ffn_down_exps"),
        ("blk.1.attn_k_b.weight", (0, 2, 1), "attn_k_b"),
        ("blk.1.ffn_gate_inp.weight", (1, 0), "ffn_gate_inp"),
        ("blk.1.ffn_gate_inp.weight", None, "lacks the tensor blk.1.ffn_gate_inp.weight"),
        ("blk.2.ffn_up_exps.weight", None, "lacks the tensor blk.2.ffn_up_exps.weight"),
    ],
)
def test_tensors_of_experts_in_another_order_are_refused(
    tensor: str,
    order: tuple[int, ...] | None,
    message: str,
    made: Callable[[dm.Case], Made],
    tmp_path: Path,
) -> None:
    path = tmp_path / "changed.gguf"
    rewrite(made(_V3).file("f32"), path, {}, {tensor: order})
    with pytest.raises(OxiBonsaiError, match=message):
        load(path)


def rewrite(
    source: Path,
    target: Path,
    keys: dict[str, int | float | None],
    orders: dict[str, tuple[int, ...] | None] | None = None,
    more: dict[str, Floats] | None = None,
) -> None:
    """A copy with other values of keys, or without them, and tensors with their axes in another order or
    left out.
    """
    reader = gguf.GGUFReader(str(source))
    writer = gguf.GGUFWriter(str(target), "deepseek2")
    held = {
        k: (f.contents(), f.types) for k, f in reader.fields.items() if not k.startswith("GGUF")
    }
    held.pop("general.architecture")
    for key, value in keys.items():
        if value is None:
            held.pop(key)
            continue
        kind = gguf.GGUFValueType.UINT32 if isinstance(value, int) else gguf.GGUFValueType.FLOAT32
        held[key] = (value, [kind])
    for key, (value, types) in held.items():
        writer.add_key_value(key, value, types[0], sub_type=types[-1] if len(types) > 1 else None)
    for t in reader.tensors:
        order = (orders or {}).get(t.name, ())
        data = np.asarray(t.data).reshape(t.shape[::-1].tolist())
        if order is not None:
            writer.add_tensor(
                t.name, np.ascontiguousarray(data.transpose(order) if order else data)
            )
    for name, values in (more or {}).items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
