"""Fields of the configurations of encoders and classifiers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from oxibonsai.checkpoint import Checkpoint
from oxibonsai.export.numbers import short
from oxibonsai.export.saved import QKV, Fields, Saved, biased, layer_types
from oxibonsai.models.config import ModelConfig
from oxibonsai.tokenizer import Tokenizer

# GGUF's numbers of what a classifier's head reads.
_POOLING = {1: "mean", 2: "cls"}


def _segments(checkpoint: Checkpoint) -> int:
    held = checkpoint.has("token_types.weight")
    return checkpoint.shape("token_types.weight")[0] if held else 0


def _labels(checkpoint: Checkpoint, c: ModelConfig) -> Fields:
    """Return the fields of a classifier's labels."""
    if c.classifier is None:
        return {}
    if not c.classifier.labels:
        return {"num_labels": checkpoint.shape("cls.output.weight")[0]}
    names = {str(i): label for i, label in enumerate(c.classifier.labels)}
    return {"id2label": names, "label2id": {label: int(i) for i, label in names.items()}}


def _bert(checkpoint: Checkpoint, c: ModelConfig) -> Fields:
    return {
        "hidden_act": "gelu",
        "position_embedding_type": "absolute",
        "is_decoder": False,
        "type_vocab_size": _segments(checkpoint),
        **_labels(checkpoint, c),
    }


def _big_bird(checkpoint: Checkpoint, c: ModelConfig) -> Fields:
    sparse = {
        "attention_type": "block_sparse",
        "block_size": c.block_size,
        "num_random_blocks": c.num_random_blocks,
    }
    return {
        **_bert(checkpoint, c),
        **(sparse if c.block_size else {"attention_type": "original_full"}),
        "hidden_act": c.hidden_act,
        "rescale_embeddings": c.embedding_scale != 1.0,
        "use_bias": biased(checkpoint, *QKV),
    }


def _default_rope(theta: float) -> Fields:
    return {"rope_type": "default", "rope_theta": short(theta)}


def _padding(checkpoint: Checkpoint) -> int | None:
    return Tokenizer.from_gguf(checkpoint.file).pad_id if checkpoint.has_tokenizer else None


def _nomic(checkpoint: Checkpoint, c: ModelConfig) -> Fields:
    return {
        "pad_token_id": _padding(checkpoint) or 0,  # transformers wants one
        "hidden_act": "silu",
        "type_vocab_size": _segments(checkpoint),
        "rope_parameters": _default_rope(c.rope.theta),
        **dict.fromkeys(("qkv_proj_bias", "mlp_fc1_bias", "mlp_fc2_bias"), False),
    }


def _jina(checkpoint: Checkpoint, c: ModelConfig) -> Fields:
    pad = _padding(checkpoint)
    # Up to the id of the padding, rows are no position's.
    positions = c.max_position_embeddings + (0 if pad is None else pad + 1)
    return {
        "hidden_act": "gelu",
        "type_vocab_size": _segments(checkpoint),
        "max_position_embeddings": positions,
        "rope_parameters": _default_rope(c.rope.theta),
    }


def _modern(checkpoint: Checkpoint, c: ModelConfig) -> Fields:
    assert c.rope_local is not None  # of every file of the architecture
    found = {
        "hidden_activation": c.hidden_act,
        "local_attention": checkpoint.file.get("modern-bert.attention.sliding_window"),
        "layer_types": layer_types(c),
        "rope_parameters": {
            "full_attention": _default_rope(c.rope.theta),
            "sliding_attention": _default_rope(c.rope_local.theta),
        },
        "classifier_bias": checkpoint.has("cls.bias"),
        **dict.fromkeys(("norm_bias", "attention_bias", "mlp_bias"), False),
        **_labels(checkpoint, c),
    }
    kind = checkpoint.file.get("modern-bert.classifier.pooling_type")
    if kind is None and c.classifier is None:
        return found
    pooling = c.classifier.pooling if c.classifier is not None else _POOLING.get(kind, "cls")
    return {**found, "classifier_pooling": pooling}


