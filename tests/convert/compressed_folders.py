"""Random models that the package compressed-tensors packs and writes, and the weights that it reads."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hf_folders import CASES, Case, save

Weights = dict[str, Any]  # float32 tensors of torch, by name


def small(name: str) -> Case:
    """A case of one layer."""
    case = next(c for c in CASES if c.name == name)

    def config() -> Any:
        found = case.config()
        found.num_hidden_layers = 1
        if getattr(found, "layer_types", None):
            found.layer_types = found.layer_types[:1]
        return found

    return replace(case, config=config)


@dataclass(frozen=True)
class Written:
    """What the package has written, and what it reads of that.

    Attributes:
        values: All weights as the package decompresses them.
        exact: Codes times scales in float32, before the package rounds them to the scales' type.
    """

    values: Weights
    exact: Weights


def group(
    bits: int = 4, size: int | None = None, *, targets: Any = ("Linear",), **options: Any
) -> Any:
    """A config group of integers, as a user of the package writes it."""
    strategy = options.pop("strategy", "group" if size else "channel")
    held = {"num_bits": bits, "type": "int", "strategy": strategy, "group_size": size}
    scheme = {"targets": list(targets)}
    for key in ("input_activations", "format"):
        if key in options:
            scheme[key] = options.pop(key)
    return {**scheme, "weights": {**held, **options}}


def write(
    case: Case,
    folder: Path,
    groups: dict[str, Any],
    *,
    dtype: str = "bfloat16",
    ignore: Any = ("lm_head",),
) -> Written:
    """Saves a model that the package has packed.

    Args:
        case: Which model.
        folder: Made where it is not there.
        groups: ``config_groups``.
        dtype: torch's name of the model's type, which scales have, too.
        ignore: Modules that stay as they are.
    """
    import torch
    from compressed_tensors.compressors import ModelCompressor
    from compressed_tensors.compressors.base import BaseCompressor
    from compressed_tensors.quantization import QuantizationConfig, apply_quantization_config
    from compressed_tensors.utils import get_direct_state_dict

    model = save(case, folder).to(getattr(torch, dtype))
    config = QuantizationConfig(config_groups=groups, ignore=list(ignore))
    apply_quantization_config(model, config, show_progress=False)
    packed = {n: m for n, m in model.named_modules() if hasattr(m, "quantization_scheme")}
    for module in packed.values():
        _fit(module)
    compressor = ModelCompressor.from_pretrained_model(model)
    compressor.compress_model(model)
    model.save_pretrained(folder)
    compressor.update_config(folder)
    exact = {}
    for name, module in packed.items():
        state = get_direct_state_dict(module)
        state["weight_scale"] = state["weight_scale"].float()
        kind = BaseCompressor.get_value_from_registry(module.quantization_scheme.format)
        exact[f"{name}.weight"] = kind.decompress(state, module.quantization_scheme)["weight"]
    compressor.decompress_model(model)
    held = dict(model.named_parameters())
    values = {n: p.detach().float() for n, p in held.items() if n.endswith(".weight")}
    return Written(values, values | exact)


def _fit(module: Any) -> None:
    """Sets scales and zero points from the range of each group, as the package calculates them."""
    import torch
    from compressed_tensors.quantization.utils import calculate_qparams

    args, weight = module.quantization_scheme.weights, module.weight.detach()
    rows, cols = weight.shape
    if args.strategy == "tensor":
        parts, shape = weight.reshape(1, -1), (1,)
    elif args.strategy == "block":
        high, wide = args.block_structure
        down, across = -(-rows // high), -(-cols // wide)
        padded = torch.zeros(down * high, across * wide, dtype=weight.dtype)
        padded[:rows, :cols] = weight
        parts = padded.reshape(down, high, across, wide).transpose(1, 2).reshape(down, across, -1)
        shape = (down, across)
    else:
        size = args.group_size if args.strategy == "group" else cols
        parts, shape = weight.reshape(rows, -1, size), (rows, cols // size)
    scale, zero = calculate_qparams(parts.amin(-1), parts.amax(-1), args)
    module.weight_scale.data.copy_(scale.reshape(shape))
    if hasattr(module, "weight_zero_point"):
        module.weight_zero_point.data.copy_(zero.reshape(shape))


def write_floats(case: Case, folder: Path, weights: Weights) -> None:
    """Saves the same model with such weights in float32."""
    from safetensors.torch import load_file, save_file

    save(case, folder)
    held = load_file(folder / "model.safetensors")
    assert held.keys() <= weights.keys()
    save_file({n: weights[n].contiguous().clone() for n in held}, folder / "model.safetensors")


def change_config(folder: Path, **changes: Any) -> None:
    """Changes entries of ``quantization_config``; None leaves one out."""
    file = folder / "config.json"
    config = json.loads(file.read_text())
    section = {**config["quantization_config"], **changes}
    config["quantization_config"] = {k: v for k, v in section.items() if v is not None}
    file.write_text(json.dumps(config))
