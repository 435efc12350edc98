"""InternLM 2: names and keys; queries, keys and values are one parameter, head group by head group."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from oxibonsai.convert import decoder
from oxibonsai.convert.float_types import Floats
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.pieces import Piece
from oxibonsai.convert.recipe import Metadata, Recipe
from oxibonsai.convert.rope import read_rope, rope_keys
from oxibonsai.convert.text_tokenizer import tokenizer_keys

_LAYER = {
    "attention.wo": "attn_output",
    "attention_norm": "attn_norm",
    "ffn_norm": "ffn_norm",
    "feed_forward.w1": "ffn_gate",
    "feed_forward.w3": "ffn_up",
    "feed_forward.w2": "ffn_down",
}
_FIXED = {"model.tok_embeddings": "token_embd", "model.norm": "output_norm", "output": "output"}
_QKV = re.compile(r"model\.layers\.([0-9]{1,4})\.attention\.wqkv\.weight")


def metadata(folder: ModelFolder) -> Metadata:
    """Return the model's keys, then its tokenizer's; "dynamic" scales nothing within the context."""
    folder.require("hidden_act", "silu")
    folder.require("bias", False)
    kind, numbers = read_rope(folder, ("default", "linear", "dynamic"))
    return {
        **decoder.dimension_keys(folder, "internlm2"),
        **rope_keys("internlm2", kind, numbers),
        **tokenizer_keys(folder),
    }


def _pieces(folder: ModelFolder, parameter: str) -> Sequence[Piece]:
    """Return a group is its queries, then its key and its value."""
    found = _QKV.fullmatch(parameter)
    if found is None:
        return ()
    groups, width = decoder.kv_heads(folder), decoder.head_dim(folder)
    queries = folder.count("num_attention_heads") // groups

    def part(first: int, count: int) -> Callable[[Floats], Floats]:
        def rows(values: Floats) -> Floats:
            heads = values.reshape(groups, queries + 2, width, values.shape[-1])
            return heads[:, first : first + count].reshape(groups * count * width, -1)

        return rows

    b = f"blk.{int(found[1])}"
    return (
        Piece(f"{b}.attn_q.weight", part=part(0, queries)),
        Piece(f"{b}.attn_k.weight", part=part(queries, 1)),
        Piece(f"{b}.attn_v.weight", part=part(queries + 1, 1)),
    )


INTERNLM2 = Recipe(
    "internlm2",
    metadata,
    decoder.namer("InternLM 2", _LAYER, fixed=_FIXED),
    decoder.is_matrix,
    shapes=lambda folder: decoder.shapes(folder, decoder.LAYER.values()),
    pieces=_pieces,
    row_order=decoder.row_order,
)
