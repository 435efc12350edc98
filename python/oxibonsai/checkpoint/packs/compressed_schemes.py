"""``quantization_config`` of compressed-tensors: which modules are packed, and how.

Config groups have targets: names of modules, regular expressions after ``re:``, or classes of torch.
Only names are in the files, so of classes ``Linear`` and ``Embedding`` are told apart, by the name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from oxibonsai.errors import FormatError, UnsupportedError

METHOD = "compressed-tensors"
PACKED_FORMAT = "pack-quantized"
_FORMATS = (PACKED_FORMAT, "int-quantized", "naive-quantized", "float-quantized")
_NO_FORMAT = ("dense", "mixed-precision", None)  # of all groups together: each has its own
_STRATEGIES = ("tensor", "channel", "group", "block")
_IN_ORDER = (None, False, "weight", "static")  # actorder; otherwise weight_g_idx says the groups
_CLASSES = ("Linear", "Embedding")
_MOST_REPEATS = 5  # in a regular expression: more could take a hostile one forever
_MOST_GROUP = 1 << 31


@dataclass(frozen=True)
class Scheme:
    """How the weights of some modules are stored.

    Attributes:
        format: One of the formats; None: the stored tensors tell.
        bits: Of a code.
        floats: Whether codes are eight-bit floats, and no integers.
        symmetric: Whether there are no zero points.
        strategy: What shares a scale: ``"tensor"``, ``"channel"`` (a row), ``"group"`` or ``"block"``.
        block: Rows and columns that share a scale; 0 stands for all of them.
        ordered: Whether groups are neighbours by ``actorder``.
    """

    format: str | None
    bits: int
    floats: bool
    symmetric: bool
    strategy: str
    block: tuple[int, int]
    ordered: bool


class Schemes:
    """Finds the scheme of a module.

    Args:
        quantization: ``quantization_config``.
        where: Names the model in errors.

    Raises:
        FormatError: It is not what compressed-tensors writes.
        UnsupportedError: It has a format, or something beside the weights, that is not known.
    """

    def __init__(self, quantization: dict[str, Any], where: str) -> None:
        self._where = where
        self._refuse_other_parts(quantization)
        groups = quantization.get("config_groups")
        if not isinstance(groups, dict) or not groups:
            raise FormatError(f"{where}: quantization_config has no config_groups")
        self._ignored = self._names(quantization.get("ignore") or [], "ignore")
        self._of_target: dict[str, Scheme | None] = {}
        for name, group in groups.items():
            if not isinstance(group, dict):
                raise UnsupportedError(
                    f"{where}: config group {name!r} is no object; convert knows no presets by name"
                )
            scheme = self._scheme(name, group, quantization.get("format"))
            for target in self._names(group.get("targets"), f"targets of config group {name!r}"):
                self._of_target[target] = scheme

    def of(self, module: str) -> Scheme:
        """Return the scheme of a module that is packed.

        Raises:
            FormatError: The configuration leaves the module out.
        """
        if any(_matches(module, entry) for entry in self._ignored):
            raise FormatError(f"{self._where}: {module} is packed, but among those to ignore")
        # Names come before regular expressions, and these before classes, as the package has it.
        targets = sorted(self._of_target, key=lambda t: (t in _CLASSES, t.startswith("re:"), t))
        target = next((t for t in targets if _matches(module, t)), None)
        scheme = None if target is None else self._of_target[target]
        if scheme is None:
            raise FormatError(
                f"{self._where}: {module} is packed, but no config group for weights has it among its "
                f"targets ({', '.join(targets)[:200]})"
            )
        return scheme

    def _refuse_other_parts(self, quantization: dict[str, Any]) -> None:
        form = quantization.get("format")
        if form not in (*_FORMATS, *_NO_FORMAT):
            raise UnsupportedError(
                f"{self._where}: the format of {METHOD} is {form!r}; convert knows "
                + ", ".join(_FORMATS)
            )
        sparsity = quantization.get("sparsity_config")
        if sparsity and (not isinstance(sparsity, dict) or sparsity.get("format") != "dense"):
            kind = sparsity.get("format") if isinstance(sparsity, dict) else sparsity
            raise UnsupportedError(
                f"{self._where}: sparsity_config has the format {kind!r}; convert knows only dense "
                "weights"
            )
        if quantization.get("moe_sparsity_config"):
            raise UnsupportedError(
                f"{self._where}: moe_sparsity_config leaves experts out, which convert does not know"
            )
        if quantization.get("transform_config"):
            raise UnsupportedError(
                f"{self._where}: transform_config rotates activations, which convert can't write; save "
                "the model without transforms"
            )

    def _names(self, held: object, what: str) -> list[str]:
        if not isinstance(held, list) or not all(isinstance(name, str) for name in held):
            raise FormatError(f"{self._where}: {what} of quantization_config is no list of names")
        for name in held:
            if name.startswith("re:"):
                self._check_pattern(name.removeprefix("re:"))
        return held

    def _check_pattern(self, pattern: str) -> None:
        """Refuse a regular expression that is wrong, or that might never end."""
        if re.search(r"\)[*+{]", pattern) or len(re.findall(r"[*+{]", pattern)) > _MOST_REPEATS:
            raise UnsupportedError(
                f"{self._where}: the target {pattern[:80]!r} repeats a group, or repeats more than "
                f"{_MOST_REPEATS} times; name the modules"
            )
        try:
            re.compile(pattern)
        except (re.error, OverflowError) as e:
            raise FormatError(
                f"{self._where}: the target {pattern[:80]!r} is no regular expression: {e}"
            ) from e

    def _scheme(self, name: str, group: dict[str, Any], form: str | None) -> Scheme | None:
        """Return how a config group stores weights; None: it is about activations alone."""
        weights, where = group.get("weights"), f"{self._where}: config group {name!r}"
        own = group.get("format") or (None if form in _NO_FORMAT else form)
        if own is not None and own not in (*_FORMATS, "dense"):
            raise UnsupportedError(
                f"{where} has the format {own!r}; convert knows {', '.join(_FORMATS)}"
            )
        if weights is None:
            return None
        if not isinstance(weights, dict):
            raise FormatError(f"{where}: weights is no object")
        bits, kind = weights.get("num_bits", 8), weights.get("type", "int")
        floats = kind == "float"
        if kind not in ("int", "float") or type(bits) is not int or not 1 <= bits <= 8:
            raise UnsupportedError(
                f"{where} has weights of type {kind!r} with num_bits {bits!r}; convert knows int of 1 to "
                "8 bits and float of 8"
            )
        symmetric = weights.get("symmetric", True)
        if floats and (bits != 8 or own == PACKED_FORMAT or symmetric is not True):
            raise UnsupportedError(
                f"{where} has floats of num_bits {bits}, symmetric {symmetric!r}, format {own!r}; "
                "convert knows symmetric floats of 8 bits that are not packed"
            )
        if type(symmetric) is not bool or weights.get("dynamic", False) is not False:
            raise FormatError(f"{where}: symmetric is no truth value, or weights are dynamic")
        strategy, block = _shared(weights, where)
        ordered = weights.get("actorder") in _IN_ORDER
        return Scheme(own, bits, floats, symmetric, strategy, block, ordered)


def _shared(weights: dict[str, Any], where: str) -> tuple[str, tuple[int, int]]:
    """Return the strategy, and the rows and columns that share a scale."""
    strategy, group = weights.get("strategy"), weights.get("group_size")
    block = weights.get("block_structure")
    if group is not None and (type(group) is not int or not -1 <= group < _MOST_GROUP):
        raise FormatError(f"{where}: group_size is {group!r}")
    if strategy is None:  # as the package infers it
        strategy = "tensor" if group is None else "channel" if group == -1 else "group"
    if strategy not in _STRATEGIES:
        raise UnsupportedError(
            f"{where} has weights of strategy {strategy!r}; convert knows {', '.join(_STRATEGIES)}"
        )
    if strategy == "tensor":
        return strategy, (0, 0)
    if strategy == "channel":
        return strategy, (1, 0)
    if strategy == "group":
        if group is None or group < 1:
            raise FormatError(f"{where}: strategy group has group_size {group!r}")
        return strategy, (1, group)
    sizes: list[Any] = block if isinstance(block, list) else []
    if isinstance(block, str) and re.fullmatch(r"[0-9]{1,10}x[0-9]{1,10}", block):
        sizes = [int(n) for n in block.split("x")]
    if len(sizes) != 2 or not all(type(n) is int and 0 < n < _MOST_GROUP for n in sizes):
        raise FormatError(f"{where}: block_structure is {block!r}, not [rows, columns]")
    return strategy, (sizes[0], sizes[1])


def _matches(module: str, target: str) -> bool:
    """Return whether a target is a module's name, an expression that fits it, or its class."""
    if target.startswith("re:"):
        return re.match(target.removeprefix("re:"), module) is not None
    if target in _CLASSES:
        last = module.rpartition(".")[2]
        return target == ("Embedding" if "embed" in last or last == "wte" else "Linear")
    return target == module
