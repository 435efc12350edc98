"""From a folder of a Hugging Face language model to one GGUF file."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from oxibonsai.architectures import eagle3
from oxibonsai.architectures.wrappers import TEXT_TYPES
from oxibonsai.checkpoint.folder import ModelFolder
from oxibonsai.checkpoint.packs.compressed_tensors import decoded_notes
from oxibonsai.convert.eagle3 import is_drafter
from oxibonsai.convert.families import CONVERTERS
from oxibonsai.convert.hadamard_folder import PACK_TYPE, PACKED_TYPE, with_rotation
from oxibonsai.convert.multimodal import inner_converter
from oxibonsai.convert.writing import PlannedModel, plan_model
from oxibonsai.errors import UnsupportedError
from oxibonsai.files.progress import Progress
from oxibonsai.tokenizer.files.vocabulary_keys import vocabulary_notes


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
            scales as f32; MLX packs of 1, 2, 4 and 8 bits as q1_0, pq2_0 (groups of 64: q2_0_g64), q4_1
            and q8_0; ONNX's of 2 and 8 bits as q2_0_g64 and q8_0. 4-bit packs of AutoAWQ, GPTQ and ONNX
            become q4_1, with minima rounded to float16, or q4_0 where ONNX's zero points are all 8; ONNX's
            scales of 4 and 8 bits are rounded to float16 where they are float32. ``"f32"``, ``"f16"`` and
            ``"bf16"`` round to nearest even. ``"q1_0"``, ``"q2_0_g64"``, ``"pq2_0"`` and
            ``"ptq1_0"`` are for weights that are binary or ternary already, which is checked group by
            group. Any other type or mix of ``oxibonsai quantize`` rounds as that does. Vectors and small
            tables stay f32.
        name: The model's name in the file; empty: the folder's.
        weights: False writes the metadata and the vocabulary alone.
        threads: They share out the rows that are encoded; the bytes don't depend on it.
        progress: Told after each tensor.

    Returns:
        What the user should know: types that gave way to others, weights that were destroyed, parts of
        the model that were left out, what the tokenizer does that GGUF has no place for.

    Raises:
        RequestError: There is no such dtype, or it needs an importance matrix.
        FormatError: The folder lacks something, or a value does not fit the dtype.
        UnsupportedError: It asks for what no family has.
    """
    planned = plan_language_model(folder, dtype=dtype, name=name, weights=weights, threads=threads)
    return planned.write(Path(out), progress)


def plan_language_model(
    folder: str | os.PathLike[str],
    *,
    dtype: str = "auto",
    name: str = "",
    weights: bool = True,
    threads: int = 1,
) -> PlannedModel:
    """Return the keys and tensors of the file that :func:`convert` writes; arguments as there."""
    source = ModelFolder(Path(folder))
    if is_drafter(source):
        raise UnsupportedError(
            f"{folder} is a drafter ({eagle3.NAME}) and no model: give it with --draft-model, beside the "
            "model that it drafts for, which convert needs as --target-model-dir"
        )
    kind = model_kind(source)
    converter = inner_converter(source) or CONVERTERS.get(kind)
    if converter is None:
        raise UnsupportedError(
            f"{folder} holds a model of type {kind!r}; convert knows "
            + ", ".join(sorted({*CONVERTERS, *TEXT_TYPES}))
        )
    planned = plan_model(
        source, with_rotation(source, converter), dtype=dtype, name=name, weights=weights,
        threads=threads,
    )  # fmt: skip
    decoded = decoded_notes(source.parameters) if dtype == "auto" and weights else []
    return replace(planned, notes=[*planned.notes, *decoded, *vocabulary_notes(source.path)])


def model_kind(folder: ModelFolder) -> str:
    """Return ``model_type``, made more exact where several architectures share one."""
    config = folder.config
    kind = str(config.get("model_type"))
    if kind == "bert" and config.get("position_embedding_type") == "alibi":
        return "jina_bert_v2"
    if kind == "xlm-roberta" and config.get("position_embedding_type") == "rotary":
        return "jina_embeddings_v3"
    if kind == "nomic_bert" and config.get("moe_every_n_layers"):
        return "nomic_bert_moe"
    if kind == PACK_TYPE:
        return PACKED_TYPE
    return kind
