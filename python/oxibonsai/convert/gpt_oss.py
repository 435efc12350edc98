"""gpt-oss: names and keys; gate and up of the experts lie in turns, transposed."""

from __future__ import annotations

import re
from collections.abc import Sequence

from oxibonsai.convert import decoder, experts
from oxibonsai.convert.float_types import Floats
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.mxfp4 import Mxfp4Parameter
from oxibonsai.convert.pieces import Piece
from oxibonsai.convert.recipe import Metadata, Recipe, Shapes
from oxibonsai.convert.rope import read_rope, rope_keys, yarn_keys
from oxibonsai.convert.text_tokenizer import tokenizer_keys
from oxibonsai.errors import UnsupportedError

_LAYER = {
    **experts.LAYER,
    "post_attention_layernorm": "post_attention_norm",
    "mlp.router": "ffn_gate_inp",
}
_A = "gpt-oss"
_BIASED = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate_inp")
_EXPERTS = re.compile(r"model\.layers\.([0-9]{1,4})\.mlp\.experts\.(gate_up|down)_proj(_bias)?")
tensor_name = decoder.namer(
    "gpt-oss", _LAYER, _BIASED, extra={"self_attn.sinks": "attn_sinks.weight"}
)


def pieces(folder: ModelFolder, parameter: str) -> Sequence[Piece]:
    """All experts are one parameter, of whose rows each second is the gate's.

    Floats are [experts, columns, rows], MXFP4 is [experts, rows, columns].
    """
    found = _EXPERTS.fullmatch(parameter)
    if found is None:
        return ()
    b = f"blk.{int(found[1])}.ffn"
    kind = "bias" if found[3] else "weight"

    by_rows = found[3] or isinstance(folder.parameters.get(parameter), Mxfp4Parameter)

    def rows(values: Floats) -> Floats:
        return values if by_rows else values.swapaxes(1, 2)

    if found[2] == "down":
        return (Piece(f"{b}_down_exps.{kind}", part=rows),)
    return (
        Piece(f"{b}_gate_exps.{kind}", part=lambda v: rows(v)[:, ::2]),
        Piece(f"{b}_up_exps.{kind}", part=lambda v: rows(v)[:, 1::2]),
    )


def metadata(folder: ModelFolder) -> Metadata:
    """Return the model's keys, then its tokenizer's."""
    folder.require("hidden_act", "silu")
    folder.require("attention_bias", True)
    folder.require("swiglu_alpha", 1.702)
    folder.require("swiglu_limit", 7.0)
    kinds = ["sliding_attention", "full_attention"]
    layers = folder.count("num_hidden_layers")
    folder.require("layer_types", (kinds * layers)[:layers], None)
    rope = read_rope(folder, ("yarn",), also=("beta_fast", "beta_slow", "truncate"))
    given = folder.config.get("rope_parameters") or folder.config.get("rope_scaling") or {}
    if given.get("truncate") is not False:
        raise UnsupportedError(
            f"{folder.path / 'config.json'}: truncate of the rotary embedding is not false, which "
            "convert lacks for gpt-oss"
        )
    window = folder.count("sliding_window")
    return {
        **decoder.dimension_keys(folder, _A),
        **experts.expert_keys(folder, _A, ff="intermediate_size"),
        f"{_A}.attention.sliding_window": (window, "u32"),
        **rope_keys(_A, *rope),
        **yarn_keys(folder, _A),
        **tokenizer_keys(folder),
    }


def _shapes(folder: ModelFolder) -> Shapes:
    count, ff = experts.count(folder), folder.count("intermediate_size")
    found = experts.shapes(
        folder,
        [*_LAYER.values(), "attn_sinks"],
        _BIASED,
        experts=count,
        ff=ff,
        special={"attn_sinks": (folder.count("num_attention_heads"),)},
    )
    for i in range(folder.count("num_hidden_layers")):
        found[f"blk.{i}.ffn_gate_exps.bias"] = (count, ff)
        found[f"blk.{i}.ffn_up_exps.bias"] = (count, ff)
        found[f"blk.{i}.ffn_down_exps.bias"] = (count, folder.count("hidden_size"))
    return found


GPT_OSS = Recipe(
    _A,
    metadata,
    tensor_name,
    experts.is_matrix,
    shapes=_shapes,
    pieces=pieces,
)
