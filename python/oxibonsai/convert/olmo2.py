"""OLMo 2 and 3: names and keys; q and k are normalised over all heads at once."""

from __future__ import annotations

from oxibonsai.architectures.rotary import YARN_NUMBERS
from oxibonsai.convert import decoder
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.recipe import Metadata, Recipe
from oxibonsai.convert.rope import read_rope, rope_keys, yarn_keys
from oxibonsai.convert.text_tokenizer import tokenizer_keys

LAYER = {
    **{k: v for k, v in decoder.LAYER.items() if "norm" not in v},
    **decoder.HEAD_NORMS,
    "post_attention_layernorm": "post_attention_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}


def metadata(folder: ModelFolder) -> Metadata:
    """Return the model's keys, then its tokenizer's."""
    folder.require("hidden_act", "silu")
    folder.require("attention_bias", False)
    kinds = ("default", "linear", "yarn")
    rope, own = folder.config.get("rope_parameters"), Metadata()
    if isinstance(rope, dict) and "full_attention" in rope:
        _, local = read_rope(folder, ("default",), rope.get("sliding_attention"))
        own = {"olmo2.rope.freq_base_swa": (local["rope_theta"], "f32")}
        rope = rope["full_attention"]
    found = read_rope(folder, kinds, rope, also=YARN_NUMBERS)
    keys = {
        **decoder.dimension_keys(folder, "olmo2"),
        **rope_keys("olmo2", *found),
        **yarn_keys(folder, "olmo2", rope),
        **own,
        **tokenizer_keys(folder),
    }
    if folder.config.get("model_type") == "olmo3":
        keys |= decoder.window_keys(folder, "olmo2", 4)
    return keys


def _shapes(folder: ModelFolder) -> dict[str, tuple[int, ...]]:
    width = decoder.head_dim(folder)
    norms = {
        "attn_q_norm": (width * folder.count("num_attention_heads"),),
        "attn_k_norm": (width * decoder.kv_heads(folder),),
    }
    return decoder.shapes(folder, LAYER.values(), special=norms)


OLMO2 = Recipe("olmo2", metadata, decoder.namer("OLMo 2", LAYER), decoder.is_matrix, shapes=_shapes)
