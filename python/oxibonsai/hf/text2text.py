"""``pipeline("text2text-generation")``, which transformers has no more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oxibonsai.hf.seq2seq import Seq2SeqLM


class Text2TextPipeline:
    """Texts to texts, as transformers' pipeline of this name was called until its version 5.

    Args:
        model: Runs them.
        tokenizer: Of the model.
        options: Of ``generate``, where a call does not say otherwise.
    """

    task = "text2text-generation"

    def __init__(self, model: Seq2SeqLM, tokenizer: Any, options: Mapping[str, Any]) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self._options = dict(options)

    def __call__(
        self,
        texts: str | list[str],
        *,
        return_tensors: bool = False,
        clean_up_tokenization_spaces: bool | None = None,
        **options: Any,
    ) -> list[dict[str, Any]]:
        """Return ``{"generated_text": ...}`` for each text, or for each of its samples.

        Args:
            texts: One or several.
            return_tensors: Give ``generated_token_ids`` in place of texts.
            clean_up_tokenization_spaces: Of decoding; None: as the tokenizer says.
            **options: Of ``generate``.
        """
        given = [texts] if isinstance(texts, str) else list(texts)
        inputs = self.tokenizer(given, padding=True, return_tensors="np")
        made = self.model.generate(
            inputs["input_ids"],
            attention_mask=inputs["attention_mask"],
            **{**self._options, **options},
        )
        if return_tensors:
            return [{"generated_token_ids": row} for row in made]
        decoded = self.tokenizer.batch_decode(
            made,
            skip_special_tokens=True,
            clean_up_tokenization_spaces=clean_up_tokenization_spaces,
        )
        return [{"generated_text": text} for text in decoded]
