"""Small random encoders, as transformers saves them, and their hidden states.

Two or more layers of 64 dims, weights that leave nothing at its default: a norm, a bias or a factor
that is missing somewhere changes the states.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from dense_models import FF, HEADS, HIDDEN, KV_HEADS, LAYERS, POSITIONS, VOCABULARY, random_values

# Longer than a tile of attention and than the windows.
IDS: list[int] = np.random.default_rng(11).integers(5, VOCABULARY, 90).tolist()
_SIZES = {
    "vocab_size": VOCABULARY, "hidden_size": HIDDEN, "intermediate_size": FF,
    "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
    "max_position_embeddings": POSITIONS, "pad_token_id": 0, "type_vocab_size": 2,
}  # fmt: skip


@dataclass(frozen=True)
class Encoder:
    """One structure.

    Attributes:
        name: Of the test.
        kind: Transformers' ``KINDConfig``.
        options: Of the configuration, beside the common sizes; ``...`` takes a size away.
        extra: Keys of ``config.json`` that published folders have.
        model: Transformers' class, after ``kind``.
        differences: Keys of the converted file, without the architecture, in which llama.cpp's
            converter differs.
        more_tensors: Tensors that the converted file has and llama.cpp's has not.
        converted_by_llama_cpp: Whether it reads the folder at all.
    """

    name: str
    kind: str
    options: Mapping[str, Any] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)
    model: str = "Model"
    differences: tuple[str, ...] = ()
    more_tensors: tuple[str, ...] = ()
    converted_by_llama_cpp: bool = True


def save(case: Encoder, folder: Path) -> Any:
    """Writes the folder, without a tokenizer, and returns transformers' model in float32."""
    import torch
    import transformers

    options = copy.deepcopy(dict(case.options))
    sizes = {k: v for k, v in {**_SIZES, **options}.items() if v is not ...}
    config = getattr(transformers, f"{case.kind}Config")(**sizes)
    config._attn_implementation = "eager"
    model = getattr(transformers, f"{case.kind}{case.model}")(config).float().eval()
    if options.get("tie_word_embeddings") is False:  # T5's configurations forget it
        model.config.tie_word_embeddings = False
        model.lm_head.weight = torch.nn.Parameter(torch.empty_like(model.lm_head.weight))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            values = random_values(name, tuple(parameter.shape))
            if case.model == "ForConditionalGeneration" and name.endswith("Attention.q.weight"):
                # T5 does not scale scores, so its queries are small: with larger ones, rounding moves
                # the logits of transformers' float32 by 5e-4 of the largest.
                values *= options["d_kv"] ** -0.5
            parameter.copy_(torch.from_numpy(values))
    model.save_pretrained(folder)
    file = folder / "config.json"
    stated = {**json.loads(file.read_text()), **case.extra}
    file.write_text(json.dumps({k: v for k, v in stated.items() if v is not ...}))
    return model


def states(model: Any, ids: list[int]) -> npt.NDArray[np.float32]:
    """Of transformers' float32 pass: [n, hidden]."""
    import torch

    more = {}
    if model.config.model_type == "longformer":  # the first token is global
        more["global_attention_mask"] = torch.eye(1, len(ids))
    with torch.no_grad():
        output = model(torch.tensor([ids]), **more)
    found: npt.NDArray[np.float32] = output.last_hidden_state[0].float().numpy()
    return found


def seq2seq_logits(model: Any, ids: list[int], decoded: list[int]) -> npt.NDArray[np.float32]:
    """Of a decoder's tokens, behind an encoder that has read ``ids``: [n, vocabulary]."""
    import torch

    with torch.no_grad():
        output = model(torch.tensor([ids]), decoder_input_ids=torch.tensor([decoded]))
    found: npt.NDArray[np.float32] = output.logits[0].float().numpy()
    return found


