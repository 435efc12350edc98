"""Texts to vectors with the interface of sentence-transformers."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from oxibonsai.engine import Engine, load
from oxibonsai.errors import RequestError, UnsupportedError, needs_extra
from oxibonsai.hf.pretrained import check_device, explain, locate

Vectors = npt.NDArray[np.float32]


class SentenceTransformer:
    """A model that makes vectors, with the names of sentence-transformers.

    Args:
        model_name_or_path: As for ``AutoModelForCausalLM``; encoders and decoders both.
        device: ``"cpu"``, or None.
        prompts: Texts to put in front, by name.
        default_prompt_name: The prompt where none is named.
        truncate_dim: Values of a vector that are kept; None: all.
        pooling: ``"last"``, ``"mean"``, ``"max"`` or ``"cls"``; None: what the model is made for.
        **options: Of :func:`oxibonsai.load` and, where the files are, of ``AutoModelForCausalLM``.

    Attributes:
        engine: Runs it.
        prompts, default_prompt_name, truncate_dim, pooling: As given.
    """

    def __init__(
        self,
        model_name_or_path: str | os.PathLike[str] | None = None,
        *,
        device: Any = None,
        prompts: Mapping[str, str] | None = None,
        default_prompt_name: str | None = None,
        truncate_dim: int | None = None,
        pooling: str | None = None,
        **options: Any,
    ) -> None:
        check_device(device, "device")
        place = locate(model_name_or_path, options)
        explain(options)
        self.engine: Engine = load(place, **options)
        self.prompts = dict(prompts or {})
        self.default_prompt_name = default_prompt_name
        self.truncate_dim = truncate_dim
        self.pooling = pooling

    @property
    def max_seq_length(self) -> int:
        """Return the tokens of a text; longer ones are cut."""
        return self.engine.embedder.ctx_size

    def get_embedding_dimension(self) -> int:
        """Return the values of a vector."""
        return self.truncate_dim or self.engine.embedder.dimensions

    def get_sentence_embedding_dimension(self) -> int:
        """Do what :meth:`get_embedding_dimension` does, under its older name."""
        return self.get_embedding_dimension()

    def encode(
        self,
        sentences: str | Sequence[str],
        prompt_name: str | None = None,
        prompt: str | None = None,
        batch_size: int = 32,
        show_progress_bar: bool | None = None,
        output_value: str = "sentence_embedding",
        precision: str = "float32",
        convert_to_numpy: bool = True,
        convert_to_tensor: bool = False,
        device: Any = None,
        normalize_embeddings: bool = True,
        truncate_dim: int | None = None,
    ) -> Any:
        """Return one vector for each text: [texts, dimensions], or [dimensions] for one text alone.

        Args:
            sentences: One text or several.
            prompt_name: Which of ``prompts`` goes in front of each.
            prompt: A text to put in front, in place of a named one.
            batch_size: Texts of a call to the engine; vectors don't depend on it.
            show_progress_bar: Only False and None: nothing is shown.
            output_value: Only ``"sentence_embedding"``.
            precision: Only ``"float32"``.
            convert_to_numpy: False, and no tensor asked for: a list of arrays.
            convert_to_tensor: A torch tensor over the same memory.
            device: ``"cpu"``, or None.
            normalize_embeddings: Scale vectors to length 1. On by default: files don't say whether
                a model's own pipeline ends so, and most do.
            truncate_dim: In place of the attribute.

        Raises:
            RequestError: There are no texts, or there is no such prompt.
            UnsupportedError: An argument asks for what is not available.
        """
        check_device(device, "device")
        for name, given, only in [
            ("output_value", output_value, "sentence_embedding"),
            ("precision", precision, "float32"),
        ]:
            if given != only:
                raise UnsupportedError(f"{name} is {given!r}; only {only!r} is available")
        if show_progress_bar:
            raise UnsupportedError("show_progress_bar=True is not available")
        if batch_size < 1:
            raise RequestError(f"batch_size is {batch_size}; it must be at least 1")
        texts = [sentences] if isinstance(sentences, str) else list(sentences)
        front = self._prompt(prompt_name) if prompt is None else prompt
        framed = [front + text for text in texts]
        parts = [
            self.engine.embed(
                framed[i : i + batch_size],
                pooling=self.pooling,
                normalize=normalize_embeddings,
                dimensions=truncate_dim or self.truncate_dim,
                truncate=self.max_seq_length,
            )
            for i in range(0, max(len(framed), 1), batch_size)
        ]
        vectors: Any = np.concatenate(parts)
        if convert_to_tensor:
            with needs_extra("hf"):
                import torch

            vectors = torch.from_numpy(vectors)
        elif not convert_to_numpy:
            vectors = list(vectors)
        return vectors[0] if isinstance(sentences, str) else vectors

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Any:
        """Return the cosines of all pairs: [texts, other texts], of the kind that comes in."""
        a, b = (np.atleast_2d(np.asarray(e, dtype=np.float64)) for e in (embeddings1, embeddings2))
        lengths = np.linalg.norm(a, axis=1)[:, None] * np.linalg.norm(b, axis=1)
        cosines = (a @ b.T / np.maximum(lengths, 1e-12)).astype(np.float32)
        if type(embeddings1).__module__.split(".")[0] == "torch":
            with needs_extra("hf"):
                import torch

            return torch.from_numpy(cosines)
        return cosines

    def save_pretrained(
        self,
        path: str | os.PathLike[str],
        *,
        format: Literal["safetensors", "gguf"] = "safetensors",
        dtype: str = "float32",
    ) -> None:
        """Write the model into a folder; see :func:`oxibonsai.export.save_model`."""
        from oxibonsai.export import save_model

        save_model(self.engine.model.weights.checkpoint, path, format=format, dtype=dtype)

    def _prompt(self, name: str | None) -> str:
        name = self.default_prompt_name if name is None else name
        if name is None:
            return ""
        if name not in self.prompts:
            known = ", ".join(self.prompts) or "none"
            raise RequestError(f"there is no prompt {name!r}; known are {known}")
        return self.prompts[name]

    def __repr__(self) -> str:
        return f"SentenceTransformer({self.engine!r})"
