"""Folders whose weights are Hadamard-rotated already: PrismML's MLX packs, and folded checkpoints.

An MLX pack (``model_type`` ``prism_hadamard_qwen35``) lists its rotated modules in ``config.json``, and has
the signs of each beside it as ``NAME.signs``. A folded checkpoint is a Hugging Face folder with
``hadamard_packing.json``. Neither is rotated here: codes and scales are kept, and the file gets the keys
``prism.hadamard.*`` (docs/formats.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from oxibonsai.architectures.schema.arithmetic import Add
from oxibonsai.architectures.schema.family import Family
from oxibonsai.architectures.schema.operations import MergeAxes
from oxibonsai.architectures.schema.tensors import Entry, Tensor
from oxibonsai.checkpoint.float_types import Floats
from oxibonsai.checkpoint.folder import ModelFolder
from oxibonsai.checkpoint.metadata import Metadata
from oxibonsai.checkpoint.parameters import FloatParameter, Parameter
from oxibonsai.convert.converter import Converter
from oxibonsai.convert.families import FamilyConverter
from oxibonsai.errors import FormatError, UnsupportedError

PACK_TYPE, PACKED_TYPE = "prism_hadamard_qwen35", "qwen3_5"  # and the type of what is packed
MANIFEST = "hadamard_packing.json"
_TRANSFORM = "normalized-sylvester-walsh-hadamard"
_PACK = {
    "schema_version": 2,
    "base_model_type": PACKED_TYPE,
    "tensor_namespace": "mlx-vlm-qwen3_5",
    "gdn_activation_layout": "grouped",
    "quantization": {"bits": 2, "group_size": 128, "mode": "affine"},
}
_MANIFEST = {
    "kind": "hadamard-weight-fold",
    "status": "requires-matching-runtime",
}
_SIGNED_TRANSFORM = "normalized-signed-sylvester-walsh-hadamard"
_MATRIX, _TABLE = "fold-before-matmul", "inverse-after-lookup"
# Its columns are value heads in the order of folders, which no one can change after the rotation.
_GROUPED = ".linear_attn.out_proj.weight"
_SIGNS = ".signs"


@dataclass(frozen=True)
class Rotation:
    """How a folder's weights are rotated.

    Attributes:
        block: Values that a transform mixes.
        signs: By the width of a matrix's input; empty: no value changes its sign.
        matrices: Rotated parameters, by the names of the folder.
        tables: Rotated tables of tokens, likewise.
        tied: Whether a table is the output matrix, too.
        packed: Whether the folder is an MLX pack, whose norms hold 1 + w.
    """

    block: int
    signs: Mapping[int, tuple[int, ...]]
    matrices: frozenset[str]
    tables: frozenset[str]
    tied: bool
    packed: bool


def with_rotation(folder: ModelFolder, converter: Converter) -> Converter:
    """Return what converts a folder with its rotation; the same converter where nothing is rotated.

    Raises:
        FormatError: The folder's rotation contradicts itself or its parameters.
        UnsupportedError: It is of a kind that is not known, or of a model that can't have one.
    """
    rotation = _read(folder)
    if rotation is None:
        return converter
    if not isinstance(converter, FamilyConverter):
        raise UnsupportedError(
            f"{folder.path}: {converter.architecture} with Hadamard-rotated weights is not supported"
        )
    variant = converter.variant
    family = replace(
        converter.family, tensors=partial(_tensors, converter.family, converter, rotation)
    )
    matrices = {_own_name(converter, name) for name in rotation.matrices | rotation.tables}
    fields = {**vars(converter), "family": family, "rotated": frozenset(matrices)}
    fields["metadata"] = lambda source: {
        **converter.metadata(source), **_keys(source, converter, family, rotation),
    }  # fmt: skip
    if variant is not None:
        fields["variant"] = lambda source: with_rotation(source, variant(source))
    return _RotatedConverter(**fields)


@dataclass(frozen=True, kw_only=True)
class _RotatedConverter(FamilyConverter):
    """Converts a folder whose signs may lie beside its parameters.

    Attributes:
        rotated: Parameters that are rotated, by the family's names. Other matrices are stored as they
            are, in bfloat16 where that loses nothing, as published files have them.
    """

    rotated: frozenset[str]

    def parameters(self, folder: ModelFolder) -> dict[str, Parameter]:
        """Return a folder's parameters by the family's names, without signs."""
        found = super().parameters(folder)
        return {
            name: held
            if name in self.rotated or not isinstance(held, FloatParameter)
            else _narrowed(held)
            for name, held in found.items()
            if not name.endswith(_SIGNS)
        }

    def chooses_type(self, entry: Tensor) -> bool:
        """Return whether an entry's parameters are rotated."""
        return entry.matrix and entry.parameters[0] in self.rotated


