"""The text encoder of FLUX.2-klein: hidden states of three layers of a Qwen3, side by side.

The layers behind the last of the three, the final norm and the output matrix have no part in them:
they are neither loaded nor run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, cast

import numpy as np
import numpy.typing as npt

from oxibonsai import _core
from oxibonsai.architectures import qwen3
from oxibonsai.checkpoint import Checkpoint
from oxibonsai.devices import Device
from oxibonsai.diffusion.parameters import Parameters, Tensors
from oxibonsai.errors import FormatError, RequestError, UnsupportedError
from oxibonsai.files.progress import Progress, counted
from oxibonsai.graph import Builder, RopeConfig, Value, Vector
from oxibonsai.models import read_config
from oxibonsai.models.config import ModelConfig
from oxibonsai.models.families import hidden_states
from oxibonsai.models.layer_states import NamedVectors
from oxibonsai.models.weights import Weights

Array = npt.NDArray[np.float32]

LAYERS = (9, 18, 27)  # how many layers each of the hidden states has behind it
LENGTH = 512  # tokens of a prompt with its padding

_NAMES = {
    "token_embd": "embed_tokens",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


class PromptTokenizer(Protocol):
    """Text to ids."""

    def encode(
        self, text: str, *, add_special: bool = True, parse_special: bool = False
    ) -> list[int]:
        """Ids of a text; control tokens are recognised in it only with ``parse_special``."""


class TextEncoder:
    """Prompts to what the transformer reads of them.

    Args:
        config: Of the whole language model.
        weights: Its tensors by GGUF's names: :class:`Weights`, or what stands in for it.
        device: Runs it.
        tokenizer: None: only ids can be encoded.
        layers: Whose hidden states are taken, in order.
        progress: Told how many bytes have been packed.

    Attributes:
        width: Columns of what it gives.
    """

    def __init__(
        self,
        config: ModelConfig,
        weights: Weights | _Renamed,
        device: Device,
        tokenizer: PromptTokenizer | None = None,
        layers: Sequence[int] = LAYERS,
        progress: Progress | None = None,
    ) -> None:
        if list(layers) != sorted(set(layers)) or not layers or layers[0] < 0:
            raise RequestError(f"layers {tuple(layers)} are not in order")
        if layers[-1] > config.num_hidden_layers:
            raise FormatError(
                f"the text encoder has {config.num_hidden_layers} layers, where {layers[-1]} are needed"
            )
        self.config = replace(config, num_hidden_layers=layers[-1])
        self.width = len(layers) * config.hidden_size
        self._tokenizer = tokenizer
        named = NamedVectors(cast(Weights, weights))
        builder = _PromptBuilder(named)
        last = hidden_states(qwen3.FAMILY, builder, self.config, cast(Weights, named))
        states = [*builder.layer_inputs, last]
        for i, layer in enumerate(layers):
            builder.output(f"hidden.{i}", states[layer])
        self._outputs = [f"hidden.{i}" for i in range(len(layers))]
        matrices = builder.graph.matrices
        self._packed = device.pack(matrices, counted(device.packed_size(matrices), progress))
        self._executable = device.compile(builder.graph)

    @classmethod
    def load(
        cls,
        config: Mapping[str, Any],
        tensors: Tensors,
        device: Device,
        tokenizer: PromptTokenizer | None = None,
        layers: Sequence[int] = LAYERS,
        progress: Progress | None = None,
    ) -> TextEncoder:
        """Read the tensors by Hugging Face's names.

        Args:
            config: As ``config.json`` of a Qwen3.
            tensors: Matrices in any stored form; a name may begin with ``model.``.
            device: Runs it.
            tokenizer: None: only ids can be encoded.
            layers: Whose hidden states are taken, in order.
            progress: Told how many bytes have been packed.

        Raises:
            FormatError: A tensor or a value of the configuration is missing or does not fit.
            UnsupportedError: The configuration is not of a Qwen3.
        """
        weights = _Renamed(Parameters(tensors))
        return cls(_read_config(config), weights, device, tokenizer, layers, progress)

    @classmethod
    def from_checkpoint(
        cls,
        checkpoint: Checkpoint,
        device: Device,
        tokenizer: PromptTokenizer | None = None,
        layers: Sequence[int] = LAYERS,
        progress: Progress | None = None,
    ) -> TextEncoder:
        """Read a GGUF file of a Qwen3; arguments and errors as of :meth:`load`."""
        if checkpoint.architecture != "qwen3":
            raise UnsupportedError(
                f"{checkpoint.path} is of architecture {checkpoint.architecture}; the text encoder of "
                "a picture model is a qwen3"
            )
        config = read_config(checkpoint)
        return cls(config, Weights(checkpoint), device, tokenizer, layers, progress)

    def encode(self, prompts: Sequence[str], length: int = LENGTH) -> Array:
        """Hidden states of prompts.

        Args:
            prompts: Each becomes a user's message; what does not fit into ``length`` is cut off.
            length: Tokens of a prompt with its padding.

        Returns:
            float32 [n, length, width].
        """
        return self.encode_ids([self.ids(p) for p in prompts], length, self.pad_id)

    @property
    def pad_id(self) -> int:
        """Return the id that pads a prompt."""
        (found,) = self._special("<|endoftext|>")
        return found

    def ids(self, prompt: str) -> list[int]:
        """Return a user's message with the head of an answer without thoughts behind it.

        Control tokens within the prompt are text.
        """
        if self._tokenizer is None:
            raise RequestError("this text encoder has no tokenizer")
        text = self._tokenizer.encode(f"user\n{prompt}", add_special=False)
        head = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
        return [*self._special("<|im_start|>"), *text, *self._special(head)]

    def encode_ids(self, prompts: Sequence[Sequence[int]], length: int, pad_id: int) -> Array:
        """Hidden states of prompts given as ids; arguments as of :meth:`encode`.

        Padding sees the prompt and not itself.
        """
        if length < 1:
            raise RequestError(f"a prompt of {length} tokens: give at least 1")
        return np.stack([self._encode(list(ids)[:length], length, pad_id) for ids in prompts])

    def _encode(self, ids: list[int], length: int, pad_id: int) -> Array:
        if not ids:
            raise RequestError("a prompt has no tokens")
        batch = _core.Batch()
        batch.add(ids + [pad_id] * (length - len(ids)), visible=len(ids))
        results = self._executable.run(batch)
        return np.concatenate([results[name] for name in self._outputs], axis=1)

    def _special(self, text: str) -> list[int]:
        if self._tokenizer is None:
            raise RequestError("this text encoder has no tokenizer")
        return self._tokenizer.encode(text, add_special=False, parse_special=True)


class _PromptBuilder(Builder):
    """A decoder over a whole prompt at once, which keeps no keys and values.

    Args:
        weights: What the model page is given in place of its weights.

    Attributes:
        layer_inputs: What each layer reads.
    """

    def __init__(self, weights: NamedVectors) -> None:
        super().__init__()
        self._weights = weights
        self.layer_inputs: list[Value] = []

    def rms_norm(self, x: Value, weight: Vector, eps: float) -> Value:
        """As of :class:`Builder`."""
        if self._weights.name_of(weight).endswith(".attn_norm.weight"):
            self.layer_inputs.append(x)
        return super().rms_norm(x, weight, eps)

    def attention(
        self,
        q: Value,
        k: Value,
        v: Value | None,
        *,
        layer: int,
        head_dim: int,
        scale: float,
        value_dim: int | None = None,
        window: int = 0,
        softcap: float = 0.0,
        slopes: Vector | None = None,
        sinks: Vector | None = None,
        chunk: int = 0,
    ) -> Value:
        """Causal attention among the tokens of the batch, of which padding is not seen."""
        assert v is not None
        if window or softcap or chunk:
            raise UnsupportedError("the text encoder has attention that only a cache serves")
        return self.attend_local(q, k, v, head_dim=head_dim, scale=scale, causal=True)


class _Renamed:
    """A Qwen3's tensors by GGUF's names, where they have those of Hugging Face.

    Args:
        parameters: By Hugging Face's names.
    """

    def __init__(self, parameters: Parameters) -> None:
        self._parameters = parameters
        self._prefix = "model." if parameters.has("model.embed_tokens.weight") else ""

    def matrix(self, name: str, rows: int, cols: int) -> _core.Weight:
        """As of :class:`Weights`."""
        return self._parameters.matrix(self._name(name), rows, cols)

    def vector(self, name: str, size: int) -> Vector:
        """As of :class:`Weights`."""
        return self._parameters.array(self._name(name.removesuffix(".weight")) + ".weight", size)

    def has(self, name: str) -> bool:
        """As of :class:`Weights`."""
        stem, _, kind = name.rpartition(".")
        known = stem.rpartition(".")[2] in _NAMES
        return known and self._parameters.has(f"{self._name(stem)}.{kind}")

    def bias(self, name: str, size: int) -> Vector | None:
        """As of :class:`Weights`."""
        full = f"{name}.bias"
        return self._parameters.array(f"{self._name(name)}.bias", size) if self.has(full) else None

    def embedding(self, config: ModelConfig) -> _core.Weight:
        """As of :class:`Weights`."""
        return self.matrix("token_embd", config.vocab_size, config.hidden_size)

    def _name(self, name: str) -> str:
        block, _, part = name.rpartition(".")
        layer = f"layers.{block.removeprefix('blk.')}." if block else ""
        return f"{self._prefix}{layer}{_NAMES[part]}"


def _read_config(config: Mapping[str, Any]) -> ModelConfig:
    """Return the configuration of a Qwen3's ``config.json``."""
    if config.get("model_type") != "qwen3":
        raise UnsupportedError(
            f"a text encoder of type {config.get('model_type')!r}; this version runs qwen3"
        )
    try:
        rope = dict(config.get("rope_parameters") or config.get("rope_scaling") or {})
        if rope.get("rope_type", rope.get("type", "default")) != "default":
            raise UnsupportedError("a text encoder with scaled rotary embeddings is not supported")
        hidden, heads = int(config["hidden_size"]), int(config["num_attention_heads"])
        head_dim = int(config.get("head_dim") or hidden // heads)
        return ModelConfig(
            architecture="qwen3",
            vocab_size=int(config["vocab_size"]),
            hidden_size=hidden,
            intermediate_size=int(config["intermediate_size"]),
            num_hidden_layers=int(config["num_hidden_layers"]),
            num_attention_heads=heads,
            num_key_value_heads=int(config["num_key_value_heads"]),
            head_dim=head_dim,
            max_position_embeddings=int(config["max_position_embeddings"]),
            rms_norm_eps=float(config["rms_norm_eps"]),
            rope=RopeConfig(head_dim, float(rope.get("rope_theta") or config["rope_theta"])),
            attention_scale=head_dim**-0.5,
        )
    except (KeyError, TypeError, ValueError, ArithmeticError) as e:
        raise FormatError(f"the text encoder's configuration is not one of a qwen3: {e!r}") from e
