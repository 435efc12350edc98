"""Opens a model file: its configuration and its tensors. GGUF's key names stop here."""

from __future__ import annotations

import hashlib
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from oxibonsai import _core
from oxibonsai.config import ModelConfig, RopeConfig
from oxibonsai.errors import FormatError, UnsupportedError
from oxibonsai.hadamard import read_fold
from oxibonsai.model_file import ModelFile

ARCHITECTURES = ("llama", "qwen2", "qwen3", "gemma3", "bert")
ENCODERS = frozenset({"bert"})

# Keys of an architecture's own section that are read below, and those that don't change the
# arithmetic of the architectures above. Anything else is refused by name.
_READ_KEYS = frozenset(
    {
        "attention.causal",
        "attention.head_count",
        "attention.head_count_kv",
        "attention.key_length",
        "attention.layer_norm_epsilon",
        "attention.layer_norm_rms_epsilon",
        "attention.scale",
        "attention.sliding_window",
        "attention.sliding_window_pattern",
        "attention.value_length",
        "attn_logit_softcapping",
        "block_count",
        "context_length",
        "embedding_length",
        "feed_forward_length",
        "final_logit_softcapping",
        "pooling_type",
        "rope.dimension_count",
        "rope.freq_base",
        "rope.freq_base_swa",
        "rope.scale_linear",
        "rope.scaling.attn_factor",
        "rope.scaling.factor",
        "rope.scaling.original_context_length",
        "rope.scaling.type",
        "rope.scaling.yarn_attn_factor",
        "rope.scaling.yarn_beta_fast",
        "rope.scaling.yarn_beta_slow",
        "vocab_size",
    }
)
_IDLE_KEYS = frozenset({"rope.scaling.finetuned", "tensor_data_layout"})
_IDLE_WHEN_ZERO = frozenset({"expert_count", "expert_used_count", "nextn_predict_layers"})

# Values of pooling_type. 0 leaves it open; 4 is a ranking head, which no architecture above has.
_POOLINGS = {1: "mean", 2: "cls", 3: "last"}
_SAMPLE_BYTES = 16 << 20  # more than the metadata of any vocabulary
_SAMPLES, _SMALL_SAMPLE_BYTES = 256, 4096

_GEMMA3_LOCAL_THETA = 10000.0  # llama.cpp's default where the file doesn't say
_GEMMA3_PATTERN = 6  # five local layers, then a global one