def _gemma(checkpoint: Checkpoint, c: ModelConfig) -> Fields:
    return {
        "hidden_activation": "gelu_pytorch_tanh",
        "attention_bias": False,
        "query_pre_attn_scalar": round(c.attention_scale**-2),
        "sliding_window": checkpoint.file.get("gemma-embedding.attention.sliding_window"),
        "layer_types": layer_types(c),
        "sliding_window_pattern": c.sliding_window_pattern,
        "rope_local_base_freq": (c.rope_local or c.rope).theta,
        "use_bidirectional_attention": True,
        "attn_logit_softcapping": None,
        "final_logit_softcapping": None,
    }


def _t5(checkpoint: Checkpoint, c: ModelConfig) -> Fields:
    gated = checkpoint.has("enc.blk.0.ffn_gate.weight")
    positions = c.max_position_embeddings // (1 if c.decoder is None else 2)  # of both sides
    found: Fields = {
        "d_model": c.hidden_size,
        "d_ff": c.intermediate_size,
        "d_kv": c.head_dim,
        "num_layers": c.num_hidden_layers,
        "num_heads": c.num_attention_heads,
        "n_positions": positions,
        "max_position_embeddings": positions,
        "feed_forward_proj": "gated-gelu" if gated else "relu",
        "relative_attention_num_buckets": c.relative_buckets,
        "relative_attention_max_distance": 128,
        "is_encoder_decoder": c.decoder is not None,
    }
    if c.decoder is None:
        return {**found, "tie_word_embeddings": True}
    found["num_decoder_layers"] = c.decoder.num_layers
    found["decoder_start_token_id"] = c.decoder.start_token_id
    found["scale_decoder_outputs"] = not checkpoint.has("output.weight")
    return found


def _t5_saved(model_type: str, kind: str) -> dict[str, Saved]:
    """Return the entries of the whole model and of its encoder alone."""
    whole = Saved(
        model_type, kind, _t5, "layer_norm_epsilon", head_dim=False, rope="none",
        task="ForConditionalGeneration",
    )  # fmt: skip
    alone = replace(whole, task="EncoderModel", recipe="t5_encoder")
    return {model_type: whole, f"{model_type}encoder": alone}


ENCODERS: Mapping[str, Saved] = {
    "bert": Saved(
        "bert", "Bert", _bert, "layer_norm_eps", head_dim=False, rope="none", task="Model",
        prefix="bert.",
    ),
    "big-bird": Saved(
        "big_bird", "BigBird", _big_bird, "layer_norm_eps", head_dim=False, rope="none",
        task="Model", prefix="bert.",
    ),
    "nomic-bert": Saved(
        "nomic_bert", "NomicBert", _nomic, "layer_norm_eps", head_dim=False, rope="none",
        task="Model",
    ),
    "jina-bert-v3": Saved(
        "jina_embeddings_v3", "JinaEmbeddingsV3", _jina, "layer_norm_eps", head_dim=False,
        rope="none", task="Model",
    ),
    "modern-bert": Saved(
        "modernbert", "ModernBert", _modern, "norm_eps", head_dim=False, rope="none", task="Model",
        prefix="model.",
    ),
    "gemma-embedding": Saved(
        "gemma3_text", "Gemma3Text", _gemma, task="Model", recipe="embeddinggemma"
    ),
    **_t5_saved("t5", "T5"),
    **_t5_saved("umt5", "UMT5"),
}  # fmt: skip
# Those with a prefix have heads of classifiers here.
_SCORING = [name for name, saved in ENCODERS.items() if saved.prefix]


def scoring(saved: Saved) -> Saved:
    """Return the entry of a classifier."""
    return replace(saved, task="ForSequenceClassification")


def encoder_as(checkpoint: Checkpoint, c: ModelConfig) -> str | None:
    """Return the model's name in ``ENCODERS``; None if no class of transformers has its head."""
    if c.classifier is not None:
        return c.architecture if c.architecture in _SCORING else None
    if c.architecture.startswith("t5") and checkpoint.has("enc.blk.1.attn_rel_b.weight"):
        return f"um{c.architecture}"  # every layer has biases of its own
    return c.architecture
