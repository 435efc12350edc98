"""Damaged adapters, in both forms: one clear error, or finite matrices that fit the model."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import gguf_files
import numpy as np
import pytest
import safetensors_files
from gguf_files import entry, gguf, string, tensor, u32
from hypothesis import given
from hypothesis import strategies as st
from mutations import JUNK, LittleMemory, edits, flips, ids, prefixes, refused

from oxibonsai.checkpoint import Checkpoint
from oxibonsai.convert.peft_config import read_peft_config
from oxibonsai.errors import FormatError, OxiBonsaiError, UnsupportedError
from oxibonsai.loading import open_adapters

TARGET = "blk.0.attn_k.weight"  # [128, 128] in the tiny model
RANK = 2
A, B = f"{TARGET}.lora_a", f"{TARGET}.lora_b"
_BYTES = 128 * RANK * 4
DATA = np.linspace(-1, 1, 2 * 128 * RANK, dtype=np.float32).tobytes()
Dims = tuple[int, ...]  # as GGUF has them, the fastest first
PARTS: dict[str, Dims] = {A: (128, RANK), B: (RANK, 128)}


def keys(**changes: bytes) -> tuple[bytes, ...]:
    """The metadata, with entries replaced, added or (empty) left out."""
    own = {
        "general.architecture": entry("general.architecture", 8, string("qwen3")),
        "general.type": entry("general.type", 8, string("adapter")),
        "adapter.type": entry("adapter.type", 8, string("lora")),
        "adapter.lora.alpha": _alpha(4.0),
    }
    return tuple(filter(None, {**own, **changes}.values()))


def _alpha(value: float) -> bytes:
    return entry("adapter.lora.alpha", 6, struct.pack("<f", value))


def adapter(parts: dict[str, Dims] = PARTS, data: bytes = DATA, **changes: bytes) -> bytes:
    """A file of float32 tensors, laid out as it must be; missing data are zeros."""
    laid, offset = [], 0
    for name, dims in parts.items():
        laid.append(tensor(name, dims, offset=offset))
        offset += -(-4 * math.prod(dims) // 32) * 32
    return gguf(keys(**changes), tuple(laid), data[:offset] + bytes(max(0, offset - len(data))))


VALID = adapter()


def _lies_of_keys() -> Iterator[tuple[str, str, bytes]]:
    """Cases: a name, what the error says, the file."""
    for value in (0.0, -0.0, -1.0, -1e-30, 2e9, np.inf, -np.inf, np.nan):
        changed = {"adapter.lora.alpha": _alpha(value)}
        yield f"alpha {value}", "lora.alpha is .*, not a number above 0", adapter(**changed)
    others = {"missing": b"", "a text": entry("adapter.lora.alpha", 8, string("4"))}
    others["true"] = entry("adapter.lora.alpha", 7, b"\1")
    others["a list"] = entry("adapter.lora.alpha", 9, u32(6) + struct.pack("<Qf", 1, 4.0))
    for name, value in others.items():
        changed = {"adapter.lora.alpha": value}
        yield f"alpha {name}", "lora.alpha is .*, not a number above 0", adapter(**changed)
    for kind in ("model", "ADAPTER", "", None):
        value = b"" if kind is None else entry("general.type", 8, string(kind))
        yield f"type {kind!r}", "it is no adapter", adapter(**{"general.type": value})
    value = entry("general.type", 4, u32(1))
    yield "a number for a type", "general.type is 1, not a text", adapter(**{"general.type": value})
    for name in ("llama", "qwen2", "", "qwen3 ", None):
        key = "general.architecture"
        value = b"" if name is None else entry(key, 8, string(name))
        yield f"architecture {name!r}", "for models of architecture", adapter(**{key: value})


def _lies_of_tensors() -> Iterator[tuple[str, str, bytes]]:
    yield "no tensors", "it changes nothing", adapter({})
    yield "no A", f"it has {B} but no {A}", adapter({B: PARTS[B]})
    yield "no B", f"it has {A} but no {B}", adapter({A: PARTS[A]})
    twice = (tensor(A, PARTS[A]), tensor(A, PARTS[A], offset=_BYTES))
    yield "A twice", A, gguf(keys(), twice, DATA)
    shapes = {
        "A of another width": ("lora_a has shape", (64, RANK), PARTS[B]),
        "B of other rows": ("lora_b has shape", PARTS[A], (RANK, 64)),
        "A of another rank": ("lora_b has shape", (128, 1), PARTS[B]),
        "B of another rank": ("lora_b has shape", PARTS[A], (1, 128)),
        "both turned": ("lora_a has shape", PARTS[B], PARTS[A]),
        "A a vector": ("no matrix", (256,), PARTS[B]),
        "B a vector": ("no matrix", PARTS[A], (256,)),
        "A a cube": ("no matrix", (128, RANK, 2), PARTS[B]),
        "rank 0": ("lora_a", (128, 0), (0, 128)),
    }
    for name, (said, a, b) in shapes.items():
        yield name, said, adapter({A: a, B: b})
    for other in ("blk.2.attn_k.weight", "blk.0.attn_x.weight", "x", "", "output.weight"):
        parts = {f"{other}.lora_a": PARTS[A], f"{other}.lora_b": PARTS[B]}
        yield f"a foreign tensor {other!r}", "does not have", adapter(parts)
    for value in (np.nan, np.inf, -np.inf):
        for at, part in ((0, A), (2 * 128 * RANK - 1, B)):
            changed = DATA[: 4 * at] + struct.pack("<f", value) + DATA[4 * at + 4 :]
            yield (
                f"{value} at {at}",
                f"{part} holds values that are not finite",
                adapter(data=changed),
            )
    yield "data cut", "a.gguf", VALID[:-1]


def _beyond() -> Iterator[tuple[str, str, bytes]]:
    """Sound files that ask for what is no plain LoRA."""
    key = entry("adapter.alora.invocation_tokens", 4, u32(1))
    yield "another method's key", "has the key adapter.alora", adapter(more=key)
    key = entry("adapter.lora.beta", 4, u32(1))
    yield "an unknown key", "has the key adapter.lora.beta", adapter(more=key)
    kind = entry("adapter.type", 8, string("control_vector"))
    yield "another method", "adapter.type is", adapter(**{"adapter.type": kind})
    yield "no method", "adapter.type is None", adapter(**{"adapter.type": b""})
    norm = {**PARTS, "blk.0.attn_norm.weight": (128,)}
    yield "a norm", "has the tensor blk.0.attn_norm.weight", adapter(norm)
    table = {"token_embd.weight.lora_a": (128, 1), "token_embd.weight.lora_b": (1, 300)}
    yield "the embedding", "the token embedding", adapter(table)
    norm = {"output_norm.weight.lora_a": (128, 1), "output_norm.weight.lora_b": (1, 1)}
    yield "a pair of a norm", "which is no matrix", adapter(norm)
    integers = (tensor(A, PARTS[A], kind=26), tensor(B, PARTS[B], offset=_BYTES))
    yield "integers", "has type I32", gguf(keys(), integers, DATA)


LIES = [*_lies_of_keys(), *_lies_of_tensors()]
BEYOND = list(_beyond())
MALFORMED = [*((n, d) for n, _, d in LIES), *((f"GGUF: {n}", d) for n, d in gguf_files.malformed())]


@pytest.fixture(scope="module")
def base(tiny_path: Path) -> Checkpoint:
    return Checkpoint(tiny_path)


def opened(path: Path, base: Checkpoint, files: Iterable[bytes]) -> int:
    """How many of the files open, all of each within what the model allows."""
    count = 0
    for data in files:
        path.write_bytes(data)
        if refused(lambda: open_adapters(path, base), repr(data)):
            continue
        count += 1
        (found,) = open_adapters(path, base)
        for target, pair in found.pairs.items():
            assert np.isfinite(pair.scale)
            assert pair.scale > 0
            assert (pair.b.rows, pair.a.cols) == base.shape(target)
            assert pair.a.rows == pair.b.cols
    return count


def test_there_are_enough_of_them() -> None:
    assert len(LIES) >= 40
    assert len(MALFORMED) >= 90


@pytest.mark.timeout(60)
@pytest.mark.parametrize("data", ids(MALFORMED))
def test_malformed_adapters_are_refused(data: bytes, base: Checkpoint, tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    path.write_bytes(data)
    with LittleMemory(), pytest.raises(FormatError) as error:
        open_adapters(path, base)
    assert "a.gguf" in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("name", "said", "data"), LIES, ids=[n for n, _, _ in LIES])
def test_lies_are_told(name: str, said: str, data: bytes, base: Checkpoint, tmp_path: Path) -> None:
    (tmp_path / "a.gguf").write_bytes(data)
    with pytest.raises(FormatError, match=said):
        open_adapters(tmp_path / "a.gguf", base)


@pytest.mark.parametrize(("name", "said", "data"), BEYOND, ids=[n for n, _, _ in BEYOND])
def test_other_kinds_of_adapters_are_refused(
    name: str, said: str, data: bytes, base: Checkpoint, tmp_path: Path
) -> None:
    (tmp_path / "a.gguf").write_bytes(data)
    with pytest.raises(UnsupportedError, match=rf"a\.gguf.*{said}"):
        open_adapters(tmp_path / "a.gguf", base)


def test_the_valid_adapter_opens(base: Checkpoint, tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    path.write_bytes(VALID)
    (found,) = open_adapters([(path, -0.5)], base)
    assert list(found.pairs) == [TARGET]
    assert found.pairs[TARGET].scale == 2.0
    assert found.scale == -0.5


def test_no_prefix_opens(base: Checkpoint, tmp_path: Path) -> None:
    assert opened(tmp_path / "a", base, prefixes(VALID, len(VALID))) == 0


def test_damage_gives_an_error_or_an_adapter_that_fits(base: Checkpoint, tmp_path: Path) -> None:
    header = len(VALID) - len(DATA)
    with LittleMemory():
        opened(tmp_path / "a", base, flips(VALID, header))
        assert opened(tmp_path / "a", base, edits(VALID, 2000, seed=3)) > 0  # in a weight, say


CONFIG = {"peft_type": "LORA", "r": RANK, "lora_alpha": 4, "target_modules": ["k_proj"]}
_MODULE = "base_model.model.model.layers.0.self_attn.k_proj"
TENSORS = safetensors_files.file(
    {
        f"{_MODULE}.lora_A.weight": safetensors_files.entry(0, _BYTES, (RANK, 128)),
        f"{_MODULE}.lora_B.weight": safetensors_files.entry(_BYTES, 2 * _BYTES, (128, RANK)),
    },
    DATA,
)


def peft_folder(folder: Path, config: Any = None, tensors: bytes = TENSORS) -> Path:
    text = config if isinstance(config, bytes) else json.dumps(config or CONFIG).encode()
    (folder / "adapter_config.json").write_bytes(text)
    (folder / "adapter_model.safetensors").write_bytes(tensors)
    return folder


@pytest.fixture(autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OXIBONSAI_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


def test_the_valid_folder_opens(base: Checkpoint, tmp_path: Path) -> None:
    (found,) = open_adapters(peft_folder(tmp_path), base)
    assert list(found.pairs) == [TARGET]
    assert found.pairs[TARGET].scale == 2.0


def test_malformed_safetensors_of_a_folder_are_refused(base: Checkpoint, tmp_path: Path) -> None:
    for name, data in safetensors_files.malformed():
        peft_folder(tmp_path, tensors=data)
        with pytest.raises(OxiBonsaiError) as error:
            open_adapters(tmp_path, base)
        assert "adapter_model.safetensors" in str(error.value), name
        assert "\n" not in str(error.value), name


def test_damaged_safetensors_of_a_folder_give_an_error_or_open(
    base: Checkpoint, tmp_path: Path
) -> None:
    count = 0
    for data in edits(TENSORS, 300, seed=4):
        peft_folder(tmp_path, tensors=data)
        count += not refused(lambda: open_adapters(tmp_path, base), repr(data))
    assert count > 0


@pytest.mark.parametrize(
    "field", [*CONFIG, "rank_pattern", "alpha_pattern", "use_rslora", "use_dora"]
)
def test_junk_in_a_configuration_gives_an_error_or_opens(
    field: str, base: Checkpoint, tmp_path: Path
) -> None:
    for value in JUNK:
        peft_folder(tmp_path, CONFIG | {field: value})
        refused(lambda: open_adapters(tmp_path, base), repr(value))


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[]", b"null", b"\xff", b"[" * 100_000, b'{"r": 1' + b"0" * 5000 + b"}"]
)
def test_a_configuration_that_is_none_is_refused(
    text: bytes, base: Checkpoint, tmp_path: Path
) -> None:
    with pytest.raises(OxiBonsaiError, match=r"adapter_config\.json"):
        open_adapters(peft_folder(tmp_path, text), base)


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["q_proj", "^a.b", "x*", ""]), inner, max_size=3)
    ),
    max_leaves=6,
)
_FIELDS = st.sampled_from([*CONFIG, "rank_pattern", "alpha_pattern", "use_rslora", "bias", "other",
                           "init_lora_weights"])  # fmt: skip


@given(changes=st.dictionaries(_FIELDS, _VALUES, max_size=4))
def test_any_configuration_is_refused_or_sound(
    changes: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = peft_folder(tmp_path_factory.getbasetemp(), CONFIG | changes)
    if refused(lambda: read_peft_config(folder), repr(changes)):
        return
    config = read_peft_config(folder)
    for module in ("model.layers.0.self_attn.q_proj", "a.b", "x"):
        assert config.rank_of(module) > 0
        assert 0 < config.full_alpha(module) < np.inf
