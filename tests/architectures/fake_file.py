"""Keys and tensors of a GGUF file that is not written, for families to read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from oxibonsai.architectures.schema.family import Family
from oxibonsai.architectures.schema.sources import ConfigJson
from oxibonsai.architectures.schema.tensors import Lazy
from oxibonsai.checkpoint import Checkpoint
from oxibonsai.checkpoint.metadata import as_read
from oxibonsai.checkpoint.parameters import Parameter
from oxibonsai.models.keys import Keys

CONFIG = Path("folder") / "config.json"


def keys_of(
    architecture: str,
    values: Mapping[str, Any],
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    tensors: Mapping[str, np.ndarray[Any, Any]] | None = None,
) -> Keys:
    """The keys of a file with these values, by whole names, and tensors of these shapes."""
    held = dict(shapes or {})
    checkpoint = SimpleNamespace(
        path=Path("file.gguf"),
        architecture=architecture,
        file=SimpleNamespace(
            get=lambda key, default=None: values.get(key, default),
            text=lambda key, default=None: values.get(key, default),
            keys=lambda: list(values),
        ),
        tensor_names=set(held) | set(tensors or {}),
        has=lambda name: name in held or name in (tensors or {}),
        shape=lambda name: held[name],
        vector=lambda name: (tensors or {})[name],
    )
    return Keys(cast(Checkpoint, checkpoint))


def through_a_file(family: Family[Any], c: Any, parameters: Mapping[str, Parameter]) -> Any:
    """The config that a file says, written of a config and made of a folder's parameters."""
    stated = {key: as_read(value, kind) for key, (value, kind) in family.write_gguf(c).items()}
    table, shapes = family.table(c, "folder"), dict[str, tuple[int, ...]]()
    for entry in table.of_parameters(parameters):
        held = [Lazy(parameters[n].shape, parameters[n].values) for n in entry.parameters]
        shapes |= {n: t.shape for n, t in zip(entry.tensors, entry.forwards(held), strict=True)}
    keys = keys_of(family.name, stated, shapes, table.from_config)
    found = family.read_gguf(keys)
    keys.refuse_unread()
    return found


def config_json(**fields: Any) -> ConfigJson:
    """A ``config.json`` with these fields."""
    return ConfigJson(fields, CONFIG)
