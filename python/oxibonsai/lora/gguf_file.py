"""Adapters as llama.cpp's GGUF files: NAME.lora_a and NAME.lora_b for a model's tensor NAME."""

from __future__ import annotations

import hashlib

from oxibonsai import _core
from oxibonsai.checkpoint import Checkpoint
from oxibonsai.checkpoint.reader import Reader
from oxibonsai.errors import FormatError, UnsupportedError
from oxibonsai.lora.adapter import Adapter, LowRank

GENERAL_TYPE, ADAPTER_TYPE, ALPHA = "general.type", "adapter.type", "adapter.lora.alpha"
PART_A, PART_B = ".lora_a", ".lora_b"
ARCHITECTURE = "general.architecture"
# What a program may show; nothing in it changes a result.
_IDLE_KEYS = frozenset({"adapter.lora.task_name", "adapter.lora.prompt_prefix"})
_EMBEDDING = "token_embd.weight"
_LARGEST_ALPHA = 1e9


def read_adapter(file: Reader, name: str, scale: float, base: Checkpoint) -> Adapter:
    """Check a file against the model that it is for.

    Args:
        file: The GGUF file, or what stands for it.
        name: What errors call it.
        scale: How much of it is added.
        base: The model.

    Raises:
        FormatError: The file is damaged, is no adapter, or was made for another model.
        UnsupportedError: It changes more than linear layers.
    """
    return _AdapterReader(file, name, base).read(scale)


class _AdapterReader:
    def __init__(self, file: Reader, name: str, base: Checkpoint) -> None:
        self.file = file
        self.name = name
        self.base = base
        self.tensors = {t.name: t for t in self.file.tensors}

    def fail(self, problem: str) -> FormatError:
        return FormatError(f"{self.name}: {problem}")

    def read(self, scale: float) -> Adapter:
        self.check_kind()
        alpha = self.alpha()
        pairs = {}
        digest = hashlib.blake2b(repr(alpha).encode(), digest_size=16)
        for target in self.targets():
            a, b = self.matrix(target + PART_A), self.matrix(target + PART_B)
            self.check_shapes(target, a, b)
            pairs[target] = LowRank(a, b, alpha / a.rows)
            for weight in (a, b):
                shape = f"{weight.name} {weight.rows} {weight.cols} {weight.quant_type};"
                digest.update(shape.encode())
                digest.update(self.file.tensor_bytes(weight.name).data)
        return Adapter(self.name, scale, pairs, digest.hexdigest())

    def check_kind(self) -> None:
        if (kind := self.file.text(GENERAL_TYPE)) != "adapter":
            raise self.fail(f"it is no adapter: its {GENERAL_TYPE} is {kind!r}, not 'adapter'")
        if (kind := self.file.text(ADAPTER_TYPE)) != "lora":
            raise UnsupportedError(f"{self.name}: {ADAPTER_TYPE} is {kind!r}; known is 'lora'")
        for key in self.file.keys():  # noqa: SIM118 - not a dict
            known = key in _IDLE_KEYS or key in (ADAPTER_TYPE, ALPHA)
            if key.startswith("adapter.") and not known:
                raise UnsupportedError(
                    f"{self.name} has the key {key}, which this version does not know and which may "
                    "change what the adapter does"
                )
        made_for = self.file.text(ARCHITECTURE)
        if made_for != self.base.architecture:
            raise self.fail(
                f"it is for models of architecture {made_for!r}, but {self.base.path} is of "
                f"{self.base.architecture}"
            )

    def alpha(self) -> float:
        value = self.file.get(ALPHA)
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not 0.0 < value <= _LARGEST_ALPHA:
            raise self.fail(
                f"{ALPHA} is {value!r}, not a number above 0 and up to {_LARGEST_ALPHA:g}"
            )
        return float(value)

    def targets(self) -> list[str]:
        """Return the model's tensors that are changed, each by both of its parts."""
        found = set()
        for tensor in self.tensors:
            part = next((p for p in (PART_A, PART_B) if tensor.endswith(p)), None)
            if part is None:
                raise UnsupportedError(
                    f"{self.name} has the tensor {tensor}, which is no part of a low-rank pair "
                    f"(NAME{PART_A} and NAME{PART_B})"
                )
            target = tensor.removesuffix(part)
            other = target + (PART_B if part == PART_A else PART_A)
            if other not in self.tensors:
                raise self.fail(f"it has {tensor} but no {other}")
            found.add(target)
        if not found:
            raise self.fail(f"it holds no tensor NAME{PART_A}: it changes nothing")
        return sorted(found)

    def matrix(self, name: str) -> _core.Weight:
        info = self.tensors[name]
        if len(info.shape) != 2:
            raise self.fail(f"tensor {name} has shape {tuple(info.shape)}: no matrix")
        if not info.decodable:
            raise UnsupportedError(f"{self.name}: tensor {name} has type {info.quant_type}")
        weight = self.file.weight(name)
        if weight.inspect()["not_finite"]:
            raise self.fail(f"tensor {name} holds values that are not finite")
        return weight

    def check_shapes(self, target: str, a: _core.Weight, b: _core.Weight) -> None:
        if target == _EMBEDDING:
            raise UnsupportedError(
                f"{self.name} changes {target}, the token embedding; only linear layers can be changed"
            )
        if not self.base.has(target):
            raise self.fail(f"it changes {target}, which {self.base.path} does not have")
        shape = self.base.shape(target)
        if len(shape) != 2:
            raise UnsupportedError(f"{self.name} changes {target}, which is no matrix")
        rows, cols = shape
        if a.cols != cols:
            raise self.fail(
                f"tensor {a.name} has shape ({a.rows}, {a.cols}), but {target} of {self.base.path} "
                f"needs ({a.rows}, {cols})"
            )
        if (b.rows, b.cols) != (rows, a.rows):
            raise self.fail(
                f"tensor {b.name} has shape ({b.rows}, {b.cols}), but {target} of {self.base.path} and "
                f"the rank of {a.name} need ({rows}, {a.rows})"
            )
