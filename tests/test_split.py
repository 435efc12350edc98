"""Split models: written, opened from any shard, merged; what is out of place is named."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

import gguf_copy
import oxibonsai
import tiny_model
from oxibonsai import FormatError, OxiBonsaiError, RequestError, SourceError, _core
from oxibonsai.checkpoint import Checkpoint
from oxibonsai.checkpoint.gguf import GgufModel
from oxibonsai.split import merge, split

IDS = list(range(20))


def names(count: int) -> list[str]:
    return [f"m-{i:05d}-of-{count:05d}.gguf" for i in range(1, count + 1)]


@pytest.fixture
def shards(tiny_path: Path, tmp_path: Path) -> list[Path]:
    """The tiny model in three files."""
    return split(tiny_path, tmp_path / "m.gguf", max_tensors=9)


def test_any_shard_names_the_set_and_gives_the_same_logits(
    shards: list[Path], tiny_path: Path, tmp_path: Path
) -> None:
    assert [p.name for p in shards] == names(3)
    assert sorted(p.name for p in tmp_path.iterdir()) == names(3)
    truth = oxibonsai.load(tiny_path).logits(IDS)
    for source in [*shards, tmp_path]:
        assert oxibonsai.load(source).logits(IDS).tobytes() == truth.tobytes()


def test_shards_say_what_llama_cpps_splitter_says(shards: list[Path]) -> None:
    for i, path in enumerate(shards):
        reader = gguf.GGUFReader(path)
        keys = {k: (f.contents(), f.types[0].name) for k, f in reader.fields.items()}
        assert keys["split.no"] == (i, "UINT16")
        assert keys["split.count"] == (3, "UINT16")
        assert keys["split.tensors.count"] == (24, "INT32")
        assert ("general.architecture" in keys) == (i == 0)
        assert len(reader.tensors) == [9, 9, 6][i]


def contents(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Keys with their types, and tensors, by the public package."""
    reader = gguf.GGUFReader(path)
    keys = {k: (f.types, f.contents()) for k, f in reader.fields.items() if k[:5] != "GGUF."}
    return keys, {t.name: (t.tensor_type, t.data.tobytes()) for t in reader.tensors}


@pytest.mark.parametrize("limit", [{"max_tensors": 1}, {"max_bytes": 60_000}, {"max_tensors": 99}])
def test_merging_gives_every_key_and_tensor_back(
    limit: dict[str, int], tiny_path: Path, tmp_path: Path
) -> None:
    made = split(tiny_path, tmp_path / "m", **limit)
    merge([made[-1]], tmp_path / "merged.gguf")
    assert contents(tmp_path / "merged.gguf") == contents(tiny_path)
    assert (tmp_path / "merged.gguf").read_bytes() == tiny_path.read_bytes()


