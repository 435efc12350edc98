"""Which parameter of a Qwen3 a node or tensor of an ONNX graph holds, by Hugging Face's names.

Exporters keep the module's path in names, each in its own way: optimum has
``/model/layers.0/self_attn/q_proj/MatMul``, onnxruntime-genai ``attn`` for ``self_attn``, quantizers put
``_Q4`` or ``_Quant`` after it; tensors have dots or underscores for slashes.
"""

from __future__ import annotations

import re

_STEP = "[./_]"
_PRODUCT = rf"{_STEP}MatMul[A-Za-z0-9_.]*"
_LAYER = rf"/?model{_STEP}layers{_STEP}([0-9]{{1,4}}){_STEP}"
_ATTENTION = re.compile(rf"{_LAYER}(?:self_)?attn{_STEP}([a-z]+)_proj{_PRODUCT}")
_MLP = re.compile(rf"{_LAYER}mlp{_STEP}([a-z_]+)_proj{_PRODUCT}")
_HEAD = re.compile(rf"/?(?:model{_STEP})?lm_head{_PRODUCT}")
_TABLE = re.compile(rf"/?model{_STEP}embed_tokens{_STEP}.*")
_NORM = re.compile(rf"{_LAYER}(input|post_attention)_layernorm\.weight")
_HEAD_NORM = re.compile(rf"{_LAYER}(?:self_)?attn\.([qk])_norm(?:\.layernorm)?\.weight")
_LAST_NORM = re.compile(
    r"model\.norm\.weight|model\.layers\.([0-9]{1,4})\.final_norm_layernorm\.weight"
)


def product_parameter(*names: str) -> str | None:
    """Return the weight of a product by the first telling name: the node's, then the tensor's.

    A part of a layer may be none of Qwen3's, such as a fused ``qkv_proj``; its family refuses it.
    """
    for name in names:
        if found := _ATTENTION.fullmatch(name):
            return f"model.layers.{int(found[1])}.self_attn.{found[2]}_proj.weight"
        if found := _MLP.fullmatch(name):
            return f"model.layers.{int(found[1])}.mlp.{found[2]}_proj.weight"
        if _HEAD.fullmatch(name):
            return "lm_head.weight"
    return None


def table_parameter(*names: str) -> str | None:
    """Return the token table, where a name says so."""
    return "model.embed_tokens.weight" if any(_TABLE.fullmatch(n) for n in names) else None


def norm_parameter(tensor: str, layers: int) -> str | None:
    """Return the norm's weight that a tensor is; onnxruntime-genai counts the last norm as a layer."""
    if found := _NORM.fullmatch(tensor):
        return f"model.layers.{int(found[1])}.{found[2]}_layernorm.weight"
    if found := _HEAD_NORM.fullmatch(tensor):
        return f"model.layers.{int(found[1])}.self_attn.{found[2]}_norm.weight"
    if (found := _LAST_NORM.fullmatch(tensor)) and found[1] in (None, str(layers)):
        return "model.norm.weight"
    return None
