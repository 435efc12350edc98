"""A checkpoint as transformers' own model with packed weights, and PEFT's adapters on it."""

from __future__ import annotations

from typing import Any

import accelerate
import peft
import torch
import transformers
from torch import nn

from oxibonsai.checkpoint import Checkpoint
from oxibonsai.errors import RequestError, UnsupportedError
from oxibonsai.export.config_json import inverse_of
from oxibonsai.export.inverse import Inverse
from oxibonsai.export.safetensors_writer import Exported
from oxibonsai.hf.torch import QuantEmbedding, QuantLinear
from oxibonsai.kernels import QuantizedMatrix

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def trainable_model(checkpoint: Checkpoint, adapter: Any, dtype: str, name: str) -> Any:
    """Return transformers' model of a checkpoint; see :meth:`oxibonsai.hf.CausalLM.trainable`.

    Args:
        checkpoint: Its mapping is what the model reads.
        adapter: PEFT's configuration, or None.
        dtype: ``"float32"`` or ``"bfloat16"``.
        name: What the adapter's configuration calls its base.
    """
    if dtype not in _DTYPES:
        raise RequestError(f"dtype is {dtype!r}; it is one of {', '.join(_DTYPES)}")
    inverse = inverse_of(checkpoint, dtype)
    model = filled_model(inverse, _DTYPES[dtype], str(checkpoint.path), packed=True)
    model.name_or_path = name
    model.requires_grad_(False)
    return model if adapter is None else peft.get_peft_model(model, adapter)


def filled_model(inverse: Inverse, dtype: torch.dtype, where: str, *, packed: bool) -> Any:
    """Return transformers' model with the values of a file.

    Args:
        inverse: The file, read backwards.
        dtype: Of the values.
        where: Names the file in errors.
        packed: Leave linear layers and embeddings as the file stores them; else decode them.
    """
    parameters = inverse.parameters()
    config = transformers.AutoConfig.for_model(**inverse.config)
    with accelerate.init_empty_weights(include_buffers=False):
        auto: Any = transformers.AutoModelForCausalLM
        model = auto.from_config(config, dtype=dtype)
    _fill(model, parameters, dtype, where, packed)
    return model


def _fill(
    model: Any, parameters: list[Exported], dtype: torch.dtype, where: str, packed: bool
) -> None:
    """Put a file's tensors into a model of empty ones.

    Raises:
        UnsupportedError: The model has no place for a tensor, or needs one that the file lacks.
    """
    for parameter in parameters:
        path, _, leaf = parameter.name.rpartition(".")
        try:
            module = model.get_submodule(path)
            held = getattr(module, leaf)
        except AttributeError as e:
            raise UnsupportedError(
                f"{where}: transformers' {type(model).__name__} has no parameter {parameter.name}, so "
                "it can't be trained"
            ) from e
        is_weight = packed and leaf == "weight"
        made = _packed_module(module, parameter, dtype) if is_weight else None
        if made is not None:
            model.set_submodule(path, made)
            continue
        values = torch.from_numpy(parameter.values()).reshape(held.shape).to(dtype)
        is_buffer = leaf in module._buffers
        setattr(module, leaf, values if is_buffer else nn.Parameter(values, requires_grad=False))
    _tie(model, {p.name for p in parameters}, dtype)
    empty = [n for n, p in model.named_parameters() if p.is_meta]
    if empty:
        raise UnsupportedError(
            f"{where}: transformers' {type(model).__name__} needs {empty[0]}, which the file lacks, so "
            "it can't be trained"
        )


def _packed_module(
    module: nn.Module, parameter: Exported, dtype: torch.dtype
) -> QuantLinear | QuantEmbedding | None:
    """Return a module with packed weights in a module's place; None where it keeps floats."""
    # Their subclasses compute something else.
    if parameter.packed is None or type(module) not in (nn.Linear, nn.Embedding):
        return None
    rows = parameter.packed()
    matrix = QuantizedMatrix(rows.blocks, rows.quant_type, parameter.shape[1])
    if isinstance(module, nn.Linear):
        return QuantLinear(matrix, module.bias, dtype)
    return QuantEmbedding(matrix, dtype)


def _tie(model: Any, known: set[str], dtype: torch.dtype) -> None:
    """Give a head that the file lacks the rows of the embedding."""
    head, embedding = model.get_output_embeddings(), model.get_input_embeddings()
    names = {module: name for name, module in model.named_modules()}
    if head is None or f"{names[head]}.weight" in known:
        return
    if isinstance(embedding, QuantEmbedding):
        model.set_submodule(names[head], QuantLinear(embedding.matrix, head.bias, dtype))
    else:
        head.weight = embedding.weight
