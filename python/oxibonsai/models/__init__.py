"""Architectures: one page each, chosen by the name that the checkpoint carries."""

from __future__ import annotations

from collections.abc import Sequence

from oxibonsai import _core
from oxibonsai.architectures import FAMILIES
from oxibonsai.checkpoint import Checkpoint
from oxibonsai.devices import Device, DevicePlan
from oxibonsai.errors import UnsupportedError
from oxibonsai.files.progress import Progress
from oxibonsai.graph import Builder
from oxibonsai.lora import Adapter
from oxibonsai.models import (
    apertus,
    baichuan,
    bailingmoe2,
    bert,
    bitnet,
    bloom,
    codeshell,
    cohere,
    dbrx,
    deci,
    deepseek2,
    ernie4_5_moe,
    exaone4,
    falcon_h1,
    gemma3,
    gemma3n,
    gemma4,
    gemma_embedding,
    glm4moe,
    gpt_oss,
    granite,
    granite_hybrid,
    granitemoe,
    grok,
    hunyuan,
    hunyuan_moe,
    jais,
    jamba,
    lfm2,
    llama4,
    mamba,
    mamba2,
    minicpm3,
    minimax_m2,
    mistral3,
    mixtral,
    modern_bert,
    mpt,
    nemotron_h,
    olmo2,
    olmoe,
    openelm,
    orion,
    phi3,
    phimoe,
    plamo,
    plamo2,
    qwen,
    qwen2moe,
    qwen2vl,
    qwen3moe,
    qwen3next,
    qwen3vl,
    qwen35,
    refact,
    rwkv7,
    t5,
)
from oxibonsai.models.architecture import Architecture, check_constants
from oxibonsai.models.config import ModelConfig
from oxibonsai.models.families import architecture_of_family
from oxibonsai.models.imatrix_collection import ImatrixCollection
from oxibonsai.models.keys import Keys
from oxibonsai.models.model import Model
from oxibonsai.models.packed_cache import PackedCache
from oxibonsai.models.parity import Parity, check_parity
from oxibonsai.models.pooled import TOKEN_TYPES
from oxibonsai.models.weights import Weights

_FAMILIES = {family.name: architecture_of_family(family) for family in FAMILIES}
ARCHITECTURES: dict[str, Architecture] = {
    **_FAMILIES,
    "llama": mixtral.ARCHITECTURE,
    "qwen35": qwen35.ARCHITECTURE,
    "qwen2vl": qwen2vl.ARCHITECTURE,
    "qwen3vl": qwen3vl.QWEN3VL,
    "qwen3vlmoe": qwen3vl.QWEN3VLMOE,
    "lfm2": lfm2.LFM2,
    "lfm2moe": lfm2.LFM2MOE,
    "granitehybrid": granite_hybrid.ARCHITECTURE,
    "falcon-h1": falcon_h1.ARCHITECTURE,
    "qwen3next": qwen3next.QWEN3NEXT,
    "qwen35moe": qwen3next.QWEN35MOE,
    "nemotron_h": nemotron_h.NEMOTRON_H,
    "nemotron_h_moe": nemotron_h.NEMOTRON_H_MOE,
    "jamba": jamba.ARCHITECTURE,
    "mamba": mamba.ARCHITECTURE,
    "mamba2": mamba2.ARCHITECTURE,
    "gemma3": gemma3.ARCHITECTURE,
    "gemma3n": gemma3n.ARCHITECTURE,
    "gemma4": gemma4.ARCHITECTURE,
    "bert": bert.BERT,
    "big-bird": bert.BIG_BIRD,
    "longformer": bert.LONGFORMER,
    "nomic-bert": bert.NOMIC_BERT,
    "nomic-bert-moe": bert.NOMIC_BERT_MOE,
    "jina-bert-v2": bert.JINA_BERT_V2,
    "jina-bert-v3": bert.JINA_BERT_V3,
    "modern-bert": modern_bert.ARCHITECTURE,
    "gemma-embedding": gemma_embedding.ARCHITECTURE,
    "t5": t5.T5,
    "t5encoder": t5.ENCODER,
    "phi3": phi3.ARCHITECTURE,
    "olmo2": olmo2.ARCHITECTURE,
    "granite": granite.GRANITE,
    "command-r": cohere.COMMAND_R,
    "cohere2": cohere.COHERE2,
    "exaone4": exaone4.ARCHITECTURE,
    "hunyuan-dense": hunyuan.DENSE,
    "bitnet": bitnet.ARCHITECTURE,
    "bloom": bloom.ARCHITECTURE,
    "mpt": mpt.ARCHITECTURE,
    "apertus": apertus.ARCHITECTURE,
    "mistral3": mistral3.ARCHITECTURE,
    "internlm2": _FAMILIES["llama"],
    "minicpm": granite.MINICPM,
    "orion": orion.ARCHITECTURE,
    "baichuan": baichuan.ARCHITECTURE,
    "refact": refact.ARCHITECTURE,
    "qwen": qwen.ARCHITECTURE,
    "jais": jais.ARCHITECTURE,
    "plamo": plamo.ARCHITECTURE,
    "plamo2": plamo2.ARCHITECTURE,
    "rwkv7": rwkv7.ARCHITECTURE,
    "deci": deci.ARCHITECTURE,
    "openelm": openelm.ARCHITECTURE,
    "dbrx": dbrx.ARCHITECTURE,
    "deepseek2": deepseek2.DEEPSEEK2,
    "mistral4": deepseek2.MISTRAL4,
    "minicpm3": minicpm3.ARCHITECTURE,
    "phimoe": phimoe.ARCHITECTURE,
    "llama4": llama4.ARCHITECTURE,
    "bailingmoe2": bailingmoe2.ARCHITECTURE,
    "grok": grok.ARCHITECTURE,
    "codeshell": codeshell.ARCHITECTURE,
    "ernie4_5-moe": ernie4_5_moe.ARCHITECTURE,
    "glm4moe": glm4moe.ARCHITECTURE,
    "gpt-oss": gpt_oss.ARCHITECTURE,
    "granitemoe": granitemoe.ARCHITECTURE,
    "hunyuan-moe": hunyuan_moe.ARCHITECTURE,
    "minimax-m2": minimax_m2.ARCHITECTURE,
    "olmoe": olmoe.ARCHITECTURE,
    "qwen2moe": qwen2moe.ARCHITECTURE,
    "qwen3moe": qwen3moe.ARCHITECTURE,
}

