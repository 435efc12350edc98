"""The converters of all model types: of families, and recipes for what no family describes yet."""

from __future__ import annotations

from oxibonsai.architectures import FAMILIES
from oxibonsai.convert.apertus import APERTUS
from oxibonsai.convert.baichuan import BAICHUAN
from oxibonsai.convert.bailingmoe2 import BAILINGMOE2
from oxibonsai.convert.bert import BERT, ROBERTA
from oxibonsai.convert.big_bird import BIG_BIRD
from oxibonsai.convert.bitnet import BITNET
from oxibonsai.convert.bloom import BLOOM
from oxibonsai.convert.codeshell import CODESHELL
from oxibonsai.convert.cohere import COHERE2, COMMAND_R
from oxibonsai.convert.dbrx import DBRX
from oxibonsai.convert.deci import DECI
from oxibonsai.convert.deepseek2 import DEEPSEEK2, MISTRAL4
from oxibonsai.convert.ernie4_5_moe import ERNIE4_5_MOE
from oxibonsai.convert.exaone4 import EXAONE4
from oxibonsai.convert.families import converter_of
from oxibonsai.convert.gemma3 import GEMMA3
from oxibonsai.convert.gemma3_multimodal import GEMMA3_MULTIMODAL
from oxibonsai.convert.gemma3n import GEMMA3N, GEMMA3N_MULTIMODAL
from oxibonsai.convert.gemma4 import GEMMA4, GEMMA4_MULTIMODAL
from oxibonsai.convert.gemma_embedding import GEMMA_EMBEDDING
from oxibonsai.convert.glm4moe import GLM4MOE
from oxibonsai.convert.gpt_oss import GPT_OSS
from oxibonsai.convert.granite import GRANITE
from oxibonsai.convert.granitemoe import GRANITEMOE
from oxibonsai.convert.grok import GROK
from oxibonsai.convert.hunyuan import HUNYUAN
from oxibonsai.convert.hunyuan_moe import HUNYUAN_MOE
from oxibonsai.convert.internlm2 import INTERNLM2
from oxibonsai.convert.jais import JAIS
from oxibonsai.convert.jamba import JAMBA
from oxibonsai.convert.jina_bert import JINA_BERT_V2, JINA_BERT_V3
from oxibonsai.convert.lfm2 import LFM2, LFM2MOE
from oxibonsai.convert.llama4 import LLAMA4, LLAMA4_MULTIMODAL
from oxibonsai.convert.longformer import LONGFORMER
from oxibonsai.convert.mamba import MAMBA, MAMBA2
from oxibonsai.convert.mamba_hybrid import FALCON_H1, GRANITE_HYBRID
from oxibonsai.convert.minicpm import MINICPM
from oxibonsai.convert.minicpm3 import MINICPM3
from oxibonsai.convert.minimax_m2 import MINIMAX_M2
from oxibonsai.convert.mistral3 import MISTRAL3
from oxibonsai.convert.mixtral import MIXTRAL
from oxibonsai.convert.modern_bert import MODERN_BERT
from oxibonsai.convert.mpt import MPT
from oxibonsai.convert.nemotron_h import NEMOTRON_H
from oxibonsai.convert.nomic_bert import NOMIC_BERT, NOMIC_BERT_MOE
from oxibonsai.convert.olmo2 import OLMO2
from oxibonsai.convert.olmoe import OLMOE
from oxibonsai.convert.openelm import OPENELM
from oxibonsai.convert.orion import ORION
from oxibonsai.convert.phi3 import PHI3
from oxibonsai.convert.phimoe import PHIMOE
from oxibonsai.convert.plamo import PLAMO
from oxibonsai.convert.plamo2 import PLAMO2
from oxibonsai.convert.qwen import QWEN
from oxibonsai.convert.qwen2moe import QWEN2MOE
from oxibonsai.convert.qwen3_reranker import QWEN3_RERANKER
from oxibonsai.convert.qwen3moe import QWEN3MOE
from oxibonsai.convert.qwen3next import QWEN3NEXT, QWEN35MOE, QWEN35MOE_MULTIMODAL
from oxibonsai.convert.qwen35 import QWEN35, QWEN35_MULTIMODAL
from oxibonsai.convert.qwen_vl import QWEN2VL, QWEN3VL, QWEN3VLMOE
from oxibonsai.convert.recipe import Converter
from oxibonsai.convert.refact import REFACT
from oxibonsai.convert.rwkv7 import RWKV7
from oxibonsai.convert.t5 import T5, T5_ENCODER

