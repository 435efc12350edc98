"""``pipeline("text-generation", model=...)`` over models of this package."""

from __future__ import annotations

import os
from typing import Any

from oxibonsai.errors import UnsupportedError, needs_extra
from oxibonsai.hf.model import AutoModelForCausalLM, CausalLM
from oxibonsai.hf.tokenizer import AutoTokenizer


def pipeline(
    task: str = "text-generation",
    model: str | os.PathLike[str] | CausalLM | None = None,
    tokenizer: Any = None,
    *,
    model_kwargs: dict[str, Any] | None = None,
    **options: Any,
) -> Any:
    """Return transformers' pipeline of this name, run by the engine.

    Args:
        task: Only ``"text-generation"``.
        model: As for ``AutoModelForCausalLM``, or one that it made.
        tokenizer: None: the model's own.
        model_kwargs: Of ``AutoModelForCausalLM.from_pretrained``.
        **options: Of the pipeline, such as ``max_new_tokens``.

    Raises:
        UnsupportedError: Another task, or transformers is not installed.
    """
    if task != "text-generation":
        raise UnsupportedError(
            f"the task is {task!r}; only 'text-generation' is available (vectors: "
            "oxibonsai.hf.SentenceTransformer)"
        )
    if not isinstance(model, CausalLM):
        placed = {
            name: options.pop(name)
            for name in ("device_map", "dtype", "torch_dtype", "revision", "token")
            if name in options
        }
        options.pop("trust_remote_code", None)
        model = AutoModelForCausalLM.from_pretrained(model, **placed, **(model_kwargs or {}))
    elif model_kwargs:
        raise TypeError("model_kwargs go with a model that is to be loaded")
    inner = model.transformers_model
    if tokenizer is None:
        tokenizer = AutoTokenizer.from_pretrained(model.name_or_path)
    with needs_extra("hf"):
        import transformers

    make: Any = transformers.pipeline  # its overloads know transformers' own classes alone
    return make(task, model=inner, tokenizer=tokenizer, **options)