def scores(
    model: Any, ids: list[int], segments: list[int] | None = None
) -> npt.NDArray[np.float32]:
    """Of transformers' classifier: [labels]."""
    import torch

    more = {} if segments is None else {"token_type_ids": torch.tensor([segments])}
    with torch.no_grad():
        found: npt.NDArray[np.float32] = model(torch.tensor([ids]), **more).logits[0].numpy()
    return found


_NOMIC = {
    "n_embd": HIDDEN, "n_layer": LAYERS, "n_head": HEADS, "n_inner": FF, "n_positions": 8192,
    "layer_norm_epsilon": 1e-12, "rotary_emb_base": 1000, "activation_function": "swiglu",
    "causal": False, "qkv_proj_bias": False, "mlp_fc1_bias": False, "mlp_fc2_bias": False,
    "prenorm": False, "rotary_emb_fraction": 1.0, "rotary_emb_interleaved": False,
    "rotary_emb_scale_base": None, "rope_parameters": ..., "hidden_act": ...,
    "max_position_embeddings": ..., "hidden_size": ..., "num_hidden_layers": ...,
    "num_attention_heads": ..., "intermediate_size": ..., "layer_norm_eps": ..., "head_dim": ...,
}  # fmt: skip
_MODERN = {
    "num_hidden_layers": 4, "local_attention": 24, "pad_token_id": 0, "type_vocab_size": ...,
    "bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2,
}  # fmt: skip
_MODERN_EXTRA = {"global_attn_every_n_layers": 3, "layer_norm_eps": 1e-5}
_BIG_BIRD = {"attention_type": "block_sparse", "block_size": 8, "num_random_blocks": 2}
_LONGFORMER = {"pad_token_id": 1, "type_vocab_size": 1, "attention_window": [24, 8]}
_RMS = ("attention.layer_norm_rms_epsilon",)  # which no norm has
_GEMMA = {
    "use_bidirectional_attention": True, "sliding_window": 24, "head_dim": 32,
    "query_pre_attn_scalar": 32, "num_key_value_heads": KV_HEADS, "num_hidden_layers": 6,
    "type_vocab_size": ...,
}  # fmt: skip
_T5 = {
    "d_model": HIDDEN, "d_ff": FF, "d_kv": 24, "num_layers": LAYERS, "num_heads": HEADS,
    "hidden_size": ..., "intermediate_size": ..., "num_hidden_layers": ..., "type_vocab_size": ...,
    "num_attention_heads": ..., "max_position_embeddings": ...,
}  # fmt: skip

ENCODERS = [
    Encoder("bert", "Bert"),
    Encoder("roberta", "Roberta", {"pad_token_id": 1, "type_vocab_size": 1}),
    Encoder("xlm-roberta", "XLMRoberta", {"pad_token_id": 1, "type_vocab_size": 1}),
    Encoder(
        "nomic-bert",
        "NomicBert",
        {"rope_parameters": {"rope_type": "default", "rope_theta": 1000.0}},
        _NOMIC,
    ),
    Encoder(
        "nomic-bert-hf",
        "NomicBert",
        {"rope_parameters": {"rope_type": "default", "rope_theta": 1000.0}},
        converted_by_llama_cpp=False,
    ),
    Encoder(
        "jina-bert-v3",
        "JinaEmbeddingsV3",
        {
            "pad_token_id": 1,
            "type_vocab_size": 1,
            "rope_parameters": {"rope_type": "default", "rope_theta": 20000.0},
        },
        converted_by_llama_cpp=False,
    ),
    Encoder(
        "big-bird-full",
        "BigBird",
        {
            "attention_type": "original_full",
            "hidden_act": "gelu",
            "rescale_embeddings": True,
            "use_bias": False,
        },
        converted_by_llama_cpp=False,
    ),
    Encoder("big-bird", "BigBird", _BIG_BIRD, converted_by_llama_cpp=False),
    Encoder(
        "big-bird-odd-blocks",
        "BigBird",
        {**_BIG_BIRD, "block_size": 11, "num_random_blocks": 1},
        converted_by_llama_cpp=False,
    ),
    Encoder("longformer", "Longformer", _LONGFORMER, converted_by_llama_cpp=False),
    Encoder("modern-bert", "ModernBert", _MODERN, _MODERN_EXTRA, differences=_RMS),
    Encoder(
        "modern-bert-silu",
        "ModernBert",
        {**_MODERN, "hidden_activation": "silu"},
        _MODERN_EXTRA,
        differences=_RMS,
    ),
    Encoder(
        "gemma-embedding",
        "Gemma3Text",
        _GEMMA,
        {"sliding_window": 24},
        differences=("attention.causal", "attention.sliding_window_pattern"),
    ),
    Encoder("t5encoder", "T5", {**_T5, "feed_forward_proj": "relu"}, model="EncoderModel"),
    Encoder(
        "t5encoder-gated",
        "T5",
        {**_T5, "feed_forward_proj": "gated-gelu", "relative_attention_num_buckets": 16},
        model="EncoderModel",
    ),
    Encoder(
        "umt5encoder",
        "UMT5",
        {**_T5, "feed_forward_proj": "gated-gelu"},
        model="EncoderModel",
        converted_by_llama_cpp=False,
    ),
]


