"""Torch modules whose weights stay packed as a file stores them, frozen: for training adapters."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from oxibonsai import _core
from oxibonsai.errors import UnsupportedError
from oxibonsai.kernels import QuantizedMatrix

__all__ = ["QuantEmbedding", "QuantLinear"]


def _decoded(matrix: QuantizedMatrix, like: torch.Tensor) -> torch.Tensor:
    """Return all weights, in the type and on the device of a tensor."""
    return torch.from_numpy(matrix.dequantize()).to(like.device, like.dtype)


def _marker(dtype: torch.dtype) -> nn.Parameter:
    """Return an empty parameter, which says where and in which type weights are wanted; to() moves it.

    A model may have no other, and PEFT and transformers ask the first for its device.
    """
    return nn.Parameter(torch.empty(0, dtype=dtype), requires_grad=False)


class _Frozen(torch.Tensor):
    """Decoded weights; what is computed of them are plain tensors.

    PEFT merges by adding to ``weight.data``, which would be lost without a word.
    """

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @property
    def data(self) -> torch.Tensor:
        """Return the same values, which refuse to be changed, too."""
        return super().data.as_subclass(_Frozen)

    @data.setter
    def data(self, values: torch.Tensor) -> None:
        self._refuse(values)

    def _refuse(self, values: Any) -> Any:
        raise UnsupportedError(
            "packed weights can't be changed, so no adapter is merged into them: save it, and load it "
            "beside the model (--lora)"
        )

    __iadd__ = __isub__ = _refuse


class _Product(torch.autograd.Function):
    """``x W^T``, which keeps the packed weights for its gradient, and no decoded ones."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, matrix: QuantizedMatrix) -> torch.Tensor:
        """Return the product."""
        ctx.matrix = matrix
        return nn.functional.linear(x, _decoded(matrix, x))

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        """Return the gradient of x; the weights have none."""
        (gradient,) = gradients
        return gradient @ _decoded(ctx.matrix, gradient), None


class QuantLinear(nn.Linear):
    """A linear layer with frozen weights of any type, decoded one layer at a time.

    Its input gets gradients. PEFT adapts it as any ``nn.Linear``, but can't merge an adapter into it.

    Args:
        matrix: The weights, [out_features, in_features].
        bias: Float values [out_features], frozen too.
        dtype: Of ``weight``; products have their input's.

    Attributes:
        matrix: As given.
    """

    def __init__(
        self,
        matrix: QuantizedMatrix,
        bias: torch.Tensor | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        nn.Module.__init__(self)  # nn.Linear's own makes decoded weights
        self.matrix = matrix
        self.out_features, self.in_features = matrix.rows, matrix.cols
        self.bias = None if bias is None else nn.Parameter(bias, requires_grad=False)  # type: ignore[assignment]
        self._like = _marker(dtype)

    @property
    def weight(self) -> torch.Tensor:  # type: ignore[override]
        """Return the weights, decoded: a new tensor, whose values nobody can set."""
        return _decoded(self.matrix, self._like).as_subclass(_Frozen)

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Return the product, in the input's type, and the bias added."""
        y: torch.Tensor = _Product.apply(input, self.matrix)  # type: ignore[no-untyped-call]
        return y if self.bias is None else y + self.bias


class QuantEmbedding(nn.Embedding):
    """An embedding with frozen rows of any type, of which those that are looked up are decoded.

    Args:
        matrix: The rows, [num_embeddings, embedding_dim].
        dtype: Of the result.

    Attributes:
        matrix: As given.
    """

    def __init__(self, matrix: QuantizedMatrix, dtype: torch.dtype = torch.float32) -> None:
        nn.Module.__init__(self)
        self.matrix = matrix
        self.num_embeddings, self.embedding_dim = matrix.rows, matrix.cols
        self.padding_idx = self.max_norm = None
        self.norm_type, self.scale_grad_by_freq, self.sparse = 2.0, False, False
        self._like = _marker(dtype)

    @property
    def weight(self) -> torch.Tensor:  # type: ignore[override]
        """Return all rows, decoded: a new tensor, whose values nobody can set."""
        return _decoded(self.matrix, self._like).as_subclass(_Frozen)

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Return the rows of ids."""
        blocks = self.matrix.blocks[input.reshape(-1).cpu().numpy()]
        rows = _core.decode(self.matrix.quant_type, np.ascontiguousarray(blocks).reshape(-1))
        shape = (*input.shape, self.embedding_dim)
        return torch.from_numpy(rows).reshape(shape).to(self._like.device, self._like.dtype)
