"""A quantized file: whole, with the source's metadata, the same for any number of threads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

import float_model
import oxibonsai
import tiny_model
from oxibonsai import FormatError, RequestError, _core
from oxibonsai.checkpoint.gguf import GgufModel
from oxibonsai.imatrix import Entry, Imatrix
from oxibonsai.quantize import TypeRules, blocks, find_mix, make_plan, mix_names, quantize
from oxibonsai.split import split

IDS = list(range(20))
OWN_KEYS = {"general.file_type", "general.quantization_version"}


@pytest.fixture(scope="module")
def floats(tmp_path_factory: pytest.TempPathFactory) -> GgufModel:
    """The tiny model in float32."""
    path = tmp_path_factory.mktemp("floats") / "floats.gguf"
    float_model.write(path)
    return GgufModel.open(path)


def importance(file: GgufModel, **changes: Entry | None) -> Imatrix:
    """Random importance of all matrices."""
    random = np.random.default_rng(4)
    entries: dict[str, Entry | None] = {}
    for tensor in file.tensors:
        if len(tensor.shape) > 1:
            squares = random.uniform(0.1, 9, (1, tensor.shape[-1])).astype(np.float32)
            entries[tensor.name] = Entry(squares, np.full(1, 2, np.float32))
    entries |= changes
    kept = {name: e for name, e in entries.items() if e is not None}
    return Imatrix(kept, datasets=("a.txt", "b.txt"), chunk_count=7)


def contents(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Keys with their types, and tensors, by the public package."""
    reader = gguf.GGUFReader(path)
    keys = {k: (f.types, f.contents()) for k, f in reader.fields.items() if k[:5] != "GGUF."}
    return keys, {t.name: (t.tensor_type.name, t.data.tobytes()) for t in reader.tensors}


def test_matrices_are_encoded_and_the_rest_stays(floats: GgufModel, tmp_path: Path) -> None:
    out = tmp_path / "m.gguf"
    losses = quantize(floats, out, "q8_0")
    keys, tensors = contents(out)
    before = contents(floats.paths[0])
    assert list(tensors) == [t.name for t in floats.tensors]
    for name, (type_name, data) in tensors.items():
        if name.endswith("_norm.weight"):
            assert (type_name, data) == before[1][name]
        else:
            values = np.frombuffer(before[1][name][1], np.float32)
            shape = floats.tensor(name).shape
            truth = _core.encode(values.reshape(shape), "Q8_0")
            assert (type_name, data) == ("Q8_0", truth.tobytes())
    assert {k: v for k, v in keys.items() if k not in OWN_KEYS} == before[0]
    assert keys["general.file_type"][1] == 7
    assert keys["general.quantization_version"][1] == 2
    assert list(losses) == ["Q8_0"]
    assert 0.001 < losses["Q8_0"].relative < 0.01


def test_keys_that_say_how_it_is_quantized_are_replaced_where_they_stand(tmp_path: Path) -> None:
    odd = {"general.file_type": (99, "u32"), "odd": ([1.5], "arr[f32]")}
    tiny_model.write(tmp_path / "m.gguf", changes=odd)
    source = GgufModel.open(tmp_path / "m.gguf")
    quantize(source, tmp_path / "q.gguf", "q8_0")
    keys = contents(tmp_path / "q.gguf")[0]
    assert list(keys) == [*source.keys(), "general.quantization_version"]
    assert keys["general.file_type"][1] == 7
    quantize(source, tmp_path / "own.gguf", "pq2_0", pure=True)
    assert GgufModel.open(tmp_path / "own.gguf").get("general.file_type") is None


