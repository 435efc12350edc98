"""A tiny XLM-RoBERTa reranker with a unigram vocabulary that is trained here."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

import bert_folder

CORPUS = [
    "Hello world, the tea is hot and the world is large.",
    "Unbelievable teas, unbelievably hot worlds: say hello!",
    "A caf\u00e9 in \u6771\u4eac has tea, too.",
]
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]


@lru_cache(maxsize=1)  # training twice gives two orders
def trained() -> Tokenizer:
    """As XLM-RoBERTa's: two separators between the texts of a pair."""
    words = Tokenizer(models.Unigram())
    words.normalizer = normalizers.Sequence(
        [normalizers.Strip(left=False, right=True), normalizers.Replace(_regex(" {2,}"), "\u2581")]
    )
    words.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    words.train_from_iterator(
        CORPUS,
        trainers.UnigramTrainer(vocab_size=120, special_tokens=SPECIAL, unk_token="<unk>"),
    )
    words.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> </s> $B </s>",
        special_tokens=[("<s>", 0), ("</s>", 2)],
    )
    return words


def _regex(pattern: str) -> Any:
    from tokenizers import Regex

    return Regex(pattern)


def write(folder: Path, tokenizer: dict[str, Any]) -> Path:
    """A tiny XLM-RoBERTa reranker with a vocabulary."""
    config = {
        "model_type": "xlm-roberta", "architectures": ["XLMRobertaForSequenceClassification"],
        "pad_token_id": 1, "type_vocab_size": 2, "id2label": {"0": "LABEL_0"},
    }  # fmt: skip
    bert_folder.write(folder, config=config, modules=[])
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    names = {
        "bos": "<s>",
        "eos": "</s>",
        "cls": "<s>",
        "sep": "</s>",
        "unk": "<unk>",
        "pad": "<pad>",
    }
    special = {f"{name}_token": text for name, text in names.items()}
    (folder / "special_tokens_map.json").write_text(json.dumps(special))
    random = np.random.default_rng(8)
    weights = {f"roberta.{k}": v for k, v in bert_folder.parameters().items() if "pooler" not in k}
    for name, rows in (("dense", bert_folder.HIDDEN), ("out_proj", 1)):
        shape = (rows, bert_folder.HIDDEN)
        weights[f"classifier.{name}.weight"] = random.normal(0, 0.1, shape).astype(np.float32)
        weights[f"classifier.{name}.bias"] = random.normal(0, 0.1, rows).astype(np.float32)
    save_file(weights, folder / "model.safetensors")
    return folder
