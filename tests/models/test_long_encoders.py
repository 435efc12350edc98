"""Encoders of long texts, whose tokens see a part of the others: BigBird and Longformer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import gguf_copy
import oxibonsai
from oxibonsai import FormatError, UnsupportedError, _core
from oxibonsai.checkpoint import Checkpoint
from oxibonsai.convert.language_model import convert
from oxibonsai.models import Model, load_model
from oxibonsai.models.passes import EMBED

pytest.importorskip("transformers", reason="needs transformers and torch (extra: test)")
import encoder_models as em
import torch

pytestmark = pytest.mark.hf
BLOCK, WINDOWS = 8, [24, 8]
# Up to (5 + 2 * 2) blocks, 72 tokens, BigBird has full attention.
BIG_BIRD = em.Encoder(
    "big-bird-long",
    "BigBird",
    {"block_size": BLOCK, "num_random_blocks": 2, "max_position_embeddings": 1104},
)
LONGFORMER = em.Encoder(
    "longformer-long",
    "Longformer",
    {
        "pad_token_id": 1,
        "type_vocab_size": 1,
        "attention_window": WINDOWS,
        "max_position_embeddings": 1102,
    },
)
IDS: list[int] = np.random.default_rng(5).integers(5, em.VOCABULARY, 1100).tolist()
# Over borders of blocks, of windows, and of the parts of 512 positions that attention has.
BLOCK_LENGTHS = (1, 7, 8, 9, 72, 73, 79, 80, 81, 88, 200, 600, 1024, 1100)
WINDOW_LENGTHS = (1, 7, 8, 9, 11, 12, 13, 23, 24, 25, 48, 200, 600, 1100)
Floats = npt.NDArray[np.float32]


class Case:
    """A folder, the file that it becomes, and transformers' model."""

    def __init__(self, encoder: em.Encoder, folder: Path) -> None:
        self.folder, self.file = folder / encoder.name, folder / f"{encoder.name}.gguf"
        self.truth = em.save(encoder, self.folder)
        convert(self.folder, self.file, dtype="f32")

    def states(self, *texts: list[int]) -> list[Floats]:
        """Of texts that transformers reads in one batch, with padding."""
        if hasattr(self.truth, "set_attention_type"):
            self.truth.set_attention_type("block_sparse")  # a short text changes it for good
        longest, pad = max(map(len, texts)), self.truth.config.pad_token_id
        ids = torch.tensor([t + [pad] * (longest - len(t)) for t in texts])
        mask = torch.tensor([[1] * len(t) + [0] * (longest - len(t)) for t in texts])
        more = {}
        if self.truth.config.model_type == "longformer":
            more["global_attention_mask"] = torch.eye(1, longest).expand(len(texts), -1).long()
        with torch.no_grad():
            found = self.truth(ids, attention_mask=mask, **more).last_hidden_state
        return [rows[: len(t)].numpy() for rows, t in zip(found, texts, strict=True)]


