"""Qwen3 networks of transformers: made, quantized with a gradient, read and written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.utils import parametrize
from transformers import Qwen3Config, Qwen3ForCausalLM

from oxibonsai.errors import FormatError, RequestError, UnsupportedError
from oxibonsai.train.rounding import quantized, straight_through
from oxibonsai.train.settings import FORMATS, NetworkShape, WeightFormat


class GroupQuantizer(nn.Module):
    """A parametrization of a matrix: what the network computes with, of what is learnt.

    A group's scale is the mean size of its weights that are not zero, rounded to float16, so that a
    file holds exactly these values.
    """

    def __init__(self, kind: WeightFormat) -> None:
        """Round to the values that ``kind`` has."""
        super().__init__()
        self.kind = kind

    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        """Return the rounded matrix; its gradient goes to ``weight`` as it is (straight-through)."""
        return straight_through(weight, quantized(weight.detach(), self.kind))


State = dict[str, torch.Tensor]


def new_network(
    shape: NetworkShape, vocab_size: int, context: int, seed: int, eos: int
) -> Qwen3ForCausalLM:
    """Return a network of random weights, input and output tables tied."""
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=vocab_size,
        hidden_size=shape.hidden_size,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        intermediate_size=shape.ffn_size,
        max_position_embeddings=context,
        tie_word_embeddings=True,
        bos_token_id=eos,
        eos_token_id=eos,
    )
    return Qwen3ForCausalLM(config)


def shape_of(network: Qwen3ForCausalLM) -> NetworkShape:
    """Return a network's sizes."""
    config = network.config
    return NetworkShape(
        hidden_size=config.hidden_size,
        layers=config.num_hidden_layers,
        heads=config.num_attention_heads,
        kv_heads=config.num_key_value_heads or config.num_attention_heads,
        head_dim=config.head_dim,
        ffn_size=config.intermediate_size,
    )


def quantize(network: nn.Module, weight_format: str) -> None:
    """Compute with rounded matrices from here on, and learn those beneath.

    Raises:
        RequestError: A matrix's rows are no multiple of the format's group.
    """
    kind = FORMATS[weight_format]
    if kind is None:
        return
    for name, module in network.named_modules():
        if isinstance(module, (nn.Linear, nn.Embedding)):
            width = module.weight.shape[1]
            if width % kind.group:
                raise RequestError(
                    f"{name}.weight has rows of {width}; {weight_format} needs a multiple of {kind.group}"
                )
            parametrize.register_parametrization(module, "weight", GroupQuantizer(kind))


def learnt_state(network: nn.Module) -> State:
    """Return the matrices that are learnt, by the names of the network before it was quantized."""
    return {
        name.replace(".parametrizations.weight.original", ".weight"): value
        for name, value in network.state_dict().items()
    }


def load_learnt_state(network: nn.Module, state: State) -> None:
    """Put back what :func:`learnt_state` gave, of a network that is quantized or not.

    Raises:
        FormatError: The names or shapes are those of another network.
    """
    marker = ".parametrizations.weight.original"
    own = {name.replace(marker, ".weight"): name for name in network.state_dict()}
    try:
        network.load_state_dict({own.get(name, name): value for name, value in state.items()})
    except RuntimeError as e:
        raise FormatError(f"these weights are another network's: {str(e).splitlines()[-1]}") from e


def exact_state(network: nn.Module, weight_format: str) -> State:
    """Return the values that the network computes with, by its plain names."""
    kind = FORMATS[weight_format]
    state = {name: value.detach().float() for name, value in learnt_state(network).items()}
    if kind is None:
        return state
    return {n: quantized(v, kind) if v.ndim == 2 else v for n, v in state.items()}


def plain_network(config: Qwen3Config, state: State) -> Qwen3ForCausalLM:
    """Return a network of floats with these values."""
    network = Qwen3ForCausalLM(config)
    load_learnt_state(network, state)
    return network


def read_network(source: Path) -> Qwen3ForCausalLM:
    """Return a network of floats from a model folder, or of the learnt weights of a checkpoint (``.pt``).

    Raises:
        RequestError: There is no such folder or file.
        UnsupportedError: It is no Qwen3.
        FormatError: It can't be read.
    """
    if source.is_file():
        stored = read_checkpoint(source)
        return plain_network(Qwen3Config(**stored["config"]), stored["network"])
    return _read_folder(source)


def read_teacher(source: Path) -> Qwen3ForCausalLM:
    """Do what :func:`read_network` does, with the values that the network of a checkpoint computes with."""
    network = read_network(source)
    if source.is_file():
        weight_format = read_checkpoint(source)["settings"]["weight_format"]
        load_learnt_state(network, exact_state(network, weight_format))
    network.requires_grad_(False)
    network.train(False)
    return network


def read_checkpoint(source: Path) -> dict[str, Any]:
    """Return the contents of a checkpoint of :func:`oxibonsai.train.checkpoints.save`.

    Raises:
        FormatError: It is another kind of file, or broken.
    """
    try:
        stored = torch.load(source, map_location="cpu", weights_only=True)
    except Exception as e:  # torch and pickle raise a dozen kinds
        raise FormatError(f"{source} is no checkpoint of oxibonsai train: {e}") from e
    wanted = {"config", "network", "settings", "step", "optimizers", "schedules"}
    if not isinstance(stored, dict) or not wanted <= set(stored):
        raise FormatError(f"{source} is no checkpoint of oxibonsai train")
    return stored


def _read_folder(folder: Path) -> Qwen3ForCausalLM:
    try:
        kind = json.loads((folder / "config.json").read_text(encoding="utf-8")).get("model_type")
    except FileNotFoundError as e:
        raise RequestError(
            f"{folder} is neither a checkpoint (.pt) nor a folder with config.json and safetensors"
        ) from e
    except (OSError, ValueError, AttributeError) as e:
        raise FormatError(f"cannot read {folder / 'config.json'}: {e}") from e
    if kind != "qwen3":
        raise UnsupportedError(f"{folder} holds a model of type {kind!r}; train knows qwen3")
    try:
        return Qwen3ForCausalLM.from_pretrained(folder, dtype=torch.float32, local_files_only=True)
    except (OSError, ValueError, RuntimeError) as e:
        raise FormatError(f"cannot read the model in {folder}: {e}") from e
