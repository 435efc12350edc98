"""The text encoder of FLUX.2-klein: hidden states of three layers of a Qwen3, side by side.

The layers behind the last of the three, the final norm and the output matrix have no part in them:
they are neither loaded nor run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from oxibonsai import _core
from oxibonsai.architectures import qwen3
from oxibonsai.checkpoint import Checkpoint
from oxibonsai.devices import Device
from oxibonsai.errors import FormatError, RequestError, UnsupportedError
from oxibonsai.files.progress import Progress, counted
from oxibonsai.graph import Builder, KeyPattern, Value, Vector
from oxibonsai.models import read_config
from oxibonsai.models.weights import Weights
from oxibonsai.tokenizer import Tokenizer

Array = npt.NDArray[np.float32]

LAYERS = (9, 18, 27)  # how many layers each of the hidden states has behind it
LENGTH = 512  # tokens of a prompt with its padding


def check_architecture(checkpoint: Checkpoint) -> None:
    """Raise `UnsupportedError` where a checkpoint can be no text encoder.

    Raises:
        FormatError: It names no architecture.
        UnsupportedError: It is no Qwen3.
    """
    if checkpoint.architecture != qwen3.FAMILY.name:
        raise UnsupportedError(
            f"{checkpoint.path} is of architecture {checkpoint.architecture}; the text encoder of a "
            "picture model is a qwen3"
        )


class PromptTokenizer(Protocol):
    """Text to ids."""

    def encode(
        self, text: str, *, add_special: bool = True, parse_special: bool = False
    ) -> list[int]:
        """Return the ids of a text; control tokens are recognised in it only with ``parse_special``."""


class TextEncoder:
    """Prompts to what the transformer reads of them.

    Args:
        checkpoint: A Qwen3, of which the layers that are needed are packed.
        device: Runs it.
        layers: Whose hidden states are taken, in order.
        tokenizer: None: the checkpoint's own, where it has one.
        progress: Told how many bytes have been packed.

    Attributes:
        width: Columns of what it gives.

    Raises:
        FormatError: A tensor is missing or does not fit, or there are fewer layers.
        UnsupportedError: The model is no Qwen3.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        device: Device,
        layers: Sequence[int] = LAYERS,
        tokenizer: PromptTokenizer | None = None,
        progress: Progress | None = None,
    ) -> None:
        check_architecture(checkpoint)
        if list(layers) != sorted(set(layers)) or not layers or layers[0] < 0:
            raise RequestError(f"layers {tuple(layers)} are not in order")
        config: qwen3.Config = read_config(checkpoint).of_family
        if layers[-1] > config.num_hidden_layers:
            raise FormatError(
                f"the text encoder has {config.num_hidden_layers} layers, where {layers[-1]} are needed"
            )
        self.config = config
        self.width = len(layers) * config.hidden_size
        if tokenizer is None and checkpoint.has_tokenizer:
            tokenizer = Tokenizer.from_gguf(checkpoint.file)
        self._tokenizer = tokenizer
        builder, weights = _PromptBuilder(), Weights(checkpoint)
        states = [qwen3.FAMILY.embed(builder, config, weights)]
        for i in range(layers[-1]):
            states.append(qwen3.FAMILY.layer(builder, config, weights, i, states[-1]))
        for i, layer in enumerate(layers):
            builder.output(f"hidden.{i}", states[layer])
        self._outputs = [f"hidden.{i}" for i in range(len(layers))]
        matrices = builder.graph.matrices
        self._packed = device.pack(matrices, counted(device.packed_size(matrices), progress))
        self._executable = device.compile(builder.graph)

    def encode(self, prompts: Sequence[str], length: int = LENGTH) -> Array:
        """Return the hidden states of prompts.

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
        """Return the hidden states of prompts given as ids; arguments as of :meth:`encode`.

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
    """A decoder over a whole prompt at once, which keeps no keys and values."""

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
        pattern: KeyPattern | None = None,
    ) -> Value:
        """Add causal attention among the tokens of the batch, of which padding is not seen."""
        assert v is not None
        if window or softcap or chunk or pattern is not None:
            raise UnsupportedError("the text encoder has attention that only a cache serves")
        return self.attend_local(q, k, v, head_dim=head_dim, scale=scale, causal=True)
