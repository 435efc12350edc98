"""AutoModel and AutoModelForSequenceClassification beside transformers, on the same random weights."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bert_folder
import oxibonsai
from oxibonsai import RequestError, UnsupportedError

pytest.importorskip("transformers", reason="needs transformers and torch (extra: test)")
import encoder_models as em
import torch
import transformers

pytestmark = pytest.mark.hf
TEXTS = ["hello world", "a", "unbelievable tea, a b c!", ""]
PAIRS = (["hello world", "a tea", "c"], ["a", "unbelievable tea!", "b a"])
LABELS = {
    "id2label": {"0": "no", "1": "maybe", "2": "yes"},
    "label2id": {"no": 0, "maybe": 1, "yes": 2},
}
SIDES = ("left", "right")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT that classifies, whose layers are those of an encoder, too."""
    config = {"architectures": ["BertForSequenceClassification"], **LABELS}
    place = tmp_path_factory.mktemp("bert") / "classifier"
    return bert_folder.write(place, config=config, weights=bert_folder.head(3))


@pytest.fixture(scope="module")
def plain_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bert_folder.write(tmp_path_factory.mktemp("bert") / "plain")


@pytest.fixture(scope="module")
def their_tokenizer(folder: Path) -> Any:
    return transformers.AutoTokenizer.from_pretrained(folder)


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Any:
    return oxibonsai.AutoTokenizer.from_pretrained(folder)


@pytest.fixture(scope="module")
def classifier(folder: Path) -> Any:
    return oxibonsai.AutoModelForSequenceClassification.from_pretrained(folder)


@pytest.fixture(scope="module")
def encoder(plain_folder: Path) -> Any:
    return oxibonsai.AutoModel.from_pretrained(plain_folder)


def close(found: Any, truth: Any) -> None:
    found, truth = np.asarray(found), np.asarray(truth)
    assert found.shape == truth.shape
    assert found.dtype == np.float32
    assert np.abs(found - truth).max() <= 1e-4 * np.abs(truth).max()


@pytest.mark.parametrize("texts", [(TEXTS,), PAIRS, (TEXTS[:1],)], ids=["texts", "pairs", "one"])
def test_tokenizers_of_encoders_give_the_same_columns(
    texts: Any, tokenizer: Any, their_tokenizer: Any
) -> None:
    theirs = their_tokenizer(*texts, padding=True, return_tensors="np")
    ours = tokenizer(*texts, padding=True, return_tensors="np")
    assert list(ours) == list(theirs)
    for name, column in theirs.items():
        assert np.array_equal(ours[name], column), name
    assert tokenizer.padding_side == their_tokenizer.padding_side == "right"


@pytest.mark.parametrize("texts", [(TEXTS,), PAIRS, (TEXTS[:1],)], ids=["texts", "pairs", "one"])
def test_last_hidden_state_is_that_of_transformers(
    texts: Any, encoder: Any, plain_folder: Path, tokenizer: Any
) -> None:
    theirs = transformers.AutoModel.from_pretrained(plain_folder).eval()
    inputs = tokenizer(*texts, padding=True, return_tensors="pt")
    with torch.no_grad():
        truth = theirs(**inputs).last_hidden_state
    found = encoder(**inputs).last_hidden_state
    assert isinstance(found, torch.Tensor)
    shown = inputs["attention_mask"].bool()
    close(found[shown], truth[shown])
    assert not found[~shown].any()


def test_token_types_change_the_states_of_an_encoder(encoder: Any, tokenizer: Any) -> None:
    inputs = tokenizer(*PAIRS, padding=True, return_tensors="np")
    typed = encoder(**inputs).last_hidden_state
    inputs["token_type_ids"] = np.zeros_like(inputs["token_type_ids"])
    assert np.abs(typed - encoder(**inputs).last_hidden_state).max() > 0.1


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("texts", [(TEXTS,), PAIRS], ids=["texts", "pairs"])
def test_padding_and_company_change_no_byte(
    texts: Any, side: Any, encoder: Any, classifier: Any, tokenizer: Any
) -> None:
    inputs = tokenizer(
        *texts, padding=True, padding_side=side, pad_to_multiple_of=16, return_tensors="np"
    )
    states, logits = encoder(**inputs).last_hidden_state, classifier(**inputs).logits
    for i, own in enumerate(zip(*texts, strict=True)):
        alone = tokenizer(*own, return_tensors="np")
        (state,) = encoder(**alone).last_hidden_state
        assert states[i][inputs["attention_mask"][i] == 1].tobytes() == state.tobytes()
        assert logits[i].tobytes() == classifier(**alone).logits[0].tobytes()


