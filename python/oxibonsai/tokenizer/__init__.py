"""Tokenizers, built from the metadata of a GGUF file."""

from oxibonsai.tokenizer.pieces import Watch
from oxibonsai.tokenizer.stream import StreamDecoder
from oxibonsai.tokenizer.tokenizer import Tokenizer

__all__ = ["StreamDecoder", "Tokenizer", "Watch"]
