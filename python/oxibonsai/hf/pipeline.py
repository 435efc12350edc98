"""``pipeline(task, model=...)`` over models of this package."""

from __future__ import annotations

import os
from typing import Any

from oxibonsai.errors import UnsupportedError, needs_extra
from oxibonsai.hf.encoder_model import AutoModelForSequenceClassification, SequenceClassifier
from oxibonsai.hf.image_text import AutoModelForImageTextToText, AutoProcessor, ImageTextToText
from oxibonsai.hf.loaded_model import LoadedModel
from oxibonsai.hf.model import AutoModelForCausalLM, CausalLM
from oxibonsai.hf.seq2seq import AutoModelForSeq2SeqLM, Seq2SeqLM
from oxibonsai.hf.text2text import Text2TextPipeline
from oxibonsai.hf.tokenizer import AutoTokenizer

# The class of each task's models, and what loads them.
_TASKS: dict[str, tuple[type[LoadedModel], Any]] = {
    "text-generation": (CausalLM, AutoModelForCausalLM),
    "image-text-to-text": (ImageTextToText, AutoModelForImageTextToText),
    "text-classification": (SequenceClassifier, AutoModelForSequenceClassification),
    "zero-shot-classification": (SequenceClassifier, AutoModelForSequenceClassification),
    "text2text-generation": (Seq2SeqLM, AutoModelForSeq2SeqLM),
}


def pipeline(
    task: str = "text-generation",
    model: str | os.PathLike[str] | LoadedModel | None = None,
    tokenizer: Any = None,
    *,
    processor: Any = None,
    model_kwargs: dict[str, Any] | None = None,
    **options: Any,
) -> Any:
    """Return transformers' pipeline of this name, run by the engine.

    Args:
        task: ``"text-generation"``, ``"image-text-to-text"``, ``"text-classification"``,
            ``"zero-shot-classification"`` or ``"text2text-generation"``, which needs no transformers.
        model: As for the task's Auto class, or a model that it made.
        tokenizer: None: the model's own.
        processor: Of ``"image-text-to-text"``; None: the model's own.
        model_kwargs: Of the Auto class's ``from_pretrained``.
        **options: Of the pipeline, such as ``max_new_tokens``.

    Raises:
        UnsupportedError: Another task, a model of another kind, or transformers is not installed.
    """
    if task not in _TASKS:
        raise UnsupportedError(
            f"the task is {task!r}; available are {', '.join(map(repr, _TASKS))} (vectors: "
            "oxibonsai.hf.SentenceTransformer)"
        )
    kind, auto = _TASKS[task]
    loaded: Any  # of the task's class
    if isinstance(model, LoadedModel):
        if not isinstance(model, kind):
            raise UnsupportedError(
                f"the task {task!r} takes a model of {kind.auto_class}, and this is one of "
                f"{type(model).auto_class}"
            )
        loaded = model
        if model_kwargs:
            raise TypeError("model_kwargs go with a model that is to be loaded")
    else:
        placed = {
            name: options.pop(name)
            for name in ("device_map", "dtype", "torch_dtype", "revision", "token")
            if name in options
        }
        options.pop("trust_remote_code", None)
        loaded = auto.from_pretrained(model, **placed, **(model_kwargs or {}))
    if tokenizer is None:
        tokenizer = AutoTokenizer.from_pretrained(loaded.name_or_path)
    if isinstance(loaded, Seq2SeqLM):
        return Text2TextPipeline(loaded, tokenizer, options)
    inner = loaded.transformers_model
    if task == "image-text-to-text":
        options["processor"] = processor or AutoProcessor.from_pretrained(loaded)
    with needs_extra("hf"):
        import transformers

    make: Any = transformers.pipeline  # its overloads know transformers' own classes alone
    return make(task, model=inner, tokenizer=tokenizer, **options)