def test_what_comes_in_decides_what_comes_out(encoder: Any, tokenizer: Any) -> None:
    arrays = tokenizer(TEXTS, padding=True, return_tensors="np")
    tensors = tokenizer(TEXTS, padding=True, return_tensors="pt")
    lists = tokenizer(TEXTS, padding=True)
    found = [encoder(**inputs).last_hidden_state for inputs in (arrays, tensors, lists)]
    assert [type(f) for f in found] == [np.ndarray, torch.Tensor, np.ndarray]
    assert len({np.asarray(f).tobytes() for f in found}) == 1


def test_outputs_are_read_as_those_of_transformers(encoder: Any, classifier: Any) -> None:
    ids = np.array([[2, 5, 6, 3]])
    output = encoder(ids)
    assert output.pooler_output is None
    assert list(output.keys()) == ["last_hidden_state"]
    assert output[0] is output["last_hidden_state"] is output.last_hidden_state
    assert [v.shape for v in encoder(ids, return_dict=False)] == [(1, 4, bert_folder.HIDDEN)]
    assert [v.shape for v in classifier(ids).to_tuple()] == [(1, 3)]
    with pytest.raises(KeyError):
        output["pooler_output"]


@pytest.mark.parametrize(
    "labels",
    [[0, 2, -100], [[0.0, 1.0, 1.0], [0.5, 0.0, 0.0], [1.0, 1.0, 0.0]]],
    ids=["one-of", "some-of"],
)
def test_logits_and_loss_are_those_of_transformers(
    labels: Any, folder: Path, classifier: Any, tokenizer: Any
) -> None:
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    inputs = tokenizer(*PAIRS, padding=True, return_tensors="pt")
    with torch.no_grad():
        truth = theirs(**inputs, labels=torch.tensor(labels))
    found = classifier(**inputs, labels=torch.tensor(labels))
    close(found.logits, truth.logits)
    close(found.loss, truth.loss)
    assert classifier.config.id2label == theirs.config.id2label
    assert classifier.config.label2id == theirs.config.label2id
    assert classifier.config.num_labels == 3


def test_a_reranker_has_one_logit_and_a_squared_loss(tmp_path: Path, tokenizer: Any) -> None:
    config = {"architectures": ["BertForSequenceClassification"], "id2label": {"0": "LABEL_0"}}
    place = bert_folder.write(tmp_path / "m", config=config, weights=bert_folder.head(1))
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(place).eval()
    inputs = tokenizer(*PAIRS, padding=True, return_tensors="pt")
    wanted = torch.tensor([0.5, 1.0, -2.0])
    with torch.no_grad():
        truth = theirs(**inputs, labels=wanted)
    ours = oxibonsai.AutoModelForSequenceClassification.from_pretrained(place)
    found = ours(**inputs, labels=wanted)
    close(found.logits, truth.logits)
    close(found.loss, truth.loss)
    assert ours.config.num_labels == 1


@pytest.mark.parametrize("name", ["modern-bert-classifier", "xlm-roberta-reranker"])
def test_heads_of_other_kinds_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    case = next(c for c in em.CLASSIFIERS if c.name == name)
    theirs = em.save(case, tmp_path / "m")
    ids, mask = torch.tensor([em.IDS[:40], em.IDS[40:80]]), torch.ones(2, 40, dtype=torch.long)
    mask[1, 25:] = 0
    ids[1, 25:] = theirs.config.pad_token_id
    with torch.no_grad():
        truth = theirs(ids, attention_mask=mask).logits
    ours = oxibonsai.AutoModelForSequenceClassification.from_pretrained(tmp_path / "m")
    close(ours(ids, attention_mask=mask).logits, truth)


def test_pairs_of_a_roberta_with_two_token_types_are_told_apart_by_separators_alone(
    tmp_path: Path,
) -> None:
    sizes = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "type_vocab_size": 2}
    case = em.Encoder("", "Roberta", {**sizes, "num_labels": 3}, model="ForSequenceClassification")
    theirs = em.save(case, tmp_path)
    texts = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", *"abcdefghijklmnopqrstuvwxyzĠ"]
    vocabulary = {text: i for i, text in enumerate(texts)}
    transformers.RobertaTokenizer(vocab=vocabulary, merges=[]).save_pretrained(tmp_path)
    their_tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    tokenizer = oxibonsai.AutoTokenizer.from_pretrained(tmp_path)
    pairs = (["a text", "b"], ["c d", "a longer one"])
    inputs = their_tokenizer(*pairs, padding=True, return_tensors="pt")
    ours = tokenizer(*pairs, padding=True, return_tensors="pt")
    assert {n: c.tolist() for n, c in ours.items()} == {n: c.tolist() for n, c in inputs.items()}
    model = oxibonsai.AutoModelForSequenceClassification.from_pretrained(tmp_path)
    with torch.no_grad():
        truth = theirs(**inputs).logits
        types = (inputs["input_ids"].cumsum(1) > 40).long() * inputs["attention_mask"]
        typed = theirs(**inputs, token_type_ids=types).logits
    close(model(**ours).logits, truth)
    close(model.engine.classify(list(zip(*pairs, strict=True))), truth)
    assert (typed - truth).abs().max() > 0.01  # a caller's own token types are read all the same
    close(model(**ours, token_type_ids=types).logits, typed)