@dataclass(frozen=True)
class _Narrowed:
    """Floats of 32 bits of which 16 say everything; they are stored as bfloat16."""

    wide: FloatParameter

    exact_type = "bf16"

    @property
    def shape(self) -> tuple[int, ...]:
        """The tensor's."""
        return self.wide.shape

    def values(self) -> Floats:
        """Return the tensor as it is."""
        return self.wide.values()


def _narrowed(held: FloatParameter) -> Parameter:
    """Return a parameter as bfloat16 if that holds all its values, else as it is."""
    if held.exact_type != "f32" or (held.values().view(np.uint32) & 0xFFFF).any():
        return held
    return _Narrowed(held)


def _tensors(
    family: Family[Any], converter: FamilyConverter, rotation: Rotation, c: Any
) -> Iterator[Entry]:
    """Yield a family's entries, of which none undoes what the rotation has fixed."""
    matrices = {_own_name(converter, name) for name in rotation.matrices}
    for entry in family.tensors(c):
        if not isinstance(entry, Tensor):
            yield entry
            continue
        kept = entry.operations
        if (
            rotation.packed
        ):  # norms hold 1 + w, and MLX's convolutions have their taps before the channels
            taps = MergeAxes(c.linear_conv_kernel_dim, axis=1)
            kept = tuple(
                taps if isinstance(op, MergeAxes) else op for op in kept if not isinstance(op, Add)
            )
        if entry.parameters[0] in matrices and entry.parameters[0].endswith(_GROUPED):
            kept = ()
        yield replace(entry, operations=kept)


def _keys(
    folder: ModelFolder, converter: FamilyConverter, family: Family[Any], rotation: Rotation
) -> Metadata:
    """Return the file's keys of the rotation."""
    c, _ = converter.table(folder)
    wanted = {
        kind: {_own_name(converter, name) for name in names}
        for kind, names in (("matrices", rotation.matrices), ("tables", rotation.tables))
    }
    names: dict[str, list[str]] = {"matrices": [], "tables": []}
    for entry in family.tensors(c):
        if not isinstance(entry, Tensor):
            continue
        for kind, found in names.items():
            rotated = [name for name in entry.parameters if name in wanted[kind]]
            if rotated and len(rotated) < len(entry.parameters):
                raise FormatError(
                    f"{folder.path}: {rotated[0]} is rotated, but not all of the parameters that go "
                    f"into {entry.tensors[0]} are"
                )
            found += entry.tensors if rotated else ()
            wanted[kind] -= {*rotated}
    for name in sorted(wanted["matrices"] | wanted["tables"]):
        raise FormatError(f"{folder.path}: {name} is said to be rotated, but the model has none")
    values: Metadata = {
        "version": (2 if rotation.tied else 1, "u32"),
        "block_size": (rotation.block, "u32"),
        "transform": (_TRANSFORM, "str"),
        "axis": ("input-last-dimension", "str"),
        "sign_mode": ("explicit" if rotation.signs else "identity", "str"),
        "weight_names": (names["matrices"], "arr[str]"),
        "inverse_weight_names": (names["tables"], "arr[str]"),
        "gdn_v_grouped": (any(n.endswith(_GROUPED) for n in rotation.matrices), "bool"),
    }
    if rotation.signs:
        values["sign_widths"] = (list(rotation.signs), "arr[i32]")
        signs = [sign for part in rotation.signs.values() for sign in part]
        values["sign_values"] = (signs, "arr[i32]")
    if rotation.tied:
        values["tied_output"] = (True, "bool")
    return {f"prism.hadamard.{key}": value for key, value in values.items()}


def _own_name(converter: FamilyConverter, parameter: str) -> str:
    """Return the family's name of a parameter of the folder."""
    own = parameter if converter.wrapper is None else converter.wrapper.text_name(parameter)
    return converter.family.spelled(own or parameter)


def _read(folder: ModelFolder) -> Rotation | None:
    config = folder.json("config.json")
    if config.get("model_type") == PACK_TYPE:
        return _read_pack(folder, config)
    if (folder.path / MANIFEST).is_file():
        return _read_manifest(folder, folder.json(MANIFEST))
    return None


