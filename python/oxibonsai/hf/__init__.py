"""The Hugging Face style front: the Auto classes, pipelines, and what sentence-transformers has."""

from oxibonsai.hf.encoder_model import (
    AutoModel,
    AutoModelForSequenceClassification,
    Encoder,
    SequenceClassifier,
)
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
    "AutoModel",
    "AutoModelForCausalLM",
    "AutoModelForImageTextToText",
    "AutoModelForSequenceClassification",
    "AutoProcessor",
    "AutoTokenizer",
    "BatchEncoding",
    "CausalLM",
    "Encoder",
    "ImageTextToText",
    "PreTrainedTokenizer",
    "Processor",
    "SentenceTransformer",
    "SequenceClassifier",
    "Streamer",
    "pipeline",
]