# By config.json's model_type, or what model_kind makes of it.
RECIPES: dict[str, Converter] = {
    **{name: converter_of(family) for family in FAMILIES for name in family.model_types},
    "apertus": APERTUS,
    "bert": BERT,
    "big_bird": BIG_BIRD,
    "camembert": ROBERTA,
    "embeddinggemma": GEMMA_EMBEDDING,
    "jina_bert_v2": JINA_BERT_V2,
    "jina_embeddings_v3": JINA_BERT_V3,
    "modernbert": MODERN_BERT,
    "nomic_bert": NOMIC_BERT,
    "nomic_bert_moe": NOMIC_BERT_MOE,
    "roberta": ROBERTA,
    "mt5": T5,
    "t5": T5,
    "t5_encoder": T5_ENCODER,
    "umt5": T5,
    "xlm-roberta": ROBERTA,
    "baichuan": BAICHUAN,
    "deci": DECI,
    "nemotron-nas": DECI,
    "internlm2": INTERNLM2,
    "jais": JAIS,
    "openelm": OPENELM,
    "plamo": PLAMO,
    "plamo2": PLAMO2,
    "qwen": QWEN,
    "rwkv7": RWKV7,
    "gpt_refact": REFACT,
    "bitnet": BITNET,
    "bloom": BLOOM,
    "codeshell": CODESHELL,
    "cohere": COMMAND_R,
    "cohere2": COHERE2,
    "exaone4": EXAONE4,
    "falcon_h1": FALCON_H1,
    "falcon_mamba": MAMBA,
    "gemma3": GEMMA3_MULTIMODAL,
    "gemma3_text": GEMMA3,
    "gemma3n": GEMMA3N_MULTIMODAL,
    "gemma3n_text": GEMMA3N,
    "gemma4": GEMMA4_MULTIMODAL,
    "gemma4_text": GEMMA4,
    "granite": GRANITE,
    "grok-1": GROK,
    "granitemoehybrid": GRANITE_HYBRID,
    "hunyuan_v1_dense": HUNYUAN,
    "jamba": JAMBA,
    "lfm2": LFM2,
    "lfm2_moe": LFM2MOE,
    "longformer": LONGFORMER,
    "minicpm": MINICPM,
    "ministral3": MISTRAL3,
    "mamba": MAMBA,
    "mamba2": MAMBA2,
    "mpt": MPT,
    "nemotron_h": NEMOTRON_H,
    "olmo2": OLMO2,
    "olmo3": OLMO2,
    "orion": ORION,
    "phi3": PHI3,
    "qwen2_vl": QWEN2VL,
    "qwen2_5_vl": QWEN2VL,
    "qwen3_vl": QWEN3VL,
    "qwen3_vl_moe": QWEN3VLMOE,
    "qwen3_reranker": QWEN3_RERANKER,
    "qwen3_5": QWEN35_MULTIMODAL,
    "qwen3_5_moe": QWEN35MOE_MULTIMODAL,
    "qwen3_5_moe_text": QWEN35MOE,
    "qwen3_5_text": QWEN35,
    "qwen3_next": QWEN3NEXT,
    "bailing_moe_v2": BAILINGMOE2,
    "dbrx": DBRX,
    "deepseek_v2": DEEPSEEK2,
    "deepseek_v3": DEEPSEEK2,
    "ernie4_5_moe": ERNIE4_5_MOE,
    "glm4_moe": GLM4MOE,
    "gpt_oss": GPT_OSS,
    "granitemoe": GRANITEMOE,
    "granitemoeshared": GRANITEMOE,
    "hunyuan_v1_moe": HUNYUAN_MOE,
    "minimax_m2": MINIMAX_M2,
    "llama4": LLAMA4_MULTIMODAL,
    "llama4_text": LLAMA4,
    "minicpm3": MINICPM3,
    "mistral4": MISTRAL4,
    "mixtral": MIXTRAL,
    "olmoe": OLMOE,
    "phimoe": PHIMOE,
    "qwen2_moe": QWEN2MOE,
    "qwen3_moe": QWEN3MOE,
}
