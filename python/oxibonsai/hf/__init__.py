"""The Hugging Face style front: ``AutoModelForCausalLM`` and ``AutoTokenizer``."""

from oxibonsai.hf.model import AutoModelForCausalLM, CausalLM, Streamer
from oxibonsai.hf.tokenizer import AutoTokenizer, PreTrainedTokenizer

__all__ = [
    "AutoModelForCausalLM",
    "AutoTokenizer",
    "CausalLM",
    "PreTrainedTokenizer",
    "Streamer",
]