def test_a_decoder_has_hidden_states_too(hf_folder: Path, tokenizer: Any) -> None:
    theirs = transformers.AutoModel.from_pretrained(hf_folder, dtype="float32").eval()
    ids = torch.tensor([[5, 9, 7, 6], [0, 0, 8, 5]])
    mask = torch.tensor([[1, 1, 1, 1], [0, 0, 1, 1]])
    with torch.no_grad():
        truth = theirs(ids, attention_mask=mask, position_ids=(mask.cumsum(1) - 1).clamp(0))
    found = oxibonsai.AutoModel.from_pretrained(hf_folder)(ids, attention_mask=mask)
    close(found.last_hidden_state[mask.bool()], truth.last_hidden_state[mask.bool()])


def test_a_model_is_pickled_by_its_source(classifier: Any) -> None:
    again = pickle.loads(pickle.dumps(classifier))
    ids = [[2, 5, 6, 3]]
    assert again(ids).logits.tobytes() == classifier(ids).logits.tobytes()


IDS = [[2, 5, 6, 3], [2, 7, 3, 0]]


@pytest.mark.parametrize(
    ("inputs", "kind", "message"),
    [
        ({}, RequestError, "input_ids is missing"),
        ({"input_ids": [[2, 3], [2]]}, RequestError, "different lengths"),
        ({"input_ids": [[2] * 97]}, RequestError, "text 0 has 97 tokens, more than the 96"),
        ({"input_ids": [[2, 999, 3]]}, RequestError, "token id 999"),
        ({"input_ids": IDS, "attention_mask": [[1, 1]]}, RequestError, "attention_mask has shape"),
        (
            {"input_ids": IDS, "attention_mask": [[1, 0, 1, 1], [1, 1, 1, 0]]},
            RequestError,
            "hides a token within text 0",
        ),
        (
            {"input_ids": IDS, "attention_mask": [[1, 1, 1, 1], [0, 0, 0, 0]]},
            RequestError,
            "text 1 is empty",
        ),
        ({"input_ids": IDS, "token_type_ids": [[0, 1]]}, RequestError, "token_type_ids has shape"),
        ({"input_ids": IDS[:1], "token_type_ids": [[0, 0, 2, 2]]}, RequestError, "are 0 to 1"),
        ({"input_ids": IDS[:1], "token_type_ids": [[0, 1, 0, 1]]}, UnsupportedError, "then ones"),
        (
            {"input_ids": IDS, "output_hidden_states": True},
            UnsupportedError,
            "output_hidden_states",
        ),
        ({"input_ids": IDS, "output_attentions": True}, UnsupportedError, "output_attentions"),
        ({"input_ids": IDS, "inputs_embeds": np.ones(1)}, UnsupportedError, "give input_ids"),
        ({"input_ids": IDS, "global_attention_mask": 1}, TypeError, "no argument of it"),
        ({"input_ids": IDS, "labels": [0]}, RequestError, "don't fit scores"),
        ({"input_ids": IDS, "labels": [0, 3]}, RequestError, "don't fit scores"),
    ],
)
def test_what_makes_no_sense_is_one_typed_error(
    inputs: dict[str, Any], kind: type[Exception], message: str, classifier: Any
) -> None:
    with pytest.raises(kind, match=message):
        classifier(**inputs)


def test_the_wrong_auto_class_names_the_right_one(
    plain_folder: Path, folder: Path, hf_folder: Path, tmp_path: Path
) -> None:
    em.save(em.SEQ2SEQ[0], tmp_path / "t5")
    for source, name, right in [
        (plain_folder, "AutoModelForCausalLM", "AutoModel$"),
        (plain_folder, "AutoModelForSequenceClassification", "AutoModel$"),
        (folder, "AutoModelForCausalLM", "AutoModelForSequenceClassification"),
        (hf_folder, "AutoModelForSequenceClassification", "AutoModelForCausalLM"),
        (tmp_path / "t5", "AutoModel", "AutoModelForSeq2SeqLM"),
        (tmp_path / "t5", "AutoModelForCausalLM", "AutoModelForSeq2SeqLM"),
        (hf_folder, "AutoModelForSeq2SeqLM", "AutoModelForCausalLM"),
    ]:
        with pytest.raises(UnsupportedError, match=f"no model of {name}.*load it with {right}"):
            getattr(oxibonsai, name).from_pretrained(source)
