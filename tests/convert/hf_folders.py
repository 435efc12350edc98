"""Random models of several architectures as transformers saves them, with small tokenizers."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oxibonsai.tokenizer.byte_level import BYTE_OF

VOCABULARY = 320
_SIZES = {
    "vocab_size": VOCABULARY, "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512,
    "initializer_range": 0.1,
}  # fmt: skip
_LLAMA3 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32, "rope_theta": 5e5,
}  # fmt: skip
YARN = {
    "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "rope_theta": 1e6,
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One model: its name and how transformers configures it."""

    name: str
    config: Callable[[], Any]
    spm: bool = False


def _plain(theta: float) -> dict[str, Any]:
    return {"rope_type": "default", "rope_theta": theta}


def _llama(**options: Any) -> Callable[[], Any]:
    def make() -> Any:
        from transformers import LlamaConfig

        return LlamaConfig(**{**_SIZES, "rope_parameters": _plain(1e4), **options})

    return make


def _qwen(kind: str, **options: Any) -> Callable[[], Any]:
    def make() -> Any:
        import transformers

        config = getattr(transformers, f"{kind}Config")
        return config(**{**_SIZES, "rope_parameters": _plain(1e6), **options})

    return make


def _gemma3(rope: dict[str, Any], **options: Any) -> Callable[[], Any]:
    def make() -> Any:
        from transformers import Gemma3TextConfig

        sizes = {**_SIZES, "num_hidden_layers": 7, "num_key_value_heads": 1, "head_dim": 64}
        ropes = {"full_attention": rope, "sliding_attention": _plain(1e4)}
        return Gemma3TextConfig(
            **{**sizes, "sliding_window": 24, "query_pre_attn_scalar": 64,
               "rope_parameters": ropes, "pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 1,
               **options}
        )  # fmt: skip

    return make


CASES = [
    Case("llama", _llama()),
    Case("llama-spm", _llama(), spm=True),
    Case("llama-tied-biased", _llama(tie_word_embeddings=True, attention_bias=True)),
    Case("llama-linear", _llama(rope_parameters={**_plain(1e4), "rope_type": "linear", "factor": 2.0})),
    Case("llama3", _llama(rope_parameters=_LLAMA3)),
    Case("llama-yarn", _llama(rope_parameters=YARN)),
    Case("qwen2", _qwen("Qwen2")),
    Case("qwen3", _qwen("Qwen3", head_dim=64, rope_parameters=YARN)),
    Case("gemma3", _gemma3(_plain(1e6)), spm=True),
    Case("gemma3-linear", _gemma3({**_plain(1e6), "rope_type": "linear", "factor": 8.0}), spm=True),
    Case("gemma3-scalar", _gemma3(_plain(1e6), query_pre_attn_scalar=48), spm=True),
    Case("gemma3-period", _gemma3(_plain(1e6), sliding_window_pattern=3), spm=True),
]  # fmt: skip


def save(case: Case, folder: Path, *, tokenizer: bool = True, **options: Any) -> Any:
    """Writes the folder; returns the model in float32, with weights of some size everywhere.

    Args:
        case: Which model.
        folder: Made where it is not there.
        tokenizer: Write one too.
        options: Of ``save_pretrained``.
    """
    import torch
    from transformers import AutoModelForCausalLM

    torch.manual_seed(3)
    config = case.config()
    config._attn_implementation = "eager"
    model = AutoModelForCausalLM.from_config(config).float().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim == 1:  # norms and biases that are not all alike
                centre = 1.0 if "norm" in name and not case.name.startswith("gemma") else 0.0
                parameter.copy_(centre + 0.2 * torch.randn(parameter.shape))
    model.save_pretrained(folder, **options)
    if tokenizer:
        write_tokenizer(folder, spm=case.spm)
    return model


def logits(model: Any, ids: list[int]) -> Any:
    """Of transformers' float32 pass: [n, vocabulary]."""
    import torch

    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0].float().numpy()


def write_tokenizer(folder: Path, *, spm: bool) -> None:
    """``tokenizer.json``, its configuration and a template."""
    document = _spm() if spm else _byte_level()
    (folder / "tokenizer.json").write_text(json.dumps(document))
    special = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": None}
    if spm:
        special["unk_token"] = "<unk>"
    config = {**special, "tokenizer_class": "PreTrainedTokenizerFast"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "chat_template.jinja").write_text("{{ messages[0]['content'] }}")


def _added(texts: list[str], first: int) -> list[dict[str, Any]]:
    flags = dict.fromkeys(["single_word", "lstrip", "rstrip", "normalized"], False)
    return [{"id": first + i, "content": t, "special": True, **flags} for i, t in enumerate(texts)]


def _document(**parts: Any) -> dict[str, Any]:
    names = ["truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer"]
    names += ["post_processor", "decoder", "model"]
    return {"version": "1.0", **{n: parts.get(n) for n in names}}


def _byte_level() -> dict[str, Any]:
    pieces = [*BYTE_OF, "He", "ll", "Hell", "\u0120w", "rl"]
    merges = [["H", "e"], ["l", "l"], ["He", "ll"], ["\u0120", "w"], ["r", "l"]]
    plain = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": True,
    }
    model = {
        "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
        "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
        "ignore_merges": False, "vocab": {p: i for i, p in enumerate(pieces)}, "merges": merges,
    }  # fmt: skip
    added = _added(["<s>", "</s>", "<pad>"], len(pieces))
    return _document(added_tokens=added, pre_tokenizer=plain, decoder=plain, model=model)


def _spm() -> dict[str, Any]:
    special = ["<pad>", "</s>", "<s>", "<unk>"]
    letters = ["\u2581", *"Helowrd,its"]
    made = [["l", "l"], ["H", "e"], ["He", "ll"], ["\u2581", "w"], ["o", "r"], ["\u2581w", "or"]]
    pieces = [
        *special,
        *(f"<0x{b:02X}>" for b in range(256)),
        *("".join(m) for m in made),
        *letters,
    ]
    model = {
        "type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None,
        "end_of_word_suffix": None, "fuse_unk": True, "byte_fallback": True,
        "ignore_merges": False, "vocab": {p: i for i, p in enumerate(pieces)}, "merges": made,
    }  # fmt: skip
    space = {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}
    frame = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [2], "tokens": ["<s>"]}},
    }  # fmt: skip
    decoder = {
        "type": "Sequence",
        "decoders": [
            {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
            {"type": "ByteFallback"},
            {"type": "Fuse"},
        ],
    }
    return _document(
        added_tokens=_added(special, 0), normalizer=space, post_processor=frame, decoder=decoder,
        model=model,
    )  # fmt: skip
