"""Random folders of encoders that transformers does not have: their names and configurations."""

from __future__ import annotations

from dense_models import FF, HEADS, HIDDEN, LAYERS, VOCABULARY
from remote_folders import RemoteFolder

_EXPERTS = 4
_NONE = dict.fromkeys(("num_key_value_heads", "rms_norm_eps", "tie_word_embeddings", "rope_theta"))


def _both(name: str, *shape: int) -> dict[str, tuple[int, ...]]:
    """The weight and the bias of a norm or of a linear layer."""
    return {f"{name}.weight": shape, f"{name}.bias": shape[:1]}


_OUTSIDE = {
    "embeddings.word_embeddings.weight": (VOCABULARY, HIDDEN),
    "embeddings.token_type_embeddings.weight": (2, HIDDEN),
}
_JINA_OUTSIDE = {**_OUTSIDE, **_both("embeddings.LayerNorm", HIDDEN)}
_JINA = {
    **_both("attention.self.query", HIDDEN, HIDDEN),
    **_both("attention.self.key", HIDDEN, HIDDEN),
    **_both("attention.self.value", HIDDEN, HIDDEN),
    **_both("attention.output.dense", HIDDEN, HIDDEN),
    **_both("attention.output.LayerNorm", HIDDEN),
}
_JINA_CONFIG = {
    **_NONE, "position_embedding_type": "alibi", "hidden_act": "gelu", "layer_norm_eps": 1e-12,
    "type_vocab_size": 2, "pad_token_id": 0, "feed_forward_type": "geglu",
}  # fmt: skip
_NOMIC = {
    **_both("attn.Wqkv", 3 * HIDDEN, HIDDEN),
    **_both("attn.out_proj", HIDDEN, HIDDEN),
    **_both("norm1", HIDDEN),
    **_both("norm2", HIDDEN),
}
_NOMIC_CONFIG = {
    "hidden_size": None, "num_hidden_layers": None, "num_attention_heads": None,
    "intermediate_size": None, "max_position_embeddings": None, **_NONE,
    "n_embd": HIDDEN, "n_layer": LAYERS, "n_head": HEADS, "n_inner": FF, "n_positions": 2048,
    "layer_norm_epsilon": 1e-5, "rotary_emb_base": 10000, "activation_function": "gelu",
    "qkv_proj_bias": True, "mlp_fc1_bias": True, "mlp_fc2_bias": True, "causal": False,
    "moe_every_n_layers": 2, "num_experts": _EXPERTS, "moe_top_k": 2, "type_vocab_size": 2,
}  # fmt: skip

FOLDERS = {
    "jina-bert-v2": RemoteFolder(
        "JinaBertModel", "bert", _JINA_CONFIG, _JINA_OUTSIDE, "encoder.layer",
        {
            **_JINA, "mlp.gated_layers.weight": (2 * FF, HIDDEN), **_both("mlp.wo", HIDDEN, FF),
            **_both("mlp.layernorm", HIDDEN),
        },
    ),
    "jina-bert-v2-code": RemoteFolder(
        "JinaBertModel", "bert", _JINA_CONFIG, _JINA_OUTSIDE, "encoder.layer",
        {
            **_JINA, **_both("attention.self.layer_norm_q", HIDDEN),
            **_both("attention.self.layer_norm_k", HIDDEN), **_both("layer_norm_1", HIDDEN),
            "mlp.up_gated_layer.weight": (2 * FF, HIDDEN), **_both("mlp.down_layer", HIDDEN, FF),
            **_both("layer_norm_2", HIDDEN),
        },
    ),
    "jina-bert-v2-plain": RemoteFolder(
        "JinaBertForMaskedLM", "bert", {**_JINA_CONFIG, "feed_forward_type": "original"},
        {**{f"bert.{n}": s for n, s in _JINA_OUTSIDE.items()}, "bert.pooler.dense.bias": (HIDDEN,)},
        "bert.encoder.layer",
        {
            **_JINA, **_both("intermediate.dense", FF, HIDDEN), **_both("output.dense", HIDDEN, FF),
            **_both("output.LayerNorm", HIDDEN),
        },
    ),
    "nomic-bert-moe": RemoteFolder(
        "NomicBertModel", "nomic_bert", _NOMIC_CONFIG, {**_OUTSIDE, **_both("emb_ln", HIDDEN)},
        "encoder.layers", _NOMIC,
        own=(
            {**_both("mlp.fc1", FF, HIDDEN), **_both("mlp.fc2", HIDDEN, FF)},
            {
                "mlp.router.layer.weight": (_EXPERTS, HIDDEN), "mlp.experts.bias": (HIDDEN,),
                "mlp.experts.mlp.w1": (_EXPERTS * FF, HIDDEN),
                "mlp.experts.mlp.w2": (_EXPERTS * FF, HIDDEN),
            },
        ),
    ),
}  # fmt: skip
