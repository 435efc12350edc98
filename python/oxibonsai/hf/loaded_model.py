"""Loading, configuration and device of the models of all Auto classes."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from oxibonsai.engine import Engine, load
from oxibonsai.errors import UnsupportedError
from oxibonsai.hf.config import LoadedConfig, count_parameters
from oxibonsai.hf.pretrained import check_device, check_dtype, explain, locate
from oxibonsai.models import ModelConfig

if TYPE_CHECKING:
    from typing import Self  # of Python 3.11


class LoadedModel:
    """A model with Hugging Face's names.

    Args:
        engine: Runs it.
        name_or_path: What the model was loaded from.
        options: Further arguments it was loaded with, so that it can be loaded again elsewhere.

    Attributes:
        auto_class: The name of the class that makes it.
        engine: As given.
        config: With ``model_type``, ``to_dict`` and the fields of the architecture.
        name_or_path: As given.

    Raises:
        UnsupportedError: The model is of another Auto class.
    """

    auto_class: ClassVar[str]

    def __init__(
        self, engine: Engine, name_or_path: str = "", options: Mapping[str, Any] | None = None
    ) -> None:
        checkpoint, dimensions = engine.model.weights.checkpoint, engine.model.config
        if not self._runs(dimensions):
            right = _auto_class_of(dimensions)
            raise UnsupportedError(
                f"{checkpoint.path} ({dimensions.architecture}) is no model of {self.auto_class}: load "
                f"it with {right}"
            )
        self.engine = engine
        self.name_or_path = name_or_path or str(checkpoint.path)
        self._options = dict(options or {})
        self.config = LoadedConfig(
            checkpoint, dimensions, self.name_or_path, engine.ranker.num_labels
        )

    @classmethod
    def load(cls, source: str | os.PathLike[str] | None, options: dict[str, Any]) -> Self:
        """Load the model that the arguments of ``from_pretrained`` name."""
        place = locate(source, options)
        explain(options)
        return cls(load(place, **options), place or "", options)

    @classmethod
    def _runs(cls, dimensions: ModelConfig) -> bool:
        """Return whether models of these dimensions are of this class."""
        return _auto_class_of(dimensions) == cls.auto_class

    def __reduce__(self) -> Any:
        return _load_again, (type(self), self.name_or_path, self._options)

    def __repr__(self) -> str:
        c = self.config
        return (
            f"{type(self).__name__}({self.name_or_path!r}, model_type={c.model_type!r}, "
            f"num_hidden_layers={c.num_hidden_layers}, hidden_size={c.hidden_size}, "
            f"vocab_size={c.vocab_size})"
        )

    def save_pretrained(
        self,
        folder: str | os.PathLike[str],
        *,
        format: Literal["safetensors", "gguf"] = "safetensors",
        dtype: str = "float32",
    ) -> None:
        """Write the model into a folder; see :func:`oxibonsai.export.save_model`."""
        from oxibonsai.export import save_model

        save_model(self.engine.model.weights.checkpoint, folder, format=format, dtype=dtype)

    def num_parameters(self, only_trainable: bool = False, exclude_embeddings: bool = False) -> int:
        """Return the weights of the model, none of which is trainable here."""
        checkpoint = self.engine.model.weights.checkpoint
        return 0 if only_trainable else count_parameters(checkpoint, exclude_embeddings)

    @property
    def device(self) -> Any:
        """Where tensors are wanted: ``torch.device("cpu")``, or its name without torch."""
        if importlib.util.find_spec("torch") is None:
            return "cpu"
        import torch

        return torch.device("cpu")

    @property
    def _torchdynamo_orig_callable(self) -> Any:
        """Refuse ``torch.compile``, which asks for this before it wraps a callable."""
        raise UnsupportedError(
            "torch.compile has nothing to compile here: the model's passes are compiled already, and "
            "are no operations of torch; leave it out"
        )

    def eval(self) -> Self:
        """Return itself: it is never in training mode."""
        return self

    def train(self, mode: bool = True) -> Self:
        """Return itself for ``train(False)``; refuse anything else."""
        if mode:
            raise UnsupportedError(
                "this model computes no gradients: trainable() of AutoModelForCausalLM gives one for "
                "adapters, and oxibonsai train makes new models"
            )
        return self

    def to(self, *args: Any, **kwargs: Any) -> Self:
        """Return itself for ``"cpu"`` and float types; refuse other devices."""
        for value in (*args, *kwargs.values()):
            if str(value).startswith(("torch.float", "torch.bfloat", "float", "bfloat")):
                check_dtype(value, "dtype")
            elif not isinstance(value, bool):
                check_device(value, "device")
        return self

    def cpu(self) -> Self:
        """Return itself."""
        return self

    def cuda(self, device: Any = 0) -> Self:
        """Refuse: see :meth:`to`."""
        return self.to(f"cuda:{device}")

    def float(self) -> Self:
        """Return itself: results are float32."""
        return self

    def half(self) -> Self:
        """Return itself, with a warning: results stay float32."""
        return self.to("float16")

    def bfloat16(self) -> Self:
        """Return itself, with a warning: results stay float32."""
        return self.to("bfloat16")


def check_transformers(without: str) -> None:
    """Raise UnsupportedError where torch or transformers are missing, with what works without them."""
    for name in ("torch", "transformers"):
        if importlib.util.find_spec(name) is None:
            raise UnsupportedError(f"this needs {name}: pip install 'oxibonsai[hf]' ({without})")


def _auto_class_of(dimensions: ModelConfig) -> str:
    """Return the Auto class whose results the model is for."""
    if dimensions.decoder is not None:
        return "AutoModelForSeq2SeqLM"
    if dimensions.classifier is not None:
        yes_or_no = dimensions.classifier.yes_or_no
        return "CrossEncoder" if yes_or_no else "AutoModelForSequenceClassification"
    return "AutoModelForCausalLM" if dimensions.causal else "AutoModel"


def _load_again(kind: type[LoadedModel], source: str, options: dict[str, Any]) -> Any:
    return kind(load(source, **options), source, options)
