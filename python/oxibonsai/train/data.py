"""Texts as sequences of equal length: the batch of a step is a function of the seed and the step."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from tokenizers import Tokenizer

from oxibonsai.errors import FormatError, RequestError
from oxibonsai.files.text_lines import numbered_lines

Tokens = npt.NDArray[np.int64]


class TrainTokenizer:
    """The tokenizer of a folder, and its token that ends a text.

    Attributes:
        eos: Its id.
        vocab_size: Ids that there are.
    """

    def __init__(self, folder: Path) -> None:
        """Read ``tokenizer.json`` and, of ``tokenizer_config.json``, ``eos_token``.

        Raises:
            RequestError: The folder lacks a file.
            FormatError: A file can't be read, or its eos_token is no token.
        """
        for name in ("tokenizer.json", "tokenizer_config.json"):
            if not (folder / name).is_file():
                raise RequestError(f"{folder} has no {name}: name the folder of a tokenizer")
        try:
            self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
            config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
        except Exception as e:  # tokenizers raises plain Exception
            raise FormatError(f"cannot read the tokenizer in {folder}: {e}") from e
        text = config.get("eos_token") if isinstance(config, dict) else None
        text = text.get("content") if isinstance(text, dict) else text
        eos = self._tokenizer.token_to_id(text) if isinstance(text, str) else None
        if eos is None:
            raise FormatError(f"{folder}: eos_token is {text!r}, which is no token")
        self.eos: int = eos
        self.vocab_size: int = self._tokenizer.get_vocab_size()

    def tokens(self, file: Path) -> Tokens:
        """Return all texts of a file between ends of text; special tokens in a text are taken as such.

        Args:
            file: JSON lines, each an object with ``text``.

        Raises:
            RequestError: There is no such file.
            FormatError: A line is something else; it is named.
        """
        encodings = self._tokenizer.encode_batch(read_texts(file), add_special_tokens=False)
        ids = [self.eos]
        for encoding in encodings:
            ids += [*encoding.ids, self.eos]
        return np.array(ids, np.int64)


def read_texts(file: Path) -> list[str]:
    """Return the texts of a file of JSON lines.

    Raises:
        RequestError: There is no such file.
        FormatError: A line is no object with ``text``; it is named.
    """
    texts = []
    for number, line in numbered_lines(file):
        try:
            text = json.loads(line)["text"]
        except (ValueError, KeyError, TypeError):
            text = None
        if not isinstance(text, str):
            raise FormatError(f'{file}, line {number}: expected an object {{"text": "..."}}')
        texts.append(text)
    if not texts:
        raise FormatError(f"{file} holds no text")
    return texts


class Windows:
    """Sequences of context + 1 tokens: each but the last token has the next one as its target.

    A pass over the tokens cuts them at another offset and in another order than the pass before.
    """

    def __init__(self, tokens: Tokens, context: int, batch: int, seed: int) -> None:
        """Take arguments as attributes of :class:`TrainSettings`.

        Raises:
            RequestError: There are too few tokens for one sequence.
        """
        self._per_pass = (len(tokens) - 1) // context - 1
        if self._per_pass < 1:
            raise RequestError(
                f"the texts are {len(tokens)} tokens, too few for sequences of {context}"
            )
        self._tokens, self._context, self._batch, self._seed = tokens, context, batch, seed
        self._order: tuple[int, Tokens] = -1, np.zeros(0, np.int64)

    def batch(self, step: int) -> torch.Tensor:
        """Return the sequences of that step, [batch, context + 1]."""
        first = step * self._batch
        return torch.from_numpy(
            np.stack([self._window(n) for n in range(first, first + self._batch)])
        )

    def _window(self, number: int) -> Tokens:
        over, index = divmod(number, self._per_pass)
        if self._order[0] != over:
            draw = np.random.default_rng([self._seed, over])
            starts = draw.integers(self._context) + np.arange(self._per_pass) * self._context
            self._order = over, draw.permutation(starts)
        start = self._order[1][index]
        return self._tokens[start : start + self._context + 1]


def in_order(tokens: Tokens, context: int, batch: int) -> list[torch.Tensor]:
    """Return all tokens once, as batches of sequences of context + 1 that share their border tokens."""
    count = (len(tokens) - 1) // context
    if count < 1:
        raise RequestError(
            f"the texts are {len(tokens)} tokens, too few for sequences of {context}"
        )
    rows = np.stack([tokens[i * context : (i + 1) * context + 1] for i in range(count)])
    return [torch.from_numpy(rows[i : i + batch]) for i in range(0, count, batch)]
