"""GLM-4: names and keys, of its first models (chatglm) and of those with more norms."""

from __future__ import annotations

from collections.abc import Collection

from oxibonsai.convert import decoder
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.recipe import Metadata, Recipe
from oxibonsai.convert.rope import PARTIAL, read_rope, rope_keys, rotary_dims
from oxibonsai.convert.text_tokenizer import tokenizer_keys

LAYER = {
    **{k: v for k, v in decoder.LAYER.items() if v not in ("ffn_gate", "ffn_up")},
    "mlp.gate_up_proj": "ffn_up",
}
LAYER_4 = {
    **LAYER,
    "post_self_attn_layernorm": "post_attention_norm",
    "post_mlp_layernorm": "post_ffw_norm",
}
_BIASED = ("attn_q", "attn_k", "attn_v")


def _metadata(folder: ModelFolder, architecture: str) -> Metadata:
    folder.require("hidden_act", "silu")
    dims = rotary_dims(folder, decoder.head_dim(folder), share=0.5)
    return {
        **decoder.dimension_keys(folder, architecture),
        f"{architecture}.rope.dimension_count": (dims, "u32"),
        **rope_keys(architecture, *read_rope(folder, ("default",), also=(PARTIAL,))),
        **tokenizer_keys(folder),
    }


def _shapes(folder: ModelFolder, parts: Collection[str]) -> dict[str, tuple[int, ...]]:
    up = {"ffn_up": (2 * folder.count("intermediate_size"), folder.count("hidden_size"))}
    biased = _BIASED if folder.config.get("attention_bias") is True else ()
    return decoder.shapes(folder, parts, biased, special=up)


GLM = Recipe(
    "chatglm",
    lambda folder: _metadata(folder, "chatglm"),
    decoder.namer("GLM", LAYER, _BIASED),
    decoder.is_matrix,
    shapes=lambda folder: _shapes(folder, LAYER.values()),
)
GLM4 = Recipe(
    "glm4",
    lambda folder: _metadata(folder, "glm4"),
    decoder.namer("GLM-4", LAYER_4, _BIASED),
    decoder.is_matrix,
    shapes=lambda folder: _shapes(folder, LAYER_4.values()),
)
