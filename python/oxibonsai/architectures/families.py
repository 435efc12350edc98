"""Families of models, one file each, by GGUF's names of their architectures."""

from __future__ import annotations

from collections import UserDict
from pkgutil import resolve_name
from typing import Any

from oxibonsai.architectures.schema.family import Family

# The module of each family, and its name there. Of several that share a name, the first that owns a file
# reads it.
_PLACES: dict[str, tuple[str, ...]] = {
    "afmoe": ("afmoe:FAMILY",),
    "apertus": ("apertus:FAMILY",),
    "arcee": ("arcee:FAMILY",),
    "cohere2": ("cohere:COHERE2",),
    "command-r": ("cohere:COMMAND_R",),
    "baichuan": ("baichuan:FAMILY",),
    "bailingmoe2": ("bailingmoe2:FAMILY",),
    "bitnet": ("bitnet:FAMILY",),
    "bitnet-b1.58": ("bitnet:B158",),
    "bloom": ("bloom:FAMILY",),
    "codeshell": ("codeshell:FAMILY",),
    "dbrx": ("dbrx:FAMILY",),
    "deci": ("deci:FAMILY",),
    "bert": ("bert:BERT", "bert:ROBERTA"),
    "big-bird": ("big_bird:FAMILY",),
    "deepseek2": ("deepseek2:V3", "deepseek2:V2"),
    "mistral4": ("deepseek2:MISTRAL4",),
    "dilated": ("dilated:FAMILY",),
    "dots1": ("dots1:FAMILY",),
    "ernie4_5": ("ernie4_5:FAMILY",),
    "ernie4_5-moe": ("ernie4_5_moe:FAMILY",),
    "exaone": ("exaone:FAMILY",),
    "exaone4": ("exaone4:FAMILY",),
    "exaone-moe": ("exaone_moe:FAMILY",),
    "falcon": ("falcon:FAMILY",),
    "falcon-h1": ("falcon_h1:FAMILY",),
    "gemma": ("gemma:FAMILY",),
    "gemma2": ("gemma2:FAMILY",),
    "gemma3n": ("gemma3n:FAMILY",),
    "gemma4": ("gemma4:FAMILY",),
    "gemma-embedding": ("gemma_embedding:FAMILY",),
    "gemma3": ("gemma3:FAMILY",),
    "chatglm": ("glm:GLM",),
    "glm4": ("glm:SEEING", "glm:GLM4"),
    "glm4moe": ("glm4moe:SEEING", "glm4moe:FAMILY"),
    "gpt2": ("gpt2:GPT2",),
    "starcoder": ("gpt2:STARCODER",),
    "gpt-oss": ("gpt_oss:FAMILY",),
    "gptj": ("gptj:FAMILY",),
    "gptneo": ("gptneo:FAMILY",),
    "gptneox": ("gptneox:FAMILY",),
    "granitehybrid": ("granite_hybrid:FAMILY",),
    "granitemoe": ("granitemoe:SHARED_FAMILY", "granitemoe:FAMILY"),
    "grok": ("grok:FAMILY",),
    "hunyuan-moe": ("hunyuan_moe:FAMILY",),
    "granite": ("granite:GRANITE",),
    "minicpm": ("granite:MINICPM",),
    "hunyuan-dense": ("hunyuan:FAMILY",),
    "internlm2": ("internlm2:FAMILY",),
    "llama": ("internlm3:FAMILY", "mixtral:FAMILY", "llama:FAMILY"),
    "jais": ("jais:FAMILY",),
    "jais2": ("jais2:FAMILY",),
    "jina-bert-v2": ("jina_bert:V2",),
    "jina-bert-v3": ("jina_bert:V3",),
    "jamba": ("jamba:FAMILY",),
    "lfm2": ("lfm2:LFM2",),
    "lfm2moe": ("lfm2:LFM2MOE",),
    "llama4": ("llama4:FAMILY",),
    "mamba": ("mamba:FALCON_MAMBA", "mamba:MAMBA"),
    "mamba2": ("mamba2:FAMILY",),
    "minimax-m2": ("minimax_m2:FAMILY",),
    "minicpm3": ("minicpm3:FAMILY",),
    "mistral3": ("mistral3:FAMILY",),
    "mpt": ("mpt:FAMILY",),
    "longformer": ("longformer:FAMILY",),
    "mixture-of-depths": ("mixture_of_depths:FAMILY",),
    "modern-bert": ("modern_bert:FAMILY",),
    "nanbeige": ("nanbeige:FAMILY",),
    "nemotron": ("nemotron:FAMILY",),
    "nemotron_h_moe": ("nemotron_h:MIXED",),
    "nemotron_h": ("nemotron_h:DENSE",),
    "nomic-bert": ("nomic_bert:NOMIC_BERT",),
    "nomic-bert-moe": ("nomic_bert:NOMIC_BERT_MOE",),
    "olmo": ("olmo:FAMILY",),
    "olmoe": ("olmoe:FAMILY",),
    "olmo2": ("olmo2:OLMO3", "olmo2:OLMO2"),
    "openelm": ("openelm:FAMILY",),
    "orion": ("orion:FAMILY",),
    "phi2": ("phi2:FAMILY",),
    "phi3": ("phi3:FAMILY",),
    "phi3small": ("phi3small:FAMILY",),
    "phimoe": ("phimoe:FAMILY",),
    "plamo": ("plamo:FAMILY",),
    "plamo2": ("plamo2:FAMILY",),
    "qwen": ("qwen:FAMILY",),
    "qwen2": ("qwen2:FAMILY",),
    "qwen2moe": ("qwen2moe:FAMILY",),
    "qwen2vl": ("qwen2vl:FAMILY",),
    "qwen3": ("qwen3_reranker:FAMILY", "qwen3:FAMILY"),
    "qwen3moe": ("qwen3moe:FAMILY",),
    "qwen35moe": ("qwen3next:QWEN35MOE",),
    "qwen3next": ("qwen3next:QWEN3NEXT",),
    "qwen3vl": ("qwen3vl:FAMILY",),
    "qwen3vlmoe": ("qwen3vl:MOE",),
    "qwen35": ("qwen35:FAMILY",),
    "refact": ("refact:FAMILY",),
    "rwkv7": ("rwkv7:FAMILY",),
    "seed_oss": ("seed_oss:FAMILY",),
    "smollm3": ("smollm3:FAMILY",),
    "stablelm": ("stablelm:FAMILY",),
    "starcoder2": ("starcoder2:FAMILY",),
    "t5encoder": ("t5:UMT5_ENCODER", "t5:T5_ENCODER"),
    "t5": ("t5:UMT5", "t5:T5"),
    "xverse": ("xverse:FAMILY",),
}


class _ByName(UserDict[str, Any]):
    """Families by name, or their places: the module of one is imported when its name is looked up.

    All of them together would take most of the time in which a command starts.
    """

    def __getitem__(self, name: str) -> list[Family[Any]]:
        return [_at(f) if isinstance(f, str) else f for f in self.data[name]]


def _at(place: str) -> Family[Any]:
    found = resolve_name(f"oxibonsai.architectures.{place}")
    assert isinstance(found, Family)
    return found


BY_NAME = _ByName(_PLACES)


def all_families() -> list[Family[Any]]:
    """Return all families, importing their modules."""
    return [family for name in _PLACES for family in BY_NAME[name]]
