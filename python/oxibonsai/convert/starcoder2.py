"""StarCoder2: names and keys; biases everywhere."""

from __future__ import annotations

from oxibonsai.convert import decoder
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.recipe import Metadata, Recipe
from oxibonsai.convert.rope import read_rope, rope_keys
from oxibonsai.convert.text_tokenizer import tokenizer_keys

LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.c_fc": "ffn_up",
    "mlp.c_proj": "ffn_down",
}


def metadata(folder: ModelFolder) -> Metadata:
    """The model's keys, then its tokenizer's."""
    folder.require("hidden_act", "gelu_pytorch_tanh")
    keys = {
        **decoder.dimension_keys(folder, "starcoder2", "norm_epsilon"),
        **rope_keys("starcoder2", *read_rope(folder, ("default", "linear"))),
        **tokenizer_keys(folder),
    }
    if folder.config.get("sliding_window") is not None:
        keys["starcoder2.attention.sliding_window"] = (folder.count("sliding_window"), "u32")
    return keys


def _shapes(folder: ModelFolder) -> dict[str, tuple[int, ...]]:
    norms = ("attn_norm", "ffn_norm")
    biased = LAYER.values() if folder.config.get("use_bias", True) is True else norms
    return decoder.shapes(folder, LAYER.values(), biased, tied=True)


STARCODER2 = Recipe(
    "starcoder2",
    metadata,
    decoder.namer("StarCoder2", LAYER, (*LAYER.values(), "output_norm")),
    decoder.is_matrix,
    shapes=_shapes,
)