def _require(where: str, found: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    for key, value in wanted.items():
        if found.get(key) != value:
            raise UnsupportedError(f"{where}: {key} is {found.get(key)!r}; known is {value!r}")


def _read_pack(folder: ModelFolder, config: Mapping[str, Any]) -> Rotation:
    where = str(folder.path / "config.json")
    _require(where, config, _PACK)
    modules = config.get("modules")
    if not isinstance(modules, list) or not all(isinstance(module, dict) for module in modules):
        raise FormatError(f"{where} has no list of modules")
    rotated = [module for module in modules if module.get("block") != 0]
    blocks = {module.get("block") for module in rotated if isinstance(module.get("block"), int)}
    if len(blocks) != 1 or not all(isinstance(module.get("block"), int) for module in rotated):
        raise FormatError(f"{where}: the modules have no block that is the same for all")
    names: dict[bool, set[str]] = {True: set(), False: set()}
    signs: dict[int, tuple[int, ...]] = {}
    for module in rotated:
        path = f"language_model.{module.get('path')}"
        if module.get("dtype") != "float16" or not isinstance(module.get("embedding"), bool):
            raise UnsupportedError(f"{where}: module {path} has other fields than are known")
        held, own = (folder.parameters.get(f"{path}{part}") for part in (".weight", _SIGNS))
        if held is None or own is None:
            raise FormatError(f"{folder.path} lacks the weight or the signs of {path}")
        values = _signs(f"{folder.path}: {path}{_SIGNS}", own.values())
        if len(values) != held.shape[-1] or signs.setdefault(len(values), values) != values:
            raise FormatError(
                f"{folder.path}: {path} has other signs than a matrix of the same width, or too few"
            )
        names[module["embedding"]].add(f"{path}.weight")
    tied = bool(names[True]) and "language_model.lm_head.weight" not in folder.parameters
    return Rotation(
        blocks.pop(), dict(sorted(signs.items())), frozenset(names[False]), frozenset(names[True]),
        tied, packed=True,
    )  # fmt: skip


def _read_manifest(folder: ModelFolder, manifest: Mapping[str, Any]) -> Rotation:
    where = str(folder.path / MANIFEST)
    _require(where, manifest, _MANIFEST)
    schema, tied = manifest.get("schema_version"), manifest.get("tied_output", False)
    if schema not in (1, 2, 3) or isinstance(schema, bool):
        raise UnsupportedError(f"{where}: schema_version is {schema!r}; known are 1, 2 and 3")
    if (schema == 3) is not tied:
        raise FormatError(f"{where}: tied_output is {tied!r}, but schema {schema} says otherwise")
    transform, tensors = manifest.get("transform"), manifest.get("tensors")
    if not isinstance(transform, dict) or not isinstance(tensors, list):
        raise FormatError(f"{where} has no transform or no list of tensors")
    _require(where, transform, {"name": _SIGNED_TRANSFORM})
    block, mode = transform.get("block_size"), transform.get("sign_mode")
    if type(block) is not int or block < 2 or block & (block - 1):
        raise FormatError(f"{where}: block_size is {block!r}, not a power of two")
    if mode not in ("identity", "explicit"):
        raise UnsupportedError(f"{where}: sign_mode is {mode!r}, neither identity nor explicit")
    names: dict[str, set[str]] = {_MATRIX: set(), _TABLE: set()}
    for tensor in tensors:
        name = tensor.get("name") if isinstance(tensor, dict) else None
        if not isinstance(name, str):
            raise FormatError(f"{where} lists a tensor without a name")
        role = tensor.get("role", _MATRIX)
        if role not in names or tensor.get("axis") != -1:
            raise UnsupportedError(
                f"{where}: {name} has role {role!r} and axis {tensor.get('axis')!r}; known are "
                f"{_MATRIX} and {_TABLE}, and -1"
            )
        names[role].add(name)
    return Rotation(
        block, _manifest_signs(where, manifest, mode), frozenset(names[_MATRIX]),
        frozenset(names[_TABLE]), tied, packed=False,
    )  # fmt: skip


def _manifest_signs(
    where: str, manifest: Mapping[str, Any], mode: str
) -> dict[int, tuple[int, ...]]:
    listed = manifest.get("signs", {})
    if mode == "identity":
        if listed:
            raise FormatError(f"{where}: sign_mode is identity, but there are signs")
        return {}
    if not isinstance(listed, dict) or not listed:
        raise FormatError(f"{where}: sign_mode is explicit, but there are no signs")
    found = {}
    for width, values in listed.items():
        if not isinstance(width, str) or not width.isdecimal() or not isinstance(values, list):
            raise FormatError(f"{where}: signs has {width!r}, which is no width with a list")
        found[int(width)] = _signs(f"{where}: signs of width {width}", values)
        if len(values) != int(width):
            raise FormatError(f"{where}: there are {len(values)} signs for the width {width}")
    return dict(sorted(found.items()))


def _signs(where: str, values: Any) -> tuple[int, ...]:
    try:
        numbers = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as e:
        raise FormatError(f"{where} is no list of numbers") from e
    if numbers.ndim != 1 or not np.isin(numbers, (-1.0, 1.0)).all():
        raise FormatError(f"{where} holds a value other than -1 and 1")
    return tuple(int(v) for v in numbers)