@pytest.mark.parametrize("type_name", ["q8_0", "q4_0", "f16"])
def test_bytes_do_not_depend_on_threads(
    type_name: str, floats: GgufModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quantize(floats, tmp_path / "1.gguf", type_name, imatrix=importance(floats))
    monkeypatch.setattr(blocks, "_SLAB_WEIGHTS", 1000)
    for threads in (2, 5):
        out = tmp_path / f"{threads}.gguf"
        quantize(floats, out, type_name, imatrix=importance(floats), threads=threads)
        assert out.read_bytes() == (tmp_path / "1.gguf").read_bytes()


@pytest.mark.parametrize("pure", [False, True])
@pytest.mark.parametrize("type_name", mix_names())
def test_every_type_runs(type_name: str, pure: bool, floats: GgufModel, tmp_path: Path) -> None:
    out = tmp_path / "m.gguf"
    quantize(floats, out, type_name, imatrix=importance(floats), pure=pure)
    found = {t.quant_type for t in GgufModel.open(out).tensors}
    assert find_mix(type_name).base in found or not pure
    assert np.isfinite(oxibonsai.load(out).logits(IDS)).all()


@pytest.mark.parametrize("type_name", ["q1_0", "q2_0", "pq2_0", "ptq1_0", "f32", "bf16"])
def test_binary_weights_survive_every_type_for_them(
    type_name: str, tiny_path: Path, tmp_path: Path
) -> None:
    source = GgufModel.open(tiny_path)
    plan = make_plan(source, TypeRules(find_mix(type_name), pure=True), None)
    assert not [w for w in plan.warnings() if "DESTROYS" in w]
    quantize(source, tmp_path / "other.gguf", type_name, pure=True)
    quantize(GgufModel.open(tmp_path / "other.gguf"), tmp_path / "back.gguf", "q1_0", pure=True)
    # bfloat16 has fewer bits than the scales.
    same = contents(tmp_path / "back.gguf")[1] == contents(tiny_path)[1]
    assert same == (type_name != "bf16")


@pytest.mark.parametrize(
    ("type_name", "least", "most"), [("q1_0", 58, 62), ("q2_0", 40, 90), ("tq2_0", 40, 95)]
)
def test_a_type_that_destroys_the_model_says_so_with_the_error(
    type_name: str, least: int, most: int, floats: GgufModel, tmp_path: Path
) -> None:
    warnings = make_plan(floats, TypeRules(find_mix(type_name)), None).warnings()
    assert "DESTROYS THIS MODEL" in warnings[0]
    said = int(warnings[0].split("Expected error of a weight: ")[1].split("%")[0])
    lost = quantize(floats, tmp_path / "m.gguf", type_name)[find_mix(type_name).base].relative
    # One bit of a normal distribution: the root of 1 - 2 / pi, 60 %.
    assert least <= said <= most
    assert said == pytest.approx(100 * lost, abs=2)


def test_what_is_quantized_already_is_said(floats: GgufModel, tiny_path: Path) -> None:
    rules = TypeRules(find_mix("q8_0"))
    assert make_plan(floats, rules, None).warnings() == []
    again = make_plan(GgufModel.open(tiny_path), rules, None)
    (said,) = again.warnings()
    assert said.startswith("the source holds weights that are quantized already (Q1_0)")
    assert again.warnings(allow_requantize=True) == []
    to_floats = make_plan(GgufModel.open(tiny_path), TypeRules(find_mix("f32")), None)
    assert to_floats.warnings() == []


def test_a_type_that_gives_way_names_the_tensors(floats: GgufModel) -> None:
    warnings = make_plan(floats, TypeRules(find_mix("tq1_0"), pure=True), None).warnings()
    wanted = (
        "TQ1_0 has groups of 256 weights, which do not divide the rows of 11 tensors; they become "
    )
    assert any(w.startswith(f"{wanted}Q4_0: token_embd.weight (128), blk.") for w in warnings)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_weight_that_is_not_finite_is_named(value: float, tmp_path: Path) -> None:
    weights = np.zeros((256, 128), np.float32)
    weights[201, 17] = value
    changed = {"blk.1.ffn_up.weight": (weights.shape, 0, weights.tobytes())}
    float_model.write(tmp_path / "m.gguf", tensors=changed)
    where = r"tensor blk\.1\.ffn_up\.weight holds -?(nan|inf) in row 201, column 17"
    with pytest.raises(FormatError, match=where):
        quantize(GgufModel.open(tmp_path / "m.gguf"), tmp_path / "q.gguf", "q8_0", threads=2)
    assert [p.name for p in tmp_path.iterdir()] == ["m.gguf"]


def test_a_weight_that_is_too_large_is_named(tmp_path: Path) -> None:
    weights = np.full((256, 128), 7e4, np.float32)
    changed = {"blk.1.ffn_up.weight": (weights.shape, 0, weights.tobytes())}
    float_model.write(tmp_path / "m.gguf", tensors=changed)
    with pytest.raises(FormatError, match=r"blk\.1\.ffn_up\.weight.* too large for F16"):
        quantize(GgufModel.open(tmp_path / "m.gguf"), tmp_path / "q.gguf", "f16")
    assert [p.name for p in tmp_path.iterdir()] == ["m.gguf"]


def test_shards_become_one_file(tiny_path: Path, tmp_path: Path) -> None:
    shards = split(tiny_path, tmp_path / "m", max_tensors=9)
    quantize(GgufModel.open(shards[2]), tmp_path / "q.gguf", "q8_0")
    quantize(GgufModel.open(tiny_path), tmp_path / "whole.gguf", "q8_0")
    assert (tmp_path / "q.gguf").read_bytes() == (tmp_path / "whole.gguf").read_bytes()


def test_a_source_is_never_overwritten(tiny_path: Path) -> None:
    before = tiny_path.read_bytes()
    with pytest.raises(RequestError, match="is the source: name another file"):
        quantize(GgufModel.open(tiny_path), tiny_path, "q8_0")
    assert tiny_path.read_bytes() == before


def test_an_interrupted_run_leaves_nothing(floats: GgufModel, tmp_path: Path) -> None:
    def stop(done: int, total: int) -> None:
        if done > total // 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        quantize(floats, tmp_path / "m.gguf", "q8_0", progress=stop)
    assert list(tmp_path.iterdir()) == []


def test_types_that_share_a_number_can_not_share_a_file(tiny_path: Path, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="both have the number 42"):
        quantize(
            GgufModel.open(tiny_path),
            tmp_path / "m.gguf",
            "tq2_0_g128",
            pure=True,
            patterns=[("ffn_up", "q2_0_g64")],
        )


def test_progress_counts_every_byte(floats: GgufModel, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    quantize(floats, tmp_path / "m.gguf", "q8_0", progress=lambda *p: told.append(p))
    assert [d for d, _ in told] == sorted(d for d, _ in told)
    total = sum(t.nbytes for t in GgufModel.open(tmp_path / "m.gguf").tensors)
    assert told[-1] == (total, total)


def test_importance_changes_what_is_kept_and_is_recorded(floats: GgufModel, tmp_path: Path) -> None:
    imatrix = importance(floats)
    quantize(floats, tmp_path / "even.gguf", "q4_0", pure=True)
    quantize(
        floats, tmp_path / "m.gguf", "q4_0", pure=True, imatrix=imatrix, imatrix_name="im.gguf"
    )
    keys, tensors = contents(tmp_path / "m.gguf")
    assert tensors != contents(tmp_path / "even.gguf")[1]
    name = "blk.0.ffn_up.weight"
    values = np.frombuffer(contents(floats.paths[0])[1][name][1], np.float32).reshape(-1, 128)
    truth = _core.encode(values, "Q4_0", imatrix.importance(name))
    assert tensors[name][1] == truth.tobytes()
    found = {k.removeprefix("quantize.imatrix."): v[1] for k, v in keys.items() if "imatrix" in k}
    assert found == {
        "file": "im.gguf",
        "dataset": "a.txt",
        "entries_count": len(imatrix.entries),
        "chunks_count": 7,
    }


def test_an_importance_matrix_of_another_model_is_refused(
    floats: GgufModel, tmp_path: Path
) -> None:
    short = Entry(np.ones((1, 64), np.float32), np.ones(1, np.float32))
    foreign = importance(floats, **{"blk.1.attn_k.weight": short})
    with pytest.raises(FormatError, match=r"64 columns for blk\.1\.attn_k\.weight, which has 128"):
        quantize(floats, tmp_path / "m.gguf", "q4_0", imatrix=foreign)
    lacking = importance(floats, **{"blk.1.attn_k.weight": None})
    notes = make_plan(floats, TypeRules(find_mix("q4_0")), lacking).warnings()
    assert any("no entry for 1 tensors" in n and "blk.1.attn_k.weight" in n for n in notes)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("threads", [0, -1])
def test_threads_are_checked(threads: int, floats: GgufModel, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="at least 1"):
        quantize(floats, tmp_path / "m.gguf", "q8_0", threads=threads)
