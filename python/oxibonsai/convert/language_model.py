"""From a folder of a Hugging Face language model to one GGUF file."""

from __future__ import annotations

import os
from pathlib import Path

from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.multimodal import INNER, inner_recipe
from oxibonsai.convert.qwen3_reranker import is_reranker
from oxibonsai.convert.recipes import RECIPES
from oxibonsai.convert.writing import refuse_same, write_model
from oxibonsai.errors import UnsupportedError
from oxibonsai.files.progress import Progress


def convert(
    folder: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    dtype: str = "auto",
    name: str = "",
    weights: bool = True,
    threads: int = 1,
    progress: Progress | None = None,
) -> list[str]:
    """Write a model as one GGUF file, which appears under its name when it is complete.

    Args:
        folder: With ``config.json``, safetensors or an ONNX file and, for texts, ``tokenizer.json``; or
            the ONNX file in it.
        out: The file; replaced where it exists.
        dtype: Of matrices. ``"auto"`` loses nothing: each as it is stored; 8-bit floats with their
            scales as f32; MLX packs of 1, 2, 4 and 8 bits as q1_0, q2_0_g64, q4_1 and q8_0; ONNX's of 2
            and 8 bits likewise. 4-bit packs of AutoAWQ, GPTQ and ONNX become q4_1, with minima rounded to
            float16, or q4_0 where ONNX's zero points are all 8; ONNX's scales of 4 and 8 bits are rounded
            to float16 where they are float32. ``"f32"``,
            ``"f16"`` and ``"bf16"`` round to nearest even. ``"q1_0"``, ``"q2_0_g64"``, ``"pq2_0"`` and
            ``"ptq1_0"`` are for weights that are binary or ternary already, which is checked group by
            group. Any other type or mix of ``oxibonsai quantize`` rounds as that does. Vectors and small
            tables stay f32.
        name: The model's name in the file; empty: the folder's.
        weights: False writes the metadata and the vocabulary alone.
        threads: They share out the rows that are encoded; the bytes don't depend on it.
        progress: Told after each tensor.

    Returns:
        What the user should know: types that gave way to others, weights that were destroyed, parts of
        the model that were left out.

    Raises:
        RequestError: There is no such dtype, or it needs an importance matrix.
        FormatError: The folder lacks something, or a value does not fit the dtype.
        UnsupportedError: It asks for what no recipe knows.
    """
    folder, out = Path(folder), Path(out)
    refuse_same(folder, out)
    source = ModelFolder(folder)
    kind = model_kind(source)
    recipe = inner_recipe(source, RECIPES) or RECIPES.get(kind)
    if recipe is None:
        raise UnsupportedError(
            f"{folder} holds a model of type {kind!r}; convert knows "
            + ", ".join(sorted({*RECIPES, *INNER}))
        )
    return write_model(
        source, recipe, out, dtype=dtype, name=name, weights=weights, threads=threads,
        progress=progress,
    )  # fmt: skip


def model_kind(folder: ModelFolder) -> str:
    """``model_type``, made more exact where several architectures share one."""
    config = folder.config
    kind = str(config.get("model_type"))
    if kind == "bert" and config.get("position_embedding_type") == "alibi":
        return "jina_bert_v2"
    if kind == "xlm-roberta" and config.get("position_embedding_type") == "rotary":
        return "jina_embeddings_v3"
    if kind == "nomic_bert" and config.get("moe_every_n_layers"):
        return "nomic_bert_moe"
    if kind == "gemma3_text" and config.get("architectures") == ["Gemma3TextModel"]:
        return "embeddinggemma" if config.get("use_bidirectional_attention") is True else kind
    if kind in ("t5", "mt5", "umt5") and str(config.get("architectures")).endswith(
        "EncoderModel']"
    ):
        return "t5_encoder"
    if kind == "qwen3" and is_reranker(folder):
        return "qwen3_reranker"
    return kind