def test_another_alignment_and_arrays_of_all_kinds_survive(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(str(tmp_path / "odd.gguf"), "qwen3")
    writer.add_custom_alignment(256)
    writer.add_array("numbers", [1.5, -2.5])
    writer.add_array("texts", ["a", "\u4eca"])
    writer.add_uint64("large", 2**40)
    for i in range(5):
        writer.add_tensor(f"t{i}", np.arange(i + 1, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    made = split(tmp_path / "odd.gguf", tmp_path / "m", max_tensors=2)
    assert all(gguf.GGUFReader(p).alignment == 256 for p in made)
    merge(made[::-1], tmp_path / "merged.gguf")
    assert contents(tmp_path / "merged.gguf") == contents(tmp_path / "odd.gguf")


def test_shards_stay_below_the_size_but_for_a_tensor_that_is_larger(
    tiny_path: Path, tmp_path: Path
) -> None:
    sizes = [p.stat().st_size for p in split(tiny_path, tmp_path / "m", max_bytes=16_000)]
    assert len(sizes) > 2
    assert all(s <= 16_000 for s in sizes)
    made = split(tiny_path, tmp_path / "small", max_bytes=4_000)
    for path in made:
        assert path.stat().st_size <= 4_000 or len(_core.GgufFile(str(path)).tensors) == 1


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_a_missing_shard_is_named(missing: int, shards: list[Path], tmp_path: Path) -> None:
    shards[missing].unlink()
    for path in shards[:missing] + shards[missing + 1 :]:
        with pytest.raises(SourceError, match=f"lacks 1 of the 3 files .*: {names(3)[missing]}$"):
            oxibonsai.load(path)
        with pytest.raises(SourceError, match=names(3)[missing]):
            merge([path], tmp_path / "merged.gguf")


def test_a_duplicated_shard_is_named(shards: list[Path]) -> None:
    shutil.copy(shards[0], shards[1])
    with pytest.raises(FormatError, match=r"m-00002-of-00003.*m-00001-of-00003.*both shard 1 of 3"):
        oxibonsai.load(shards[2])


def test_exchanged_shards_are_named(shards: list[Path], tmp_path: Path) -> None:
    shards[1].rename(tmp_path / "x")
    shards[2].rename(shards[1])
    (tmp_path / "x").rename(shards[2])
    with pytest.raises(FormatError, match=r"m-00002-of-00003\.gguf is shard 3 .*its name is wrong"):
        oxibonsai.load(shards[0])


def test_a_shard_of_another_model_is_named_even_where_all_counts_agree(
    shards: list[Path], tmp_path: Path
) -> None:
    tiny_model.write(tmp_path / "other.gguf", seed=7)
    (tmp_path / "o").mkdir()
    foreign = split(tmp_path / "other.gguf", tmp_path / "o" / "m", max_tensors=9)
    shutil.copy(foreign[1], shards[1])
    with pytest.raises(FormatError, match=r"m-00002-of-00003\.gguf is a shard of another model"):
        oxibonsai.load(shards[0])


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        ("split.count", (2, "u16"), "another model: its split.count is 2"),
        ("split.count", ("3", "str"), "split.count is '3'"),
        ("split.no", ([1], "arr[i32]"), "no shard of a split model"),
        ("split.no", (True, "bool"), "split.no is True"),
        ("split.tensors.count", (25, "i32"), "another model: its split.tensors.count is 25"),
    ],
)
def test_lying_keys_are_said(
    key: str, value: tuple[Any, str], sentence: str, shards: list[Path], tmp_path: Path
) -> None:
    shards[1].rename(tmp_path / "true.gguf")
    gguf_copy.copy(tmp_path / "true.gguf", shards[1], keys={key: value})
    with pytest.raises(FormatError, match=f"m-00002-of-00003.gguf.*{sentence}"):
        GgufModel.open(shards[0])


def test_sets_of_llama_cpp_without_an_identity_are_checked_by_tensors(
    shards: list[Path], tmp_path: Path
) -> None:
    for path in shards:
        path.rename(tmp_path / "with")
        strip_identity(tmp_path / "with", path)
    truth = {t.name for t in GgufModel.open(shards[0]).tensors}
    assert len(truth) == 24
    first = _core.GgufFile(str(shards[0])).tensors[0]
    shards[1].rename(tmp_path / "with")
    strip_identity(tmp_path / "with", shards[1], extra=first)
    with pytest.raises(
        FormatError, match=f"00002-of.* holds the tensor {first.name}, which .*0000"
    ):
        GgufModel.open(shards[0])


def strip_identity(source: Path, target: Path, extra: Any = None) -> None:
    file = _core.GgufFile(str(source))
    writer = _core.GgufWriter(target.open("wb"))
    for key in file.keys():  # noqa: SIM118 - not a dict
        if key != "split.set":
            writer.copy_metadata(file, key)
    tensors = list(file.tensors)
    for tensor in tensors:
        writer.add_tensor(tensor.name, tensor.shape, tensor.gguf_id, tensor.nbytes)
    if extra is not None:
        writer.add_tensor(extra.name, extra.shape, extra.gguf_id, extra.nbytes)
    writer.write_header()
    for tensor in tensors:
        writer.write_tensor(file.tensor_bytes(tensor.name))
    if extra is not None:
        writer.write_tensor(np.zeros(extra.nbytes, np.uint8))
    writer.close()


def test_a_renamed_shard_says_what_it_is(shards: list[Path], tmp_path: Path) -> None:
    shutil.copy(shards[1], tmp_path / "renamed.gguf")
    with pytest.raises(FormatError, match=r"renamed\.gguf is shard 2 of 3 by its split.no"):
        oxibonsai.load(tmp_path / "renamed.gguf")


def test_shards_without_split_keys_are_refused(tiny_path: Path, tmp_path: Path) -> None:
    for name in names(2):
        shutil.copy(tiny_path, tmp_path / name)
    with pytest.raises(
        FormatError, match=r"m-00001-of-00002\.gguf: split.no is None: it is no shard"
    ):
        oxibonsai.load(tmp_path / names(2)[0])


@pytest.mark.parametrize("kept", [0, 10, 1000, -1])
def test_a_truncated_shard_is_named(kept: int, shards: list[Path]) -> None:
    shards[1].write_bytes(shards[1].read_bytes()[:kept])
    with pytest.raises(FormatError, match=r"m-00002-of-00003\.gguf"):
        oxibonsai.load(shards[0])


def test_merge_takes_all_shards_under_any_names_and_says_what_lacks(
    shards: list[Path], tiny_path: Path, tmp_path: Path
) -> None:
    moved = [p.rename(tmp_path / f"{letter}.gguf") for p, letter in zip(shards, "bca", strict=True)]
    merge(sorted(moved), tmp_path / "merged")
    assert (tmp_path / "merged").read_bytes() == tiny_path.read_bytes()
    with pytest.raises(RequestError, match="merge lacks 1 of 3 shards: 2"):
        merge([moved[0], moved[2]], tmp_path / "merged")
    with pytest.raises(RequestError, match="a shard twice"):
        merge([moved[0], moved[0], moved[1]], tmp_path / "merged")
    shutil.copy(moved[0], tmp_path / "d.gguf")
    with pytest.raises(FormatError, match="both shard 1 of 3"):
        merge([moved[0], moved[1], tmp_path / "d.gguf"], tmp_path / "merged")


def test_sources_are_never_overwritten(shards: list[Path], tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="one of the shards"):
        merge([shards[0]], shards[1])
    with pytest.raises(RequestError, match="overwritten by its own shards"):
        split(shards[0], tmp_path / "m", max_tensors=9)


@pytest.mark.parametrize("limits", [{}, {"max_bytes": 1, "max_tensors": 1}, {"max_tensors": 0}])
def test_limits_are_checked(limits: dict[str, int], tiny_path: Path, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="one of max_bytes and max_tensors"):
        split(tiny_path, tmp_path / "m", **limits)


def test_an_interrupted_split_leaves_nothing(tiny_path: Path, tmp_path: Path) -> None:
    def stop(done: int, total: int) -> None:
        if done > total // 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        split(tiny_path, tmp_path / "m", max_tensors=4, progress=stop)
    assert list(tmp_path.iterdir()) == []


def test_packed_weights_are_kept_for_a_set_and_depend_on_all_its_files(
    shards: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OXIBONSAI_CACHE", str(tmp_path / "cache"))
    before = Checkpoint(shards[0]).fingerprint()
    first = oxibonsai.load(shards[1], packed_cache=True).logits(IDS)
    assert oxibonsai.load(shards[0], packed_cache=True).logits(IDS).tobytes() == first.tobytes()
    data = bytearray(shards[2].read_bytes())
    data[-200] ^= 1
    shards[2].write_bytes(data)
    plain = oxibonsai.load(shards[0]).logits(IDS)
    assert oxibonsai.load(shards[0], packed_cache=True).logits(IDS).tobytes() == plain.tobytes()
    assert Checkpoint(shards[1]).fingerprint() != before


def test_one_shard_by_itself_shows_its_metadata(shards: list[Path]) -> None:
    alone = Checkpoint(shards[0], reader=GgufModel.open_alone(shards[0]))
    assert alone.architecture == "qwen3"
    assert len(alone.tensor_names) == 9


def test_any_flipped_byte_of_a_header_is_read_or_refused(shards: list[Path]) -> None:
    whole = shards[1].read_bytes()
    end = _core.GgufFile(str(shards[1])).tensors[0].offset
    random = np.random.default_rng(3)
    for at in random.integers(0, end, 300).tolist():
        damaged = bytearray(whole)
        damaged[at] ^= 1 << int(random.integers(8))
        shards[1].write_bytes(damaged)
        with suppress(OxiBonsaiError):
            GgufModel.open(shards[0])
