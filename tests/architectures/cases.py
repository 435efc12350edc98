"""The models whose passes are compared: small random folders, each converted to a file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import dense_models as dm
import encoder_folders
import encoder_models
import expert_models as em
import recurrent_models as rm
import remote_folders

from oxibonsai.convert.language_model import convert

_LLAMA3 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32, "rope_theta": 5e5,
}  # fmt: skip
_YARN = {
    "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "rope_theta": 1e6,
}  # fmt: skip
_LINEAR = {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}
_PLAIN = {"rope_type": "default", "rope_theta": 1e6}
_BY_KIND = {
    "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
    "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
}
_GEMMA3 = {
    "num_hidden_layers": 7, "head_dim": 32, "sliding_window": 24, "rope_parameters": _BY_KIND,
}  # fmt: skip

# Decoders that other tests save in other ways.
_OWN = [
    dm.Case("llama", "Llama"),
    dm.Case("llama-tied", "Llama", {"tie_word_embeddings": True, "head_dim": 32}),
    dm.Case("llama-biases", "Llama", {"attention_bias": True}),
    dm.Case("llama3", "Llama", {"rope_parameters": _LLAMA3}),
    dm.Case("llama-linear", "Llama", {"rope_parameters": _LINEAR}),
    dm.Case("llama-yarn", "Llama", {"rope_parameters": _YARN}),
    dm.Case("mistral", "Mistral", {"sliding_window": None}),
    dm.Case("qwen2", "Qwen2", {"rope_parameters": _PLAIN}),
    dm.Case("qwen3", "Qwen3", {"head_dim": 32, "rope_parameters": _YARN}),
    dm.Case("qwen3-tied", "Qwen3", {"tie_word_embeddings": True, "rope_parameters": _PLAIN}),
    dm.Case("gemma3", "Gemma3Text", {**_GEMMA3, "query_pre_attn_scalar": 32}),
    dm.Case(
        "gemma3-caps",
        "Gemma3Text",
        {
            **_GEMMA3,
            "query_pre_attn_scalar": 48,
            "attn_logit_softcapping": 40.0,
            "final_logit_softcapping": 20.0,
        },
    ),
]


@dataclass(frozen=True)
class Decoder:
    """A folder, and the file that it becomes.

    Attributes:
        name: Of the test.
        kind: Of the model, as transformers' classes or ``config.json`` call it.
        save: Writes the folder.
    """

    name: str
    kind: str
    save: Callable[[Path], Any]

    def file(self, folder: Path, dtype: str = "f32") -> Path:
        """Return the converted file, which lies beside the folder that it was made of."""
        if not folder.exists():
            self.save(folder)
        path = folder.with_name(f"{folder.name}.{dtype}.gguf")
        convert(folder, path, dtype=dtype)
        return path


def _saved(case: dm.Case) -> Decoder:
    name = "mixtral" if case.kind == "Mixtral" else case.name  # there is a llama without experts
    return Decoder(name, case.kind, lambda folder: dm.save(case, folder))


_SECTIONS = {"rope_type": "default", "rope_theta": 5e4, "mrope_section": [4, 2, 2]}
_TOWER = {"depth": 1, "hidden_size": 64, "num_heads": 2, "patch_size": 4}


def save_seeing(kind: str, vision: dict[str, Any], folder: Path, **text: Any) -> None:
    """Writes the folder of a model that sees, with random weights in float32."""
    import torch
    import transformers

    sizes = {**dm._SIZES, "rope_parameters": _SECTIONS, **text}
    config = getattr(transformers, f"{kind}Config")(
        text_config=sizes, vision_config={**_TOWER, **vision}, tie_word_embeddings=False
    )
    model = getattr(transformers, f"{kind}ForConditionalGeneration")(config).float()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            values = dm.random_values(name, tuple(parameter.shape))
            parameter.copy_(torch.from_numpy(values))
    model.save_pretrained(folder)


_SEEING = [
    Decoder("qwen2vl", "qwen2_vl_text", partial(save_seeing, "Qwen2VL", {"embed_dim": 32})),
    Decoder(
        "qwen2.5vl", "qwen2_5_vl_text",
        partial(save_seeing, "Qwen2_5_VL", {"intermediate_size": 40, "out_hidden_size": 64}),
    ),
    Decoder(
        "qwen3vl", "qwen3_vl_text",
        partial(
            save_seeing, "Qwen3VL",
            {"intermediate_size": 40, "out_hidden_size": 64, "num_position_embeddings": 16,
             "deepstack_visual_indexes": [0]}, head_dim=16,
        ),
    ),
    Decoder(
        "qwen3vlmoe", "qwen3_vl_moe_text",
        partial(
            save_seeing, "Qwen3VLMoe",
            {"intermediate_size": 40, "out_hidden_size": 64, "num_position_embeddings": 16,
             "deepstack_visual_indexes": [0]}, head_dim=16, num_experts=4, num_experts_per_tok=2,
            moe_intermediate_size=24,
        ),
    ),
]  # fmt: skip
DECODERS = [
    *map(_saved, (*_OWN, *dm.CASES, *em.CASES)),
    *(
        Decoder(f"{f.name} (remote)", f.name, lambda folder, f=f: remote_folders.save(f, folder))  # type: ignore[misc]
        for f in remote_folders.FOLDERS
    ),
    *(Decoder(c.name, c.kind, c.save) for c in rm.CASES),
    *_SEEING,
]
ENCODERS = [
    *(
        Decoder(
            c.name,
            c.name if c.name == "gemma-embedding" else c.kind,  # which is also that of a decoder
            lambda folder, c=c: encoder_models.save(c, folder),  # type: ignore[misc]
        )
        for c in (*encoder_models.ENCODERS, *encoder_models.CLASSIFIERS, *encoder_models.SEQ2SEQ)
    ),
    *(
        Decoder(
            f"{name} (remote)",
            name.removesuffix("-code").removesuffix("-plain"),
            lambda folder, f=f: remote_folders.save(f, folder),  # type: ignore[misc]
        )
        for name, f in encoder_folders.FOLDERS.items()
    ),
]
ALL = [*DECODERS, *ENCODERS]
