"""AutoModelForSeq2SeqLM beside transformers, on the same random weights."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oxibonsai
import tokenizer_folders
from oxibonsai import RequestError, UnsupportedError
from oxibonsai.hf import Seq2SeqLM, pipeline

pytest.importorskip("transformers", reason="needs transformers and torch (extra: test)")
import encoder_models as em
import torch
import transformers

pytestmark = pytest.mark.hf
IDS = torch.tensor([[5, 40, 61, 9, 33, 1], [77, 12, 50, 1, 0, 0], [8, 8, 90, 91, 14, 1]])
MASK = (IDS != 0).long()
LABELS = torch.tensor([[7, 9, 60, 1], [30, 1, -100, -100], [5, 5, 6, 1]])
TEXTS = ["Once upon a time", "the end", "Hello, world: it is a test"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A T5 with a tokenizer, whose vocabulary the model's rows have."""
    place = tmp_path_factory.mktemp("seq2seq") / "t5"
    tokens = tokenizer_folders.t5().get_vocab_size()
    case = em.SEQ2SEQ[1]
    ids = {"vocab_size": tokens, "pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0}
    em.save(replace(case, options={**case.options, **ids}), place)
    tokenizer_folders.FOLDERS["t5"].write(place)
    return place


@pytest.fixture(scope="module")
def theirs(folder: Path) -> Any:
    return transformers.AutoModelForSeq2SeqLM.from_pretrained(folder, dtype="float32").eval()


@pytest.fixture(scope="module")
def model(folder: Path) -> Seq2SeqLM:
    return oxibonsai.AutoModelForSeq2SeqLM.from_pretrained(folder)


def same(found: Any, truth: Any) -> None:
    assert found.shape == truth.shape
    assert found.dtype == truth.dtype
    assert (found - truth).abs().max() <= 1e-4 * truth.abs().max()


def test_logits_and_loss_are_those_of_transformers(model: Seq2SeqLM, theirs: Any) -> None:
    with torch.no_grad():
        truth = theirs(IDS, MASK, labels=LABELS)
        shown = theirs(IDS, MASK, decoder_input_ids=LABELS.clamp(min=0))
    found = model(IDS, MASK, labels=LABELS)
    same(found.logits, truth.logits)
    same(found.loss, truth.loss)
    same(model(IDS, MASK, LABELS.clamp(min=0)).logits, shown.logits)
    assert (truth.logits - shown.logits).abs().max() > 0.1
    assert [type(v) for v in model(IDS, MASK, labels=LABELS, return_dict=False)] == 2 * [
        torch.Tensor
    ]
    arrays = model(IDS.numpy(), MASK.numpy(), labels=LABELS.numpy())
    assert arrays.logits.tobytes() == found.logits.numpy().tobytes()


def test_a_text_has_the_same_bytes_in_any_company(model: Seq2SeqLM) -> None:
    decoded = LABELS.clamp(min=0)
    together = model(IDS, MASK, decoded).logits
    for i in range(len(IDS)):
        alone = model(IDS[i : i + 1, : MASK[i].sum()], None, decoded[i : i + 1]).logits
        assert torch.equal(alone[0], together[i])
    rolled = torch.nn.functional.pad(IDS, (3, 0)), torch.nn.functional.pad(MASK, (3, 0))
    assert torch.equal(model(*rolled, decoded).logits, together)
    long = torch.randint(2, 90, (1, 300), generator=torch.manual_seed(2))
    whole = model(IDS[:1], None, long).logits
    assert torch.equal(model(IDS[:1], None, long[:, :7]).logits, whole[:, :7])


@pytest.mark.parametrize(
    "options",
    [
        {"max_new_tokens": 9},
        {"max_length": 12},
        {"max_new_tokens": 9, "repetition_penalty": 1.8},
        {"max_new_tokens": 9, "min_new_tokens": 6},
    ],
    ids=", ".join,
)
def test_texts_are_continued_as_in_transformers(
    options: dict[str, Any], model: Seq2SeqLM, theirs: Any
) -> None:
    truth = theirs.generate(IDS, attention_mask=MASK, do_sample=False, **options)
    found = model.generate(IDS, attention_mask=MASK, do_sample=False, **options)
    assert found.tolist() == truth.tolist()
    assert len({tuple(row) for row in truth.tolist()}) > 1
    assert torch.equal(model.generate(IDS, do_sample=False, **options), found)  # pads are told
    config = transformers.GenerationConfig(do_sample=False, **options)
    assert torch.equal(model.generate(IDS, config), found)


def test_samples_are_drawn_by_their_seed(model: Seq2SeqLM) -> None:
    asked = {"do_sample": True, "seed": 4, "max_new_tokens": 8, "num_return_sequences": 2}
    found = model.generate(IDS.tolist(), **asked)
    assert found.shape[0] == 6
    assert np.array_equal(model.generate(IDS.numpy(), **asked), found)
    assert not np.array_equal(found[0], found[1])


def test_a_streamer_gets_the_tokens(model: Seq2SeqLM) -> None:
    class Noted:
        def __init__(self) -> None:
            self.seen: list[int] = []

        def put(self, value: Any) -> None:
            self.seen += value.reshape(-1).tolist()

        def end(self) -> None:
            self.seen.append(-1)

    noted = Noted()
    found = model.generate(IDS[:1], max_new_tokens=5, streamer=noted)
    assert noted.seen == [*found[0].tolist(), -1]


def test_the_pipeline_gives_what_transformers_decodes(folder: Path, theirs: Any) -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    inputs = tokenizer(TEXTS, padding=True, return_tensors="pt")
    truth = theirs.generate(**inputs, max_new_tokens=12, do_sample=False)
    wanted = tokenizer.batch_decode(truth, skip_special_tokens=True)
    made = pipeline("text2text-generation", model=folder, max_new_tokens=12)
    assert made(TEXTS) == [{"generated_text": text} for text in wanted]
    assert made(TEXTS[1], max_new_tokens=3)[0]["generated_text"] != wanted[1]
    (tokens,) = made(TEXTS[1], return_tensors=True)
    assert tokens["generated_token_ids"].tolist()[:4] == truth[1].tolist()[:4]
    assert len(set(wanted)) > 1  # random weights may say the same of two texts


def test_what_is_not_available_says_so(model: Seq2SeqLM) -> None:
    for call, kind, message in [
        (lambda: model.generate(IDS, num_beams=3), UnsupportedError, "num_beams"),
        (lambda: model.generate(IDS, bad_words_ids=[[4]]), UnsupportedError, "other options"),
        (lambda: model.generate(IDS, decoder_start_token_id=5), UnsupportedError, "starts with 0"),
        (lambda: model.generate(), RequestError, "input_ids is missing"),
        (lambda: model(labels=LABELS), RequestError, "input_ids is missing"),
        (lambda: model(IDS), RequestError, "decoder_input_ids or labels"),
        (lambda: model(IDS, labels=LABELS[:2]), RequestError, "3 texts, and 2"),
        (lambda: model(IDS, None, LABELS.abs(), labels=LABELS[:, :2]), RequestError, "labels have"),
        (lambda: model(IDS, labels=LABELS + 900), RequestError, "token id"),
        (lambda: model(IDS, labels=LABELS, output_attentions=True), UnsupportedError, "tiles"),
        (lambda: model(IDS, labels=LABELS, colour=3), TypeError, "'colour'"),
    ]:
        with pytest.raises(kind, match=message):
            call()
    assert torch.equal(
        pickle.loads(pickle.dumps(model))(IDS, MASK, labels=LABELS).logits,
        model(IDS, MASK, labels=LABELS).logits,
    )


def test_decoders_alone_have_no_logits_behind_an_encoder(tiny_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="no encoder in front"):
        oxibonsai.load(tiny_path).decoder_logits([[1]], [[1]])