@pytest.fixture(scope="module")
def big_bird(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return Case(BIG_BIRD, tmp_path_factory.mktemp("encoders"))


@pytest.fixture(scope="module")
def longformer(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return Case(LONGFORMER, tmp_path_factory.mktemp("encoders"))


def load(path: Path) -> Model:
    return load_model(Checkpoint(path), _core.CpuDevice(2))


def run(model: Model, *texts: list[int]) -> list[Floats]:
    batch = _core.Batch()
    for ids in texts:
        batch.add(ids, outputs=len(ids))
    return np.split(
        model.program(EMBED).run(batch)["hidden"], np.cumsum([len(t) for t in texts])[:-1]
    )


def distance(found: Floats, truth: Floats) -> float:
    return float(np.abs(found - truth).max() / np.abs(truth).max())


@pytest.mark.parametrize("length", BLOCK_LENGTHS)
def test_big_bird_gives_the_states_of_transformers(big_bird: Case, length: int) -> None:
    (truth,) = big_bird.states(IDS[:length])
    assert distance(run(load(big_bird.file), IDS[:length])[0], truth) <= 1e-4


@pytest.mark.parametrize("length", WINDOW_LENGTHS)
def test_longformer_gives_the_states_of_transformers(longformer: Case, length: int) -> None:
    (truth,) = longformer.states(IDS[:length])
    assert distance(run(load(longformer.file), IDS[:length])[0], truth) <= 1e-4


def test_the_pattern_of_a_long_text_changes_its_states(big_bird: Case) -> None:
    (truth,) = big_bird.states(IDS[:200])
    big_bird.truth.set_attention_type("original_full")
    with torch.no_grad():
        full = big_bird.truth(torch.tensor([IDS[:200]])).last_hidden_state[0].numpy()
    assert distance(full, truth) > 0.01


def test_padding_changes_nothing(big_bird: Case, longformer: Case) -> None:
    # transformers pads BigBird's texts to whole blocks: those of as many blocks may share a batch.
    for case, lengths in ((big_bird, (75, 80, 73)), (longformer, (75, 13, 1, 200))):
        texts = [IDS[n : 2 * n] for n in lengths]
        for found, truth in zip(run(load(case.file), *texts), case.states(*texts), strict=True):
            assert distance(found, truth) <= 1e-4


def test_embeddings_are_made_of_these_states(big_bird: Case, longformer: Case) -> None:
    texts = [IDS[:200], IDS[:9]]
    for case in (big_bird, longformer):
        engine = oxibonsai.load(case.file, threads=2)
        of_folder = oxibonsai.load(case.folder, threads=1)
        for pooling in ("cls", "mean"):
            found = engine.embed(texts, pooling=pooling, normalize=False)
            for vector, ids in zip(found, texts, strict=True):
                (truth,) = case.states(ids)
                pooled = truth[0] if pooling == "cls" else truth.mean(axis=0)
                assert distance(vector, pooled) <= 1e-4
            alone = [of_folder.embed([t], pooling=pooling, normalize=False)[0] for t in texts]
            assert np.stack(alone).tobytes() == found.tobytes()


def test_a_longformer_of_sentence_transformers_has_no_global_tokens(tmp_path: Path) -> None:
    truth = em.save(LONGFORMER, tmp_path / "model")
    modules = [
        {"idx": 0, "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    ]
    (tmp_path / "model" / "modules.json").write_text(json.dumps(modules))
    (tmp_path / "model" / "1_Pooling").mkdir()
    pooling = {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}
    (tmp_path / "model" / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    convert(tmp_path / "model", tmp_path / "m.gguf", dtype="f32")
    assert not [n for n in Checkpoint(tmp_path / "m.gguf").tensor_names if "global" in n]
    with torch.no_grad():
        wanted = truth(torch.tensor([IDS[:100]])).last_hidden_state[0].numpy()
    assert distance(run(load(tmp_path / "m.gguf"), IDS[:100])[0], wanted) <= 1e-4


WORDS = ["\u2581tea", "\u2581is", "\u2581hot", "\u2581", "s", "t", "e", "a", "h", "o"]


def test_texts_are_framed_as_big_birds_tokenizer_frames_them(tmp_path: Path) -> None:
    from transformers import BigBirdTokenizer

    special = ["<pad>", "</s>", "<s>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]
    vocabulary = [(t, 0.0) for t in special] + [(t, -1.0 - i) for i, t in enumerate(WORDS)]
    tokenizer = BigBirdTokenizer(vocab=vocabulary)
    truth = em.save(
        em.Encoder(
            "m", "BigBird", {**BIG_BIRD.options, "num_labels": 1}, model="ForSequenceClassification"
        ),
        tmp_path / "m",
    )
    tokenizer.save_pretrained(tmp_path / "m")
    convert(tmp_path / "m", tmp_path / "m.gguf", dtype="f32")
    engine = oxibonsai.load(tmp_path / "m.gguf", threads=2)
    texts = ["tea is hot", "hot  teas", "the hat"]
    for text in texts:
        assert engine.tokenizer.encode(text) == tokenizer(text)["input_ids"]
    pairs = engine.ranker.pair_ids(texts[0], texts[1:])
    wanted = [tokenizer(texts[0], t)["input_ids"] for t in texts[1:]]
    assert [p.tokens for p in pairs] == wanted
    # The tokenizer gives no segments, so that both texts are of the first.
    found = engine.classify([(texts[0], t) for t in texts[1:]])
    scores = [em.scores(truth, ids) for ids in wanted]
    assert np.abs(found - np.stack(scores)).max() <= 1e-4


@pytest.mark.parametrize(
    ("name", "key", "value", "message"),
    [
        ("longformer", "attention.sliding_window", (0, "u32"), "not even and above 0"),
        ("longformer", "attention.sliding_window", (7, "u32"), "not even and above 0"),
        ("longformer", "attention.sliding_window", (-24, "i32"), "no counts of 2 layers"),
        ("longformer", "attention.sliding_window", ([24, 0], "arr[u32]"), "not even and above 0"),
        ("longformer", "attention.sliding_window", ([24], "arr[u32]"), "no counts of 2 layers"),
        ("longformer", "attention.sliding_window", ("all", "str"), "no counts of 2 layers"),
        ("longformer", "attention.global_token_count", (-1, "i32"), "not a positive count"),
        ("longformer", "attention.global_token_count", (1101, "u32"), "of a text of up to 1100"),
        ("longformer", "attention.global_token_count", (0, "u32"), "attn_k_global"),
        ("big-bird", "attention.block_size", (0, "u32"), "not a positive count"),
        ("big-bird", "attention.block_size", (-8, "i32"), "not a positive count"),
        ("big-bird", "attention.block_size", ([8, 4], "arr[u32]"), "differs from layer to layer"),
        ("big-bird", "attention.random_block_count", (-1, "i32"), "not a positive count"),
        ("big-bird", "attention.random_block_count", (65, "u32"), "known are 0 to 64"),
        ("big-bird", "hidden_activation", ("relu", "str"), "known are gelu, gelu_new"),
        ("big-bird", "embedding_scale", (-1.0, "f32"), "not above zero"),
        ("big-bird", "attention.sliding_window", (8, "u32"), "does not know"),
    ],
)
def test_a_key_that_makes_no_sense_is_one_typed_error(
    name: str,
    key: str,
    value: tuple[object, str],
    message: str,
    big_bird: Case,
    longformer: Case,
    tmp_path: Path,
) -> None:
    case = big_bird if name == "big-bird" else longformer
    gguf_copy.copy(case.file, tmp_path / "m.gguf", keys={f"{name}.{key}": value})
    with pytest.raises((FormatError, UnsupportedError), match=message):
        load(tmp_path / "m.gguf")


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("longformer", {"attention_window": 0}, "no even count above 0"),
        ("longformer", {"attention_window": 7}, "no even count above 0"),
        ("longformer", {"attention_window": [24, -8]}, "no even count above 0"),
        ("longformer", {"attention_window": [24]}, "lists 1 of 2 layers"),
        ("longformer", {"attention_window": None}, "no even count above 0"),
        ("longformer", {"attention_dilation": [1, 2]}, "windows without gaps"),
        ("longformer", {"hidden_act": "relu"}, "hidden_act"),
        ("big-bird", {"block_size": 0}, "block_size is 0"),
        ("big-bird", {"block_size": -8}, "block_size is -8"),
        ("big-bird", {"num_random_blocks": -1}, "num_random_blocks is -1"),
        ("big-bird", {"attention_type": "dense"}, "attention_type is 'dense'"),
        ("big-bird", {"is_decoder": True}, "is_decoder is True"),
        ("big-bird", {"hidden_act": "relu"}, "hidden_act is 'relu'"),
    ],
)
def test_a_configuration_that_makes_no_sense_is_one_typed_error(
    name: str,
    changes: dict[str, Any],
    message: str,
    big_bird: Case,
    longformer: Case,
    tmp_path: Path,
) -> None:
    folder = (big_bird if name == "big-bird" else longformer).folder
    (tmp_path / "m").mkdir()
    for path in folder.iterdir():
        (tmp_path / "m" / path.name).write_bytes(path.read_bytes())
    config = json.loads((folder / "config.json").read_text())
    (tmp_path / "m" / "config.json").write_text(json.dumps({**config, **changes}))
    with pytest.raises((FormatError, UnsupportedError), match=message):
        convert(tmp_path / "m", tmp_path / "m.gguf")