_T5_DECODER = {**_T5, "decoder_start_token_id": 3}
SEQ2SEQ = [
    Encoder(
        "t5",
        "T5",
        {**_T5_DECODER, "feed_forward_proj": "relu"},
        model="ForConditionalGeneration",
    ),
    Encoder(
        "t5-gated",
        "T5",
        {**_T5_DECODER, "feed_forward_proj": "gated-gelu", "num_layers": 3, "num_decoder_layers": 2,
         "relative_attention_num_buckets": 16, "tie_word_embeddings": False},
        model="ForConditionalGeneration",
    ),
    Encoder(
        "umt5",
        "UMT5",
        {**_T5_DECODER, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
        model="ForConditionalGeneration",
    ),
]  # fmt: skip


_LABELS = {"num_labels": 3, "id2label": {0: "no", 1: "maybe", 2: "yes"}}
_ONE = {"num_labels": 1}
# The first layer of BERT's head, without which its scores are others.
_POOLER = ("cls.weight", "cls.bias")
CLASSIFIERS = [
    Encoder(
        "bert-classifier", "Bert", _LABELS, model="ForSequenceClassification", more_tensors=_POOLER
    ),
    Encoder("bert-reranker", "Bert", _ONE, model="ForSequenceClassification", more_tensors=_POOLER),
    Encoder(
        "xlm-roberta-reranker",
        "XLMRoberta",
        {"pad_token_id": 1, "type_vocab_size": 1, **_ONE},
        model="ForSequenceClassification",
    ),
    Encoder(
        "big-bird-classifier",
        "BigBird",
        {**_BIG_BIRD, **_LABELS},
        model="ForSequenceClassification",
        converted_by_llama_cpp=False,
    ),
    Encoder(
        "longformer-reranker",
        "Longformer",
        {**_LONGFORMER, "type_vocab_size": 2, **_ONE},
        model="ForSequenceClassification",
        converted_by_llama_cpp=False,
    ),
    Encoder(
        "modern-bert-reranker",
        "ModernBert",
        {**_MODERN, **_ONE, "classifier_pooling": "mean"},
        _MODERN_EXTRA,
        model="ForSequenceClassification",
        differences=_RMS,
    ),
    Encoder(
        "modern-bert-classifier",
        "ModernBert",
        {**_MODERN, **_LABELS, "classifier_pooling": "cls"},
        _MODERN_EXTRA,
        model="ForSequenceClassification",
        differences=_RMS,
    ),
]


@dataclass(frozen=True)
class RemoteEncoder:
    """One structure that transformers does not have: truth is llama.cpp's run of the same file.

    Attributes:
        architecture: GGUF's name.
        layers: Shapes of each layer's tensors, by their names within it.
        keys: Of the architecture, beside the common ones.
        variant: Tells two structures of one architecture apart.
    """

    architecture: str
    layers: tuple[Mapping[str, tuple[int, ...]], ...]
    keys: Mapping[str, Any] = field(default_factory=dict)
    variant: str = ""

    @property
    def name(self) -> str:
        """Of the test."""
        return f"{self.architecture}{self.variant}"


def write(case: RemoteEncoder, path: Path) -> None:
    """The file in float32, without a vocabulary; weights are functions of their tensors' names."""
    import gguf

    writer = gguf.GGUFWriter(str(path), case.architecture)
    writer.add_tokenizer_model("no_vocab")
    writer.add_token_type_count(2)
    writer.add_causal_attention(False)
    writer.add_layer_norm_eps(1e-5)
    counts = {
        "vocab_size": VOCABULARY, "context_length": POSITIONS, "embedding_length": HIDDEN,
        "block_count": len(case.layers), "feed_forward_length": FF, "attention.head_count": HEADS,
    }  # fmt: skip
    for key, value in {**counts, **case.keys}.items():
        add = writer.add_uint32 if isinstance(value, int) else writer.add_float32
        add(f"{case.architecture}.{key}", value)
    tensors: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (VOCABULARY, HIDDEN),
        "token_types.weight": (2, HIDDEN),
        **_norm("token_embd_norm"),
    }
    for i, layer in enumerate(case.layers):
        tensors |= {f"blk.{i}.{name}": shape for name, shape in layer.items()}
    for name, shape in tensors.items():
        writer.add_tensor(name, random_values(f"{case.name}.{name}", shape))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _norm(name: str) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (HIDDEN,), f"{name}.bias": (HIDDEN,)}


