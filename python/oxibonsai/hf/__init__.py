"""The Hugging Face style front: ``AutoModelForCausalLM`` and ``AutoTokenizer``."""

from oxibonsai.hf.encoding import BatchEncoding
from oxibonsai.hf.generation import Streamer
from oxibonsai.hf.image_text import (
    AutoModelForImageTextToText,
    AutoProcessor,
    ImageTextToText,
)
from oxibonsai.hf.model import AutoModelForCausalLM, CausalLM
from oxibonsai.hf.pipeline import pipeline
from oxibonsai.hf.processor import Processor
from oxibonsai.hf.sentence_transformer import SentenceTransformer
from oxibonsai.hf.tokenizer import AutoTokenizer, PreTrainedTokenizer

__all__ = [
    "AutoModelForCausalLM",
    "AutoModelForImageTextToText",
    "AutoProcessor",
    "AutoTokenizer",
    "BatchEncoding",
    "CausalLM",
    "ImageTextToText",
    "PreTrainedTokenizer",
    "Processor",
    "SentenceTransformer",
    "Streamer",
    "pipeline",
]
