"""Round a model's parameters to what its file will hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import nn

from oxibonsai import _core
from oxibonsai.checkpoint import Checkpoint
from oxibonsai.devices import default_threads
from oxibonsai.errors import UnsupportedError
from oxibonsai.export.inverse import Inverse
from oxibonsai.export.safetensors_writer import Exported
from oxibonsai.quantize.plan import FEW_VALUES, fallback_warnings, make_plan
from oxibonsai.quantize.type_choice import Choice, TypeRules, is_matrix
from oxibonsai.quantize.weight_types import type_named
from oxibonsai.train.rounding import quantized, straight_through
from oxibonsai.train.settings import WeightFormat


@dataclass(frozen=True)
class Rounding:
    """The types of a model's parameters in its file.

    Attributes:
        types: By the parameters' names; those that stay floats have none.
        warnings: What the user should know of the choice.
    """

    types: Mapping[str, str]
    warnings: list[str]

    def values(self, model: nn.Module) -> dict[str, torch.Tensor]:
        """Return the parameters' values in the file, by name, without a gradient."""
        held = dict(model.named_parameters())
        return {name: rounded(held[name].detach(), kind) for name, kind in self.types.items()}

    def straight_through(self, model: nn.Module) -> dict[str, torch.Tensor]:
        """Return the same, with a gradient that goes to the parameters as it is."""
        held = dict(model.named_parameters())
        values = self.values(model)
        return {name: straight_through(held[name], value) for name, value in values.items()}

    def stored(self, model: nn.Module) -> dict[str, torch.Tensor]:
        """Return what the encoder of each type turns into :meth:`values`, and all other parameters.

        A binary or ternary type holds its values as they are. Others choose their scales anew, so that
        they are given what was learnt.
        """
        held = {name: value.detach() for name, value in model.named_parameters()}
        few = {n: rounded(held[n], kind) for n, kind in self.types.items() if kind in FEW_VALUES}
        return held | few


def plan_rounding(checkpoint: Checkpoint, inverse: Inverse, rules: TypeRules) -> Rounding:
    """Return the types that ``oxibonsai quantize`` would give a model.

    Args:
        checkpoint: The model.
        inverse: The same, read backwards.
        rules: The types.

    Raises:
        RequestError: A type needs an importance matrix, or two don't fit into one file.
        UnsupportedError: A parameter's rows are not those of a tensor in the file.
    """
    plan = make_plan(checkpoint.file, rules, None)
    choices = {c.tensor.name: c for c in plan.choices if is_matrix(c.tensor)}
    types = {}
    for parameter in inverse.parameters():
        found = [choices[name] for name in parameter.tensors if name in choices]
        kind = _type_of(parameter, found, str(checkpoint.path))
        if kind not in (None, "F32"):
            types[parameter.name] = kind
    return Rounding(types, fallback_warnings(list(choices.values())))


def _type_of(parameter: Exported, found: list[Choice], where: str) -> str | None:
    """Return the type of a parameter; None where it is no matrix that is rounded."""
    names = {choice.type.name for choice in found}
    if names <= {"F32"}:
        return next(iter(names), None)
    if parameter.packed is None or len(names) > 1:
        raise UnsupportedError(
            f"{where}: the rows of {parameter.name} are not those of {', '.join(parameter.tensors)} in "
            "the file, so it can't be rounded while it is learnt"
        )
    return names.pop()


def rounded(weight: torch.Tensor, type_name: str) -> torch.Tensor:
    """Return the values of a type that stand for a matrix.

    Binary and ternary ones are those of :func:`oxibonsai.train.rounding.quantized`, which lie nearer
    than those that llama.cpp's encoders choose, and which the types hold exactly. All others are as
    ``oxibonsai quantize`` writes them.

    Args:
        weight: [rows, cols], float32, without a gradient.
        type_name: By the core's name.
    """
    if type_name in FEW_VALUES:
        ternary = FEW_VALUES[type_name] == "ternary"
        return quantized(weight, WeightFormat(type_named(type_name).group, ternary))
    blocks = _core.encode(weight.cpu().numpy(), type_name, None, default_threads())
    values = torch.from_numpy(_core.decode(type_name, blocks.reshape(-1)))
    return values.reshape(weight.shape).to(weight.device)