class Checkpoint:
    """A model file, opened and checked, not yet packed.

    Args:
        path: A GGUF file, or any shard of a split one, which stands for all.
        quant_type: Layout of the tensors of type id 42, where the file leaves it open.
        alone: Read one shard by itself: its metadata, and those tensors that it holds.

    Raises:
        SourceError: Shards are missing; they are named.
        FormatError: The file is damaged or lacks something that its architecture needs.
        UnsupportedError: It is valid, but asks for what this version does not implement.
    """

    def __init__(self, path: Path, quant_type: str = "", *, alone: bool = False) -> None:
        self.path = path
        open_file = ModelFile.open_alone if alone else ModelFile.open
        self.file = open_file(path, quant_type)
        self._tensors = {t.name: t for t in self.file.tensors}
        self._fingerprint: str | None = None
        self._identity: str | None = None

    @property
    def architecture(self) -> str:
        """``general.architecture``, checked to be one that can run."""
        name = self.file.get("general.architecture")
        if not isinstance(name, str):
            raise FormatError(f"{self.path}: general.architecture is missing")
        if self.file.get("general.type") == "adapter":
            raise FormatError(
                f"{self.path} is an adapter, no model: give it with --lora, beside one"
            )
        if name not in ARCHITECTURES:
            raise UnsupportedError(
                f"{self.path} is of architecture {name}; supported are {', '.join(ARCHITECTURES)}"
            )
        return name

    @property
    def has_weights(self) -> bool:
        """False for a vocabulary-only file."""
        return bool(self._tensors)

    @property
    def has_tokenizer(self) -> bool:
        """False for a file of weights alone."""
        return self.file.get("tokenizer.ggml.model") not in (None, "none", "no_vocab")

    @property
    def trained_context(self) -> int | None:
        """Positions that the model was trained on; None where the file does not say it."""
        length = self.file.get(f"{self.file.get('general.architecture')}.context_length")
        return length if isinstance(length, int) and length > 0 else None

    def fingerprint(self) -> str:
        """Names the content, whatever the files' names: a hash of tensors and of each file's size,
        head and tail.
        """
        if self._fingerprint is None:
            digest = hashlib.blake2b(digest_size=16)
            for t in self.file.tensors:
                digest.update(f"{t.name} {t.shape} {t.quant_type};".encode())
            for path in self.file.paths:
                with path.open("rb") as file:
                    size = file.seek(0, os.SEEK_END)
                    digest.update(str(size).encode())
                    for start in (0, max(size - _SAMPLE_BYTES, 0)):
                        file.seek(start)
                        digest.update(file.read(_SAMPLE_BYTES))
            self._fingerprint = digest.hexdigest()
        return self._fingerprint

    def identity(self) -> str:
        """Names the files as they lie there: a hash of size, time of change and samples of each."""
        if self._identity is None:
            digest = hashlib.blake2b(digest_size=16)
            for path in self.file.paths:
                with path.open("rb") as file:
                    status = os.fstat(file.fileno())
                    digest.update(f"{status.st_size} {status.st_mtime_ns}".encode())
                    for i in range(_SAMPLES):
                        file.seek(status.st_size * i // _SAMPLES)
                        digest.update(file.read(_SMALL_SAMPLE_BYTES))
            self._identity = digest.hexdigest()
        return self._identity

    def remember_identity(self, source: Path) -> None:
        """Prepares for the files to lose their names; ``source`` is what errors name from now on."""
        self.fingerprint()
        self.identity()
        self.path = source

    def config(self) -> ModelConfig:
        """The model's dimensions and constants."""
        return _ConfigReader(self).read()

    @property
    def tensor_names(self) -> set[str]:
        """Names of all tensors."""
        return set(self._tensors)

    def has(self, name: str) -> bool:
        """Whether the file holds a tensor of that name."""
        return name in self._tensors

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of a tensor, slowest dimension first."""
        if name not in self._tensors:
            raise FormatError(f"{self.path} lacks the tensor {name}")
        return tuple(self._tensors[name].shape)

    def weight(self, name: str) -> _core.Weight:
        """A matrix in its stored form, shared with whoever asks again by the caller's care."""
        if name not in self._tensors:
            raise FormatError(f"{self.path} lacks the tensor {name}")
        return self.file.weight(name)

    def vector(self, name: str) -> npt.NDArray[np.float32]:
        """A one-dimensional tensor as float32, checked to be finite."""
        info = self._tensors.get(name)
        if info is None:
            raise FormatError(f"{self.path} lacks the tensor {name}")
        if not info.decodable:
            raise UnsupportedError(f"{self.path}: tensor {name} has type {info.quant_type}")
        values = _core.decode(info.quant_type, self.file.tensor_bytes(name))
        if not np.isfinite(values).all():
            raise FormatError(f"{self.path}: tensor {name} holds values that are not finite")
        return values


class _ConfigReader:
    """Reads and checks the keys of one architecture."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.checkpoint = checkpoint
        self.file = checkpoint.file
        self.arch = checkpoint.architecture

    def fail(self, problem: str) -> FormatError:
        return FormatError(f"{self.checkpoint.path}: {problem}")

    def get(self, key: str, default: Any = None) -> Any:
        return self.file.get(f"{self.arch}.{key}", default)

    def integer(self, key: str, default: int | None = None) -> int:
        """A count from 1 to 2**31; the same value for all layers where the file lists them."""
        value = self.get(key, default)
        if value is None:
            raise self.fail(f"the key {self.arch}.{key} is missing")
        if isinstance(value, np.ndarray):
            if value.size == 0 or not (value == value[0]).all():
                raise UnsupportedError(
                    f"{self.checkpoint.path}: {self.arch}.{key} differs from layer to layer, which is "
                    "not supported"
                )
            value = value[0].item()
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 2**31:
            raise self.fail(f"{self.arch}.{key} is {value!r}, not a positive count")
        return value

    def real(self, key: str, default: float | None = None) -> float:
        value = self.get(key, default)
        if value is None:
            raise self.fail(f"the key {self.arch}.{key} is missing")
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not math.isfinite(value)
        ):
            raise self.fail(f"{self.arch}.{key} is {value!r}, not a finite number")
        return float(value)

    def read(self) -> ModelConfig:
        self.refuse_unknown_keys()
        hidden = self.integer("embedding_length")
        heads = self.integer("attention.head_count")
        head_dim = self.integer(
            "attention.key_length", hidden // heads if hidden % heads == 0 else None
        )
        if self.integer("attention.value_length", head_dim) != head_dim:
            raise UnsupportedError(
                f"{self.checkpoint.path}: keys and values of different lengths are not supported"
            )
        kv_heads = self.integer("attention.head_count_kv", heads)
        if heads % kv_heads != 0:
            raise self.fail(
                f"{heads} attention heads are no multiple of {kv_heads} key-value heads"
            )
        encoder = self.arch in ENCODERS
        if self.get("attention.causal", not encoder) is encoder:
            raise UnsupportedError(
                f"{self.checkpoint.path}: {self.arch}.attention.causal is {encoder}, which the "
                "architecture does not have in this version"
            )
        rope = RopeConfig(0, 10000.0) if encoder else self.rope(head_dim)
        gemma = self.arch == "gemma3"
        return ModelConfig(
            architecture=self.arch,
            vocab_size=self.checkpoint.shape("token_embd.weight")[0],
            hidden_size=hidden,
            intermediate_size=self.integer("feed_forward_length"),
            num_hidden_layers=self.integer("block_count"),
            num_attention_heads=heads,
            num_key_value_heads=kv_heads,
            head_dim=head_dim,
            max_position_embeddings=self.integer("context_length"),
            rms_norm_eps=0.0 if encoder else self.real("attention.layer_norm_rms_epsilon"),
            layer_norm_eps=self.real("attention.layer_norm_epsilon") if encoder else 0.0,
            causal=not encoder,
            pooling=self.pooling("mean" if encoder else "last"),
            rope=rope,
            attention_scale=self.real("attention.scale", head_dim**-0.5),
            rope_local=self.local_rope(rope.rotary_dim) if gemma else None,
            sliding_window=self.window(),
            sliding_window_pattern=self.integer("attention.sliding_window_pattern", _GEMMA3_PATTERN)
            if gemma
            else 0,
            attn_logit_softcapping=self.real("attn_logit_softcapping", 0.0),
            final_logit_softcapping=self.real("final_logit_softcapping", 0.0),
            name=str(self.file.get("general.name", "")),
            hadamard=read_fold(self.file, self.checkpoint.path),
        )

    def pooling(self, default: str) -> str:
        value = self.get("pooling_type", 0)
        if value == 0:
            return default
        if value not in _POOLINGS:
            raise UnsupportedError(
                f"{self.checkpoint.path}: {self.arch}.pooling_type is {value!r}; known are 1 (mean), 2 "
                "(cls) and 3 (last)"
            )
        return _POOLINGS[value]

    def refuse_unknown_keys(self) -> None:
        for key in self.file.keys():  # noqa: SIM118 - not a dict
            if not key.startswith(f"{self.arch}."):
                continue
            short = key.removeprefix(f"{self.arch}.")
            if short in _READ_KEYS or short in _IDLE_KEYS:
                continue
            if short in _IDLE_WHEN_ZERO and self.file.get(key) == 0:
                continue
            raise UnsupportedError(
                f"{self.checkpoint.path} has the key {key}, which this version does not know and which "
                "may change the arithmetic of the model"
            )

    def window(self) -> int:
        value = self.get("attention.sliding_window", 0)
        return 0 if value == 0 else self.integer("attention.sliding_window")

    def rope(self, head_dim: int) -> RopeConfig:
        rotary = self.integer("rope.dimension_count", head_dim)
        if rotary % 2 != 0 or rotary > head_dim:
            raise self.fail(
                f"{self.arch}.rope.dimension_count is {rotary}, odd or above {head_dim}"
            )
        scaling = self.get("rope.scaling.type", "none")
        if scaling not in ("none", "linear", "yarn"):
            raise UnsupportedError(
                f"{self.checkpoint.path}: rope scaling of type {scaling} is not supported"
            )
        factor = self.real("rope.scaling.factor", self.real("rope.scale_linear", 1.0))
        if factor <= 0.0:
            raise self.fail(f"{self.arch}.rope.scaling.factor is {factor}, not above zero")
        if scaling == "none" and "rope.scale_linear" in self.short_keys() and factor != 1.0:
            scaling = "linear"
        attention = self.real("rope.scaling.yarn_attn_factor", 1.0)
        return RopeConfig(
            rotary_dim=rotary,
            theta=self.theta("rope.freq_base"),
            scaling=scaling,
            factor=factor,
            original_context=self.original_context() if scaling == "yarn" else 0,
            beta_fast=self.real("rope.scaling.yarn_beta_fast", 32.0),
            beta_slow=self.real("rope.scaling.yarn_beta_slow", 1.0),
            attention_factor=self.real("rope.scaling.attn_factor", attention),
            frequency_factors=self.frequency_factors(rotary),
            interleaved=self.arch == "llama",
        )

    def short_keys(self) -> set[str]:
        prefix = f"{self.arch}."
        return {k.removeprefix(prefix) for k in self.file.keys() if k.startswith(prefix)}  # noqa: SIM118

    def theta(self, key: str, default: float = 10000.0) -> float:
        value = self.real(key, default)
        if value <= 1.0:
            raise self.fail(f"{self.arch}.{key} is {value}, not above 1")
        return value

    def original_context(self) -> int:
        return self.integer("rope.scaling.original_context_length", self.integer("context_length"))

    def local_rope(self, rotary: int) -> RopeConfig:
        return RopeConfig(rotary, self.theta("rope.freq_base_swa", _GEMMA3_LOCAL_THETA))

    def frequency_factors(self, rotary: int) -> tuple[float, ...]:
        if not self.checkpoint.has("rope_freqs.weight"):
            return ()
        values = self.checkpoint.vector("rope_freqs.weight")
        if values.size != rotary // 2 or not (values > 0).all():
            raise self.fail(
                f"rope_freqs.weight needs {rotary // 2} positive values, one for each rotated pair"
            )
        return tuple(float(v) for v in values)
