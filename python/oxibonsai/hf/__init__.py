"""The Hugging Face style front: the Auto classes, pipelines, and what sentence-transformers has."""

from oxibonsai.hf.cross_encoder import CrossEncoder
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
from oxibonsai.hf.seq2seq import AutoModelForSeq2SeqLM, Seq2SeqLM
from oxibonsai.hf.tokenizer import AutoTokenizer, PreTrainedTokenizer

__all__ = [
    "AutoModel",
    "AutoModelForCausalLM",
    "AutoModelForImageTextToText",
    "AutoModelForSeq2SeqLM",
    "AutoModelForSequenceClassification",
    "AutoProcessor",
    "AutoTokenizer",
    "BatchEncoding",
    "CausalLM",
    "CrossEncoder",
    "Encoder",
    "ImageTextToText",
    "PreTrainedTokenizer",
    "Processor",
    "SentenceTransformer",
    "Seq2SeqLM",
    "SequenceClassifier",
    "Streamer",
    "pipeline",
]