def _linear(name: str, rows: int, cols: int, *, bias: bool = True) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (rows, cols)} | ({f"{name}.bias": (rows,)} if bias else {})


_NORMS = {**_norm("attn_output_norm"), **_norm("layer_output_norm")}
_SEPARATE = {
    **_linear("attn_q", HIDDEN, HIDDEN), **_linear("attn_k", HIDDEN, HIDDEN),
    **_linear("attn_v", HIDDEN, HIDDEN), **_linear("attn_output", HIDDEN, HIDDEN),
}  # fmt: skip
_FUSED = {**_linear("attn_qkv", 3 * HIDDEN, HIDDEN), **_linear("attn_output", HIDDEN, HIDDEN)}
_PLAIN = {**_linear("ffn_up", FF, HIDDEN), **_linear("ffn_down", HIDDEN, FF)}
_GATED = {**_linear("ffn_up", 2 * FF, HIDDEN, bias=False), **_linear("ffn_down", HIDDEN, FF)}
_EXPERTS = {
    "ffn_gate_inp.weight": (8, HIDDEN), "ffn_up_exps.weight": (8, FF, HIDDEN),
    "ffn_down_exps.weight": (8, HIDDEN, FF),
}  # fmt: skip
_QK_NORMS = {**_norm("attn_q_norm"), **_norm("attn_k_norm"), **_norm("attn_norm_2")}

REMOTE = [
    RemoteEncoder(
        "nomic-bert-moe",
        ({**_NORMS, **_FUSED, **_PLAIN}, {**_NORMS, **_FUSED, **_EXPERTS}),
        {"moe_every_n_layers": 2, "expert_count": 8, "expert_used_count": 2,
         "rope.freq_base": 10000.0},
    ),
    RemoteEncoder("jina-bert-v2", ({**_NORMS, **_SEPARATE, **_GATED},) * 2),
    RemoteEncoder("jina-bert-v2", ({**_NORMS, **_SEPARATE, **_PLAIN, **_QK_NORMS},) * 2, variant="-code"),
]  # fmt: skip
