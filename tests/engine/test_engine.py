"""The engine: the same bytes however a text is run, limits, errors, pages given back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import oxibonsai
import tiny_model
from oxibonsai import (
    CapacityError,
    FormatError,
    RequestError,
    SamplingParams,
    UnsupportedError,
)
from oxibonsai.engine import Engine

GREEDY = SamplingParams(temperature=0, max_tokens=12)
IDS = [int(i) for i in np.random.default_rng(0).integers(0, 256, 150)]


@pytest.fixture(scope="module")
def engine(tiny_path: Path) -> Engine:
    return oxibonsai.load(tiny_path)


def same(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and a.tobytes() == b.tobytes()


@pytest.mark.parametrize("kv_type", ["f32", "f16"])
def test_logits_do_not_depend_on_how_a_text_is_run(tiny_path: Path, kv_type: str) -> None:
    one = oxibonsai.load(tiny_path, threads=1, kv_type=kv_type)
    two = oxibonsai.load(tiny_path, threads=2, kv_type=kv_type)
    truth = one.logits(IDS)
    assert truth.dtype == np.float32
    assert truth.shape == (150, tiny_model.VOCABULARY)
    assert same(truth, two.logits(IDS))
    for size in (1, 7, 64):
        assert same(truth, two.logits(IDS, chunk_size=size))
    others = [IDS[::-1], IDS[:70], [5]]
    batch = two.logits_batch([others[0], IDS, others[1], others[2]])
    assert same(truth, batch[1])
    assert same(one.logits([5]), batch[3])


def test_prefill_and_decode_agree(engine: Engine) -> None:
    generated = list(engine.generate_tokens(IDS[:20], GREEDY))
    logits = engine.logits(IDS[:20] + generated)
    assert generated == np.argmax(logits[19:-1], axis=1).tolist()


def test_sequences_that_share_steps_get_the_text_they_get_alone(engine: Engine) -> None:
    params = SamplingParams(temperature=1, top_k=0, top_p=1, seed=3, max_tokens=20, ignore_eos=True)
    prompts = [IDS[:5], IDS[5:90], IDS[90:91]]
    alone = [list(engine.generate_tokens(p, params)) for p in prompts]
    sequences = [engine.submit(p, params) for p in prompts]
    while not all(s.finished for s in sequences):
        engine.step()
    assert [s.generated for s in sequences] == alone


def test_every_page_is_given_back(tiny_path: Path) -> None:
    engine = oxibonsai.load(tiny_path, parallel=1)
    for _ in range(5):
        list(engine.generate_tokens(IDS, GREEDY))
        stream = engine.generate_tokens(IDS, GREEDY)
        next(stream)
        stream.close()  # type: ignore[attr-defined]
        engine.logits(IDS)
    assert engine.cache.used_bytes == 0
    assert engine.cache.free_pages() == tiny_model.CONTEXT // 64


def test_finish_reasons(engine: Engine) -> None:
    sequence = engine.submit(IDS[:3], GREEDY)
    list(engine.follow_tokens(sequence))
    assert sequence.finish_reason in ("length", "stop")
    assert sequence.num_generated <= 12
    sequence = engine.submit(IDS[:3], SamplingParams(temperature=0, ignore_eos=True))
    tokens = list(engine.follow_tokens(sequence))
    assert len(tokens) == tiny_model.CONTEXT - 3
    assert sequence.finish_reason == "length"


def test_text_goes_in_and_out(engine: Engine) -> None:
    params = SamplingParams(temperature=0, max_tokens=5)
    text = "".join(engine.generate("ab c", params))
    tokens = list(engine.generate_tokens(engine.tokenizer.encode("ab c"), params))
    assert text == engine.tokenizer.decode(tokens)


def test_yarn_from_the_file_changes_the_logits(tiny_path: Path, tmp_path: Path) -> None:
    path = tmp_path / "yarn.gguf"
    tiny_model.write(
        path,
        changes={
            "qwen3.rope.scaling.type": ("yarn", "str"),
            "qwen3.rope.scaling.factor": (4.0, "f32"),
            "qwen3.rope.scaling.original_context_length": (128, "u32"),
        },
    )
    plain, yarn = oxibonsai.load(tiny_path), oxibonsai.load(path)
    assert not same(plain.logits(IDS), yarn.logits(IDS))
    assert plain.model.config.rope.scaling == "none"


def test_a_factor_without_a_type_scales_positions_linearly(tmp_path: Path) -> None:
    configs = []
    for key in ("qwen3.rope.scaling.factor", "qwen3.rope.scale_linear"):
        path = tmp_path / "linear.gguf"
        tiny_model.write(path, changes={key: (4.0, "f32")})
        configs.append(oxibonsai.load(path).model.config.rope)
    assert [(c.scaling, c.factor) for c in configs] == [("linear", 4.0)] * 2


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([], "the prompt is empty"),
        ([1] * 513, "513 tokens, more than the context of 512"),
        ([1, 300], "token id 300 at index 1 is outside the vocabulary of 300"),
        ([-1], "token id -1"),
    ],
)
def test_bad_prompts_are_refused_before_the_first_token(
    engine: Engine, ids: list[int], message: str
) -> None:
    for call in (lambda: engine.generate_tokens(ids, GREEDY), lambda: engine.logits(ids)):
        with pytest.raises(RequestError, match=message):
            call()


NAN_SCALE = b"\x00\x7e" + bytes(16)


@pytest.mark.parametrize(
    ("changes", "tensors", "error", "message"),
    [
        ({"general.architecture": ("unheard-of", "str")}, {}, UnsupportedError, "architecture unheard-of"),
        ({"general.architecture": None}, {}, FormatError, "general.architecture is missing"),
        ({"qwen3.block_count": None}, {}, FormatError, "qwen3.block_count is missing"),
        ({"qwen3.block_count": (3, "u32")}, {}, FormatError, "lacks the tensor blk.2"),
        ({"qwen3.block_count": (0, "u32")}, {}, FormatError, "block_count is 0"),
        ({"qwen3.block_count": (2**31 - 1, "u32")}, {}, FormatError, "block_count is 2147483647, of"),
        ({"qwen3.embedding_length": (64, "u32")}, {}, FormatError, "has shape"),
        ({"qwen3.attention.head_count": (3, "u32")}, {}, FormatError, "no multiple of 2"),
        ({"qwen3.new_trick": (1, "u32")}, {}, UnsupportedError, "the key qwen3.new_trick"),
        ({"qwen3.expert_count": (8, "u32")}, {}, UnsupportedError, "qwen3.expert_count"),
        ({"qwen3.rope.scaling.type": ("longrope", "str")}, {}, FormatError, "rope_factors_long.weight"),
        ({"qwen3.rope.scaling.type": ("su", "str")}, {}, UnsupportedError, "rope.scaling.type is 'su'"),
        ({"prism.hadamard.version": (3, "u32")}, {}, UnsupportedError, "hadamard.version is 3"),
        ({"qwen3.rope.freq_base": (float("nan"), "f32")}, {}, FormatError, "freq_base is nan"),
        ({}, {"blk.1.ffn_up.weight": None}, FormatError, "lacks the tensor blk.1.ffn_up.weight"),
        (
            {},
            {"blk.0.attn_q.bias": ((256,), 0, bytes(1024))},
            UnsupportedError,
            "tensor blk.0.attn_q.bias, which architecture qwen3 does not use",
        ),
        ({}, {"token_embd.weight": None}, FormatError, "lacks the tensor token_embd.weight"),
        (
            {},
            {"blk.0.attn_q.weight": ((256, 128), 41, NAN_SCALE * 256)},
            FormatError,
            "tensor blk.0.attn_q.weight has a scale or value that is not finite",
        ),
        (
            {},
            {"output_norm.weight": ((128,), 0, np.full(128, np.nan, np.float32).tobytes())},
            FormatError,
            "tensor output_norm.weight holds values that are not finite",
        ),
        ({}, {"blk.0.ffn_up.weight": ((256, 128), 10, bytes(84 * 128))}, FormatError, "rows of 128"),
    ],
)  # fmt: skip
def test_files_that_cannot_be_run_are_refused_by_name(
    changes: dict, tensors: dict, error: type[Exception], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "bad.gguf"
    tiny_model.write(path, changes=changes, tensors=tensors)
    with pytest.raises(error, match=message) as raised:
        oxibonsai.load(path)
    assert "\n" not in str(raised.value)


def test_a_vocabulary_only_file_has_no_weights(tmp_path: Path) -> None:
    path = tmp_path / "vocab.gguf"
    tiny_model.write(path, tensors=dict.fromkeys(tiny_model.shapes()))
    with pytest.raises(FormatError, match="a vocabulary but no weights"):
        oxibonsai.load(path)
    tokenizer = oxibonsai.AutoTokenizer.from_pretrained(path)
    assert tokenizer.decode(tokenizer.encode("abc")) == "abc"


def test_a_file_without_a_tokenizer_runs_on_ids(tiny_path: Path, tmp_path: Path) -> None:
    path = tmp_path / "bare.gguf"
    tiny_model.write(path, changes=dict.fromkeys(tiny_model.tokenizer_keys()))
    bare = oxibonsai.load(path)
    assert same(bare.logits(IDS), oxibonsai.load(tiny_path).logits(IDS))
    with pytest.raises(FormatError, match="has no tokenizer"):
        bare.generate("text", GREEDY)


def test_a_context_above_the_model_s_is_cut_with_a_warning(tiny_path: Path) -> None:
    with pytest.warns(UserWarning, match="ctx_size is 513, and this model takes 512 positions"):
        engine = oxibonsai.load(tiny_path, ctx_size=513)
    assert engine.ctx_size == 512


@pytest.mark.parametrize("size", [0, -1])
def test_the_context_must_fit_the_model(tiny_path: Path, size: int) -> None:
    with pytest.raises(RequestError, match="this model takes 1 to 512 positions"):
        oxibonsai.load(tiny_path, ctx_size=size)


def test_a_sequence_without_room_fails_alone(tiny_path: Path) -> None:
    engine = oxibonsai.load(tiny_path, parallel=1)
    rows = engine.iter_logits([*IDS, *IDS, *IDS], chunk_size=400)
    next(rows)  # holds most of the pages
    with pytest.raises(CapacityError, match="the KV cache is full"):
        list(engine.generate_tokens(IDS, GREEDY))
    rows.close()  # type: ignore[attr-defined]
    assert len(list(engine.generate_tokens(IDS, GREEDY))) > 0
    assert engine.cache.used_bytes == 0
