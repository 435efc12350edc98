"""Qwen3-Reranker: a Qwen3 of whose output matrix the rows of two answers are left.

Files are Qwen3's, with the head of a classifier.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from oxibonsai.architectures import qwen3
from oxibonsai.architectures.heads import read_object
from oxibonsai.architectures.layers.sizes import Weights
from oxibonsai.architectures.schema.family import Family
from oxibonsai.architectures.schema.fields import Derived, GgufKeys, Known, field
from oxibonsai.architectures.schema.operations import TakeRows
from oxibonsai.architectures.schema.sources import ConfigJson, Keys
from oxibonsai.architectures.schema.tensors import Entry, Tensor, norm, weight
from oxibonsai.errors import FormatError
from oxibonsai.graph import Builder, Value

NAME = "qwen3-reranker"
ANSWERS = ("yes", "no")
RANK = 4  # the pooling_type of a classifier's head
# As the model was trained; the query and the document take the places of their names in braces.
TEMPLATE = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the "
    'Instruct provided. Note that the answer can only be "yes" or "no".<|im_end|>\n'
    "<|im_start|>user\n<Instruct>: Given a web search query, retrieve relevant passages that answer "
    "the query\n<Query>: {query}\n<Document>: {document}<|im_end|>\n"
    "<|im_start|>assistant\n<think>\n\n</think>\n\n"
)


def is_reranker(config: ConfigJson) -> bool:
    """Return whether a folder of Qwen3 is a reranker: its name or the title of its README says so."""
    folder = config.path.parent
    if not folder.is_dir():  # a file that is saved
        return False
    if NAME in folder.resolve().name.lower():
        return True
    if NAME in str(config.fields.get("_name_or_path", "")).lower():
        return True
    readme = folder / "README.md"
    if not readme.is_file():
        return False
    try:
        return f"# {NAME}" in readme.read_text(encoding="utf-8", errors="replace").lower()
    except OSError as e:
        raise FormatError(f"cannot read {readme}: {e}") from e


@dataclass(frozen=True)
class AnswerIds(Derived):
    """The ids of the answers, whose rows are left."""

    def read_config_json(self, config: ConfigJson, known: Known) -> tuple[int, ...]:
        """Return the ids that ``tokenizer.json`` says."""
        path = config.path.parent / "tokenizer.json"
        vocabulary = read_object(path).get("model", {}).get("vocab")
        ids = [vocabulary.get(a) if isinstance(vocabulary, dict) else None for a in ANSWERS]
        found = [i for i in ids if isinstance(i, int) and 0 <= i < known["vocab_size"]]
        if len(found) != len(ANSWERS):
            raise FormatError(f"{path} lacks a token of {', '.join(ANSWERS)}")
        return tuple(found)

    def read_gguf(self, keys: Keys, known: Known) -> tuple[int, ...]:
        """Return none: the rows of a file are those of the answers."""
        return ()

    def write_gguf(self, value: tuple[int, ...], c: Any) -> GgufKeys:
        """Return the keys of the head, and of the text that is judged."""
        return {
            "pooling_type": (RANK, "u32"),
            "classifier.output_labels": (list(ANSWERS), "arr[str]"),
            "/tokenizer.chat_template.rerank": (TEMPLATE, "str"),
        }


@dataclass(frozen=True, kw_only=True)
class Config(qwen3.Config):
    """The fields of a model."""

    answers: tuple[int, ...] = field(AnswerIds())


@dataclass(frozen=True)
class Reranker(Family[Config]):
    """A Qwen3 with the head of a classifier."""

    def whole_pass(self, g: Builder, c: Any, w: Weights) -> Value:
        """Return the scores: [outputs, answers]."""
        h = self.final_norm(g, c, w, self.hidden_states(g, c, w))
        (scores,) = g.linear(h, w.matrix("cls.output", len(ANSWERS), c.hidden_size))
        return scores


def tensors(c: Config) -> Iterator[Entry]:
    """Yield all tensors of a model; the head is of the output matrix, or of the table in its place."""
    table, head = "model.embed_tokens", "cls.output.weight"
    if c.tie_word_embeddings:
        rows = TakeRows(c.answers, keeps_whole=True)
        yield Tensor((f"{table}.weight",), ("token_embd.weight", head), (rows,))
    else:
        yield weight(table, "token_embd")
        yield Tensor(("lm_head.weight",), (head,), (TakeRows(c.answers, keeps_whole=False),))
    yield norm("model.norm", "output_norm")
    yield from qwen3.tensors_of_layers(c)


FAMILY = Reranker(
    "qwen3", ("qwen3",), "", "Qwen3-Reranker", Config, tensors, qwen3.FAMILY.layer,
    qwen3.FAMILY.embed, owns_gguf=lambda keys: False, owns_config_json=is_reranker,
)  # fmt: skip
