"""The tensors of a network in a GGUF file, by the names that diffusers gives them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from oxibonsai import _core
from oxibonsai.checkpoint import Checkpoint
from oxibonsai.diffusion.folder_tensors import require_finite
from oxibonsai.errors import UnsupportedError

Floats = npt.NDArray[np.float32]


class GgufTensors:
    """Tensors of a file whose names begin with a prefix.

    Args:
        checkpoint: The file.
        prefix: Of the tensors' names there; left out here.
        others: Prefixes of tensors that belong to other networks.
        complete_names: Add the ``.weight`` that OxiBonsai's files leave away from packed matrices.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        prefix: str,
        others: tuple[str, ...] = (),
        *,
        complete_names: bool = True,
    ) -> None:
        self._checkpoint = checkpoint
        self._stored: dict[str, str] = {}
        for name in checkpoint.tensor_names:
            if name.startswith(prefix) and not (others and name.startswith(others)):
                own = name.removeprefix(prefix)
                self._stored[_with_suffix(own) if complete_names else own] = name

    @property
    def path(self) -> str:
        """The file."""
        return str(self._checkpoint.path)

    @property
    def names(self) -> set[str]:
        """Return the names of all tensors."""
        return set(self._stored)

    def shape(self, name: str) -> tuple[int, ...]:
        """Return a tensor's shape, slowest dimension first."""
        return self._checkpoint.shape(self._stored[name])

    def matrix(self, name: str) -> _core.Weight:
        """Return a matrix in its stored form; FormatError for values that are not finite."""
        return require_finite(self._checkpoint.weight(self._stored[name]), self.path)

    def stored(self, name: str) -> tuple[str, npt.NDArray[np.uint8]]:
        """Return a tensor of any shape as a type of the core and its bytes."""
        stored = self._stored[name]
        return (
            self._checkpoint.file.tensor(stored).quant_type,
            self._checkpoint.file.tensor_bytes(stored),
        )

    def release(self) -> None:
        """Take the weights out of memory, once they are packed for a device."""
        for stored in self._stored.values():
            self._checkpoint.file.release(stored)

    def array(self, name: str) -> Floats:
        """Return a tensor of any shape as float32."""
        stored = self._stored[name]
        info = self._checkpoint.file.tensor(stored)
        if not info.decodable:
            raise UnsupportedError(f"{self.path}: tensor {stored} has type {info.quant_type}")
        values = _core.decode(info.quant_type, self._checkpoint.file.tensor_bytes(stored))
        self._checkpoint.file.check_unchanged()
        return values.reshape(info.shape)


def _with_suffix(name: str) -> str:
    if name.endswith((".weight", ".bias", ".running_mean", ".running_var", ".num_batches_tracked")):
        return name
    return f"{name}.weight"
