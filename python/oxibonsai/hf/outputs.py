"""Outputs of models: fields by name, by key and by number, as in transformers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any


@dataclass(eq=False)
class ModelOutput(Mapping[str, Any]):
    """A result of several values; those that are None are left out of its keys and numbers."""

    def to_tuple(self) -> tuple[Any, ...]:
        """Return the values, in order."""
        return tuple(self.values())

    def __getitem__(self, key: Any) -> Any:
        if not isinstance(key, str):
            return self.to_tuple()[key]
        if key not in list(self):
            raise KeyError(key)
        return getattr(self, key)

    def __iter__(self) -> Iterator[str]:
        return (f.name for f in fields(self) if getattr(self, f.name) is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)


@dataclass(eq=False)
class EncoderOutput(ModelOutput):
    """The output of ``AutoModel``.

    Attributes:
        last_hidden_state: float32 [batch, length, hidden] after the final norm, of the kind that came
            in; zeros where the attention mask hides a token.
        pooler_output: None: files have no pooler.
    """

    last_hidden_state: Any
    pooler_output: None = None


@dataclass(eq=False)
class ClassifierOutput(ModelOutput):
    """The output of ``AutoModelForSequenceClassification``.

    Attributes:
        loss: Of the labels that were given, float32; None: there were none.
        logits: float32 [batch, labels], of the kind that came in.
    """

    loss: Any = None
    logits: Any = None


@dataclass(eq=False)
class ImageTextOutput(ModelOutput):
    """The output of ``AutoModelForImageTextToText``, called with images.

    Attributes:
        logits: float32 [batch, n, vocabulary] after every token, of the kind that came in; zeros where
            the attention mask hides a token.
    """

    logits: Any


@dataclass(eq=False)
class Seq2SeqOutput(ModelOutput):
    """The output of ``AutoModelForSeq2SeqLM``.

    Attributes:
        loss: Of the labels that were given, float32; None: there were none.
        logits: float32 [batch, n, vocabulary] after every token of the decoder, of the kind that came in.
    """

    loss: Any = None
    logits: Any = None
