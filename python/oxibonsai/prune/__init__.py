"""Pruning: weights set to zero by magnitude or by their inputs, and layers left out by influence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from oxibonsai.checkpoint import Checkpoint
from oxibonsai.checkpoint.reader import Reader
from oxibonsai.prune.dropped_layers import DroppedLayers, check_droppable, drop_layers
from oxibonsai.prune.influence import Influences, measure_influences
from oxibonsai.prune.masks import STRUCTURES, Sparsity
from oxibonsai.prune.pruned_weights import (
    PrunedWeights,
    by_inputs,
    by_magnitude,
    matrices_of_layers,
    without,
)
from oxibonsai.quantize import Plan, TypeRules, find_mix, make_plan
from oxibonsai.quantize.importance import ImportanceMatrix, check_importance
from oxibonsai.quantize.type_choice import Choice, Tensor
from oxibonsai.quantize.weight_types import WeightType, type_named

__all__ = [
    "STRUCTURES",
    "DroppedLayers",
    "Influences",
    "PrunedWeights",
    "Sparsity",
    "check_droppable",
    "drop_layers",
    "measure_influences",
    "plan_pruned",
    "prune_weights",
]

_FILE_TYPE = "general.file_type"


def prune_weights(
    checkpoint: Checkpoint,
    sparsity: Sparsity,
    *,
    imatrix: ImportanceMatrix | None = None,
    ignored: Sequence[str] = (),
) -> PrunedWeights:
    """Return a model's files with weights of its layers' matrices set to zero.

    Args:
        checkpoint: The model.
        sparsity: How many weights, and where.
        imatrix: The inputs of the matrices, by which weights are chosen (Wanda); None: the smallest
            absolute values are.
        ignored: Regular expressions: matrices in whose names one is found stay as they are.

    Raises:
        RequestError: An expression is none or matches nothing, nothing is left to prune, or the
            structure does not suit a matrix.
        FormatError, UnsupportedError: The model can't run.
    """
    names = without(matrices_of_layers(checkpoint), ignored)
    choose = by_magnitude(sparsity) if imatrix is None else by_inputs(imatrix, sparsity)
    return PrunedWeights(checkpoint.file, names, sparsity, choose)


def plan_pruned(pruned: Reader, source: Reader, type_name: str | None = None) -> Plan:
    """Plan the file of a pruned model, for :func:`oxibonsai.quantize.write`.

    Args:
        pruned: Of :func:`prune_weights` or :func:`drop_layers`.
        source: The files that were pruned, whose types tensors keep.
        type_name: A mix or a type for the matrices, as of :func:`oxibonsai.quantize.make_plan`; None:
            each tensor keeps its type.

    Raises:
        RequestError: There is no such type, or it needs an importance matrix.
    """
    names = pruned.pruned if isinstance(pruned, PrunedWeights) else frozenset[str]()
    types = {name: source.tensor(name).quant_type for name in names}
    if type_name is not None:
        plan = make_plan(pruned, TypeRules(find_mix(type_name)), None)
        return replace(plan, pruned=types)
    choices = []
    for tensor in pruned.tensors:
        shape = tuple(tensor.shape)
        held = Tensor(tensor.name, shape, tensor.quant_type)
        if tensor.name in types:
            kind = type_named(types[tensor.name])
        else:
            kind = WeightType(tensor.quant_type, tensor.gguf_id, held.count, tensor.nbytes)
        choices.append(Choice(held, kind))
    check_importance(choices, None)
    file_type = source.get(_FILE_TYPE)
    return Plan(pruned, choices, file_type if isinstance(file_type, int) else None, None, types)