__all__ = [
    "ARCHITECTURES",
    "TOKEN_TYPES",
    "Architecture",
    "ImatrixCollection",
    "Model",
    "ModelConfig",
    "PackedCache",
    "Parity",
    "Weights",
    "architecture_of",
    "check_parity",
    "describe",
    "load_model",
    "read_config",
]


def architecture_of(checkpoint: Checkpoint) -> Architecture:
    """Return the architecture that a checkpoint names; UnsupportedError where it is none of these."""
    name = checkpoint.architecture
    if name not in ARCHITECTURES:
        raise UnsupportedError(
            f"{checkpoint.path} is of architecture {name}; supported are {', '.join(ARCHITECTURES)}"
        )
    return ARCHITECTURES[name]


def read_config(checkpoint: Checkpoint, ctx_size: int | None = None) -> ModelConfig:
    """Return a checkpoint's dimensions and constants.

    Args:
        checkpoint: The model's file.
        ctx_size: Positions of a text that it is loaded for, by which LongRoPE chooses its factors; None:
            the model's own.

    Raises:
        FormatError: A key is missing or makes no sense.
        UnsupportedError: The architecture, or a key of the file, is not known.
    """
    architecture = architecture_of(checkpoint)
    keys = Keys(checkpoint, ctx_size)
    config = architecture.read_config(keys)
    keys.refuse_unread()
    check_constants(keys, config)
    return config


def describe(checkpoint: Checkpoint) -> _core.Graph:
    """Return the pass up to the last layer, for no device: its state is what a sequence keeps.

    Raises:
        FormatError: A key or a tensor is missing or makes no sense.
        UnsupportedError: The architecture, or a key of the file, is not known.
    """
    config = read_config(checkpoint)
    builder = Builder(config.hadamard)
    architecture_of(checkpoint).hidden_states(builder, config, Weights(checkpoint))
    return builder.graph


def load_model(
    checkpoint: Checkpoint,
    device: Device | DevicePlan,
    progress: Progress | None = None,
    cache: PackedCache | None = None,
    adapters: Sequence[Adapter] = (),
    ctx_size: int | None = None,
) -> Model:
    """Describe a checkpoint's architecture, pack its weights for its devices and compile it."""
    config = read_config(checkpoint, ctx_size)
    architecture = architecture_of(checkpoint)
    return Model(config, Weights(checkpoint), architecture, device, progress, cache, adapters)
