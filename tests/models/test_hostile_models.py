"""Files that claim nonsense: each number and each shape of a model, one at a time, is one typed error.

The sweep goes over all keys and tensors of models with experts, states, latent attention and layers of
different sizes, and lists what may be anything.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from oxibonsai import _core, models
from oxibonsai.checkpoint import Checkpoint
from oxibonsai.checkpoint.gguf import GgufModel
from oxibonsai.convert.language_model import convert
from oxibonsai.errors import OxiBonsaiError
from oxibonsai.models import describe, load_model

pytest.importorskip("transformers", reason="needs transformers and torch (extra: test)")
import dense_models as dm
import expert_models as em
import recurrent_models as rm
import remote_models

pytestmark = pytest.mark.hf

HUGE = 2**31 - 1
# What each kind of value becomes.
COUNTS: list[Any] = [-1, 0, HUGE, 2**32 - 1, 1.5, "many", [4]]
REALS: list[Any] = [-1.0, math.nan, math.inf, "much", [0.5]]
KINDS: list[Any] = [
    True, 7, math.nan, 2**64 - 1, "", "a", "\udcff", [], ["a"], [["a"]], [np.array([1, 2])],
    np.array([]), np.array([1, 2]), np.array([1, 1]), np.array([math.nan, 1.0]), np.array([True, False]),
]  # fmt: skip
LISTS: list[Any] = [[], -1, HUGE, [-1], [HUGE], "all"]


# What a file may say all the same; of a count that no tensor goes by, anything.
SENSIBLE = {
    ("altup.active_idx", "0"),
    ("attention.block_head_step", "0"),  # all heads see the same blocks
    ("attention.global_token_count", "0"),
    ("attention.head_count", "0"),  # of models without attention
    ("attention.layer_norm_epsilon", "-1.0"),  # of Nemotron-H, beside that of RMS norms
    ("attention.shared_kv_layers", "0"),
    ("attention.sliding_window", "0"),
    ("attention.sliding_window", str(HUGE)),
    ("attention.temperature_length", str(HUGE)),
    ("attention.temperature_scale", "-1.0"),
    ("attention.sliding_window_pattern", str(HUGE)),
    ("context_length", str(HUGE)),
    ("embedding_length_per_layer_input", "0"),
    ("feed_forward_length", "0"),
    ("feed_forward_length", str(HUGE)),  # of models whose layers all have experts
    ("full_attention_interval", "0"),  # of Phi-3-small: no layer attends to all
    ("full_attention_interval", str(HUGE)),  # beside a list of the layers that attend
    ("leading_dense_block_count", "0"),
    ("rope.scaling.original_context_length", str(HUGE)),
    ("ssm.group_count", "0"),  # of PLaMo 2
    ("expert_count", str(HUGE)),  # of models without experts
    ("expert_count", "0"),
    ("expert_feed_forward_length", str(HUGE)),  # of Hunyuan, whose experts have the other width
    *((key, "[-1 -1]") for key in ("alpha_n", "alpha_p", "beta", "eps")),  # of xIELU, in two layers
}
ANYTHING = {"vocab_size", "expert_used_count"}  # the latter of Jamba without experts
# Tensors that a file may lack, beside biases; of some architectures alone.
NOT_NEEDED = {
    "": {"output.weight", "rope_freqs.weight"},
    "falcon-h1": {"blk.ssm_norm.weight"},
    "gemma4": {"blk.attn_v.weight", "blk.layer_output_scale.weight"},  # values may be the keys
    # Of the first layer, which mixes no values.
    "rwkv7": {f"blk.time_mix_v{i}.weight" for i in range(3)},
}


class ChangedFile:
    """A GGUF file with another value of one key."""

    def __init__(self, file: Any, key: str, value: Any) -> None:
        self._file, self._key, self._value = file, key, value

    def get(self, key: str, default: Any = None) -> Any:
        return self._value if key == self._key else self._file.get(key, default)

    def text(self, key: str, default: str | None = None) -> str | None:
        return GgufModel.text(cast(GgufModel, self), key, default)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def loads(checkpoint: Checkpoint) -> bool:
    """Whether a file makes a model; no error but a typed one gets through."""
    try:
        describe(checkpoint)  # looks at everything, without the weights' values
        load_model(checkpoint, _core.CpuDevice(1, "scalar"))
    except OxiBonsaiError as e:
        message = str(e)
    else:
        return True
    assert str(checkpoint.path) in message
    return False


def nonsense(value: Any) -> list[Any]:
    """Values in the place of one of a key."""
    if isinstance(value, int):
        return COUNTS
    if isinstance(value, float):
        return REALS
    return [np.array(v * len(value)) if v and isinstance(v, list) else v for v in LISTS]


def accepted_values(path: Path) -> Iterator[tuple[str, str]]:
    """Keys and values of the sweep with which a file loads."""
    file = Checkpoint(path).file
    for key in file.keys():  # noqa: SIM118 - not a dict
        value = file.get(key)
        if key.partition(".")[0] in ("general", "tokenizer") or isinstance(value, bool | str):
            continue
        for other in nonsense(value):
            checkpoint = Checkpoint(path)
            checkpoint.file = ChangedFile(file, key, other)
            if loads(checkpoint):
                yield key.partition(".")[2], str(other)


def wrong_kinds(path: Path) -> Iterator[None]:
    """Opens the file with a value of another kind for each of its keys, texts and truths included."""
    file = Checkpoint(path).file
    for key in file.keys():  # noqa: SIM118 - not a dict
        for other in KINDS:
            checkpoint = Checkpoint(path)
            checkpoint.file = ChangedFile(file, key, other)
            with contextlib.suppress(OxiBonsaiError):
                describe(checkpoint)
            yield


def accepted_shapes(path: Path) -> Iterator[tuple[str, str]]:
    """Tensors without which, or with axes in another order, a file loads."""
    tensors = Checkpoint(path)._tensors
    seen = set()
    for name in tensors:
        part = ".".join(p for p in name.split(".") if not p.isdecimal())
        shape = tuple(tensors[name].shape)
        if part in seen:  # of one layer, where several have it
            continue
        seen.add(part)
        orders = itertools.permutations(shape) if len(shape) <= 3 else [shape[::-1]]
        for order in (None, *sorted(set(orders) - {shape})):
            checkpoint = Checkpoint(path)
            if order is None:
                del checkpoint._tensors[name]
            else:
                info = tensors[name]
                checkpoint._tensors[name] = SimpleNamespace(
                    name=name, shape=order, quant_type=info.quant_type, decodable=True
                )
            if loads(checkpoint):
                yield part, str(order)


Case = remote_models.RemoteCase | dm.Case | rm.Case
QUICK = {
    "deepseek2-v3",
    "gpt-oss",
    "llama4",
    "granitemoe-shared",
    "qwen35",
    "mamba2",
    "jamba",
    "lfm2",
}
CASES: list[Any] = [
    pytest.param(c, id=c.name, marks=[] if c.name in QUICK or kind == 0 else [pytest.mark.slow])
    for kind, cases in enumerate((remote_models.CASES, em.CASES, rm.CASES, dm.CASES))
    for c in cases
]


def written(case: Case, folder: Path) -> Path:
    """The case's file in float32."""
    path = folder / "model.gguf"
    if isinstance(case, remote_models.RemoteCase):
        remote_models.write(case, path)
        return path
    if isinstance(case, rm.Case):
        case.save(folder / "model")
    else:
        dm.save(case, folder / "model")
    convert(folder / "model", path, dtype="f32")
    return path


@pytest.mark.parametrize("case", CASES)
def test_nonsense_is_one_typed_error(case: Case, tmp_path: Path) -> None:
    path = written(case, tmp_path)
    assert loads(Checkpoint(path))
    assert sum(1 for _ in wrong_kinds(path)) >= 8 * len(KINDS)
    accepted = {(k, v) for k, v in accepted_values(path) if k not in ANYTHING}
    assert accepted <= SENSIBLE
    free = NOT_NEEDED[""] | NOT_NEEDED.get(Checkpoint(path).architecture, set())
    shapes = {(part, order) for part, order in accepted_shapes(path) if part not in free}
    assert {part for part, _ in shapes if not part.endswith(".bias")} == set()
    assert {order for _, order in shapes} <= {"None"}  # a bias may be missing, but has its shape


def test_the_sweep_would_find_what_is_not_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = next(c for c in remote_models.CASES if c.name == "plamo2")
    path = written(case, tmp_path)
    assert ("ssm.state_size", str(HUGE)) not in set(accepted_values(path))
    monkeypatch.setattr(models, "check_constants", lambda keys, config: None)
    assert ("attention.layer_norm_rms_epsilon", "-1.0") in set(accepted_values(path))
