"""Fields of a family's config: their names outside, and how they are read and written.

The config of a family is a frozen dataclass, and that dataclass is the table of fields: each of its
fields holds a :class:`Field` in its metadata. A family inherits the fields that it shares with others and
restates those that differ; a field that is restated keeps its place, and the order of fields is that of
a file's keys.

    hidden_size: int = count("hidden_size", "embedding_length")
    hidden_act: str = fixed("silu", name="hidden_act")
    attention_bias: bool = told_by_tensors("attention_bias", "attn_q.bias", ...)
    rope: RopeConfig = field(Rope(kinds=("default", "yarn")))
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from oxibonsai.architectures.schema.sources import ConfigJson, Keys

_NONE: Any = object()  # where a field has no default

Known = Mapping[str, Any]  # the fields that were read before
GgufKeys = dict[str, tuple[Any, str]]  # values and GGUF's types by key, without the architecture
Default = Any  # a value, or a function of the fields that were read before


class Field(Protocol):
    """One field outside; whatever has these four methods can stand in a config."""

    def read_config_json(self, config: ConfigJson, known: Known) -> Any:
        """Return the value that ``config.json`` says."""
        ...

    def write_config_json(self, value: Any, c: Any) -> dict[str, Any]:
        """Return the fields of ``config.json`` that say it, of a whole config ``c``."""
        ...

    def read_gguf(self, keys: Keys, known: Known) -> Any:
        """Return the value that a file says."""
        ...

    def write_gguf(self, value: Any, c: Any) -> GgufKeys:
        """Return the keys that say it, of a whole config ``c``."""
        ...


@dataclass(frozen=True)
class Kind:
    """The kind of a field's values.

    Attributes:
        gguf: The type of its key.
        of_config_json: Checks a value of ``config.json``, of which it gets the name.
        of_gguf: Reads a key with a default, or with None where the file must have it.
    """

    gguf: str
    of_config_json: Callable[[ConfigJson, Any, str], Any]
    of_gguf: Callable[[Keys, str, Any], Any]


COUNT = Kind("u32", ConfigJson.count, lambda keys, key, default: keys.integer(key, default))
COUNT_OR_ZERO = Kind(
    "u32",
    lambda config, value, name: (
        0 if type(value) is int and value == 0 else config.count(value, name)
    ),
    lambda keys, key, default: keys.count(key, default),
)
REAL = Kind("f32", ConfigJson.number, lambda keys, key, default: keys.real(key, default))
EPSILON = Kind(
    "f32",
    lambda config, value, name: config.number(value, name, 1.0),
    lambda keys, key, default: keys.real(key, default),
)
POSITIVE_EPSILON = Kind(
    "f32", EPSILON.of_config_json, lambda keys, key, default: keys.positive(key, default)
)
POSITIVE = Kind(  # where nothing says, any default
    "f32",
    lambda config, value, name: config.number(value, name, 1e6),
    lambda keys, key, default: default if keys.get(key, default) is default else keys.positive(key),
)
FACTOR = Kind(
    "f32",
    POSITIVE.of_config_json,
    lambda keys, key, default: keys.positive(key, default),
)
FLAG = Kind("bool", ConfigJson.flag, lambda keys, key, default: keys.flag(key, default))


@dataclass(frozen=True)
class Stated:
    """A number or truth value that both sides state, or one of them.

    Attributes:
        kind: What values may be.
        names: In ``config.json``, the first of which is written; none: it has no field for it.
        key: Of the file, without the architecture; empty: it has none.
        default: Where ``config.json`` says nothing, or null.
        key_default: Where a file says nothing; without one the file must have the key.
        unsaid: Whether a file leaves out what its default says.
        none_is: A value that ``config.json`` writes as null.
        also_written: Further names under which ``config.json`` gets it.
    """

    kind: Kind
    names: tuple[str, ...]
    key: str
    default: Default = _NONE
    key_default: Default = None
    unsaid: bool = False
    none_is: Any = _NONE
    also_written: tuple[str, ...] = ()

    def read_config_json(self, config: ConfigJson, known: Known) -> Any:
        """Return the value that ``config.json`` says."""
        value = config.get(*self.names)
        if value is None and self.default is not _NONE:
            return _of_known(self.default, known)
        return self.kind.of_config_json(config, value, self.names[0])

    def write_config_json(self, value: Any, c: Any) -> dict[str, Any]:
        """Return the fields of ``config.json`` that say it."""
        told = None if value == self.none_is else value
        return dict.fromkeys((*self.names[:1], *self.also_written), told)

    def read_gguf(self, keys: Keys, known: Known) -> Any:
        """Return the value that a file says."""
        default = _of_known(self.key_default, known)
        return self.kind.of_gguf(keys, self.key, default) if self.key else default

    def write_gguf(self, value: Any, c: Any) -> GgufKeys:
        """Return the key that says it."""
        if not self.key or (self.unsaid and value == _of_known(self.key_default, vars(c))):
            return {}
        return {self.key: (value, self.kind.gguf)}


def _of_known(default: Default, known: Known) -> Any:
    return default(known) if callable(default) else default


@dataclass(frozen=True)
class Fixed:
    """A field with one value in all models of a family, or that no folder may state.

    Attributes:
        value: Read and written.
        also: Other values of ``config.json`` that mean the same.
        name: In ``config.json``; empty: it has none.
        key: Of the file; empty: it has none.
        kind: GGUF's type.
        written: Whether ``config.json`` gets it.
        required: Whether ``config.json`` must say it, because transformers' default is another value.
    """

    value: Any
    also: tuple[Any, ...] = ()
    name: str = ""
    key: str = ""
    kind: str = ""
    written: bool = True
    required: bool = False

    def read_config_json(self, config: ConfigJson, known: Known) -> Any:
        """Return the value; UnsupportedError where ``config.json`` says another one."""
        if not self.name or self.name not in config.fields:
            if self.required:
                raise config.unsupported(f"{self.name} is missing; known is {self.value!r}")
            return self.value
        stated, meant = config.fields[self.name], (self.value, *self.also)
        if not any(_same(stated, value) for value in meant):
            raise config.unsupported(
                f"{self.name} is {stated!r}; known are {', '.join(map(repr, meant))}"
            )
        return self.value

    def write_config_json(self, value: Any, c: Any) -> dict[str, Any]:
        """Return the field of ``config.json``, if it is written."""
        return {self.name: value} if self.name and self.written else {}

    def read_gguf(self, keys: Keys, known: Known) -> Any:
        """Return the value; UnsupportedError where a file says another one."""
        if self.key and not _same(stated := keys.get(self.key, self.value), self.value):
            raise keys.unsupported(f"{self.key} is {stated!r}; known is {self.value!r}")
        return self.value

    def write_gguf(self, value: Any, c: Any) -> GgufKeys:
        """Return the key, if there is one."""
        return {self.key: (value, self.kind)} if self.key else {}


def _same(a: object, b: object) -> bool:
    """Return whether two values are equal and of one type: 0 is not false, and 1 is not true."""
    return type(a) is type(b) and a == b


@dataclass(frozen=True)
class ToldByTensors:
    """A truth value of ``config.json`` that a file shows by its tensors.

    Attributes:
        name: In ``config.json``.
        tensors: Names, any of which makes it true.
        absent: Whether it is true where none of them is there, instead.
        default: Where ``config.json`` says nothing.
    """

    name: str
    tensors: tuple[str, ...]
    absent: bool = False
    default: bool = False

    def read_config_json(self, config: ConfigJson, known: Known) -> bool:
        """Return the value that ``config.json`` says."""
        stated = config.get(self.name)
        return self.default if stated is None else config.flag(stated, self.name)

    def write_config_json(self, value: Any, c: Any) -> dict[str, Any]:
        """Return the field of ``config.json``."""
        return {self.name: value}

    def read_gguf(self, keys: Keys, known: Known) -> bool:
        """Return the value that the file's tensors tell."""
        return any(name in keys.tensor_names for name in self.tensors) is not self.absent

    def write_gguf(self, value: Any, c: Any) -> GgufKeys:
        """Return no key."""
        return {}


@dataclass(frozen=True)
class Implied:
    """A field that readers of a file derive from others, so that no key can state another value.

    Attributes:
        name: In ``config.json``, which may state the value.
        value: Of the fields that were read before.
    """

    name: str
    value: Callable[[Known], Any]

    def read_config_json(self, config: ConfigJson, known: Known) -> Any:
        """Return the value; UnsupportedError where ``config.json`` says another one."""
        usual = self.value(known)
        if (stated := config.fields.get(self.name, usual)) != usual:
            raise config.unsupported(
                f"{self.name} is {stated!r}; files have no key for it, and their readers take {usual!r}"
            )
        return usual

    def write_config_json(self, value: Any, c: Any) -> dict[str, Any]:
        """Return the field of ``config.json``."""
        return {self.name: value}

    def read_gguf(self, keys: Keys, known: Known) -> Any:
        """Return the value."""
        return self.value(known)

    def write_gguf(self, value: Any, c: Any) -> GgufKeys:
        """Return no key."""
        return {}


@dataclass(frozen=True)
class Word:
    """A word, one of those known.

    Attributes:
        name: In ``config.json``.
        key: Of the file.
        words: Those of a file by those of ``config.json``; the first is the one where nothing says.
    """

    name: str
    key: str
    words: Mapping[str, str]

    def read_config_json(self, config: ConfigJson, known: Known) -> str:
        """Return the word that ``config.json`` says."""
        stated = config.fields.get(self.name, next(iter(self.words)))
        if not isinstance(stated, str) or stated not in self.words:
            raise config.unsupported(
                f"{self.name} is {stated!r}; known are {', '.join(map(repr, self.words))}"
            )
        return self.words[stated]

    def write_config_json(self, value: str, c: Any) -> dict[str, Any]:
        """Return the field of ``config.json``."""
        return {self.name: value}

    def read_gguf(self, keys: Keys, known: Known) -> str:
        """Return the word that a file says."""
        usual = next(iter(self.words.values()))
        return keys.text(self.key, usual, sorted(set(self.words.values())))

    def write_gguf(self, value: str, c: Any) -> GgufKeys:
        """Return the key."""
        return {self.key: (value, "str")}


class Derived:
    """Base of a field that is not written; one that is, to one side, has a method of its own for it."""

    def write_config_json(self, value: Any, c: Any) -> dict[str, Any]:
        """Return no field."""
        return {}

    def write_gguf(self, value: Any, c: Any) -> GgufKeys:
        """Return no key."""
        return {}


@dataclass(frozen=True)
class OfFolder(Derived):
    """A value of folders, which a file needs not have: it is written as a folder with ``usual``.

    Attributes:
        read: Returns the value that ``config.json`` says.
        usual: Of files.
    """

    read: Callable[[ConfigJson], Any]
    usual: Any

    def read_config_json(self, config: ConfigJson, known: Known) -> Any:
        """Return the value that ``config.json`` says."""
        return self.read(config)

    def read_gguf(self, keys: Keys, known: Known) -> Any:
        """Return the value of all files."""
        return self.usual


@dataclass(frozen=True)
class Checked:
    """A field whose value must suit those that were read before.

    Attributes:
        described: The field.
        problem: Returns what is wrong with a value beside the others; empty: nothing is.
    """

    described: Field
    problem: Callable[[Known, Any], str]

    def read_config_json(self, config: ConfigJson, known: Known) -> Any:
        """Return the value; FormatError where it does not suit the others."""
        value = self.described.read_config_json(config, known)
        if problem := self.problem(known, value):
            raise config.fail(problem)
        return value

    def write_config_json(self, value: Any, c: Any) -> dict[str, Any]:
        """Return the fields of ``config.json``."""
        return self.described.write_config_json(value, c)

    def read_gguf(self, keys: Keys, known: Known) -> Any:
        """Return the value; FormatError where it does not suit the others."""
        value = self.described.read_gguf(keys, known)
        if problem := self.problem(known, value):
            raise keys.fail(problem)
        return value

    def write_gguf(self, value: Any, c: Any) -> GgufKeys:
        """Return the keys."""
        return self.described.write_gguf(value, c)


@dataclass(frozen=True)
class Constant(Derived):
    """A value that all models of a family share without stating it."""

    value: Any

    def read_config_json(self, config: ConfigJson, known: Known) -> Any:
        """Return the value."""
        return self.value

    def read_gguf(self, keys: Keys, known: Known) -> Any:
        """Return the value."""
        return self.value


@dataclass(frozen=True)
class Inside:
    """A field that ``config.json`` has in one of its objects.

    Attributes:
        name: Of the object.
        described: The field in it.
    """

    name: str
    described: Field

    def read_config_json(self, config: ConfigJson, known: Known) -> Any:
        """Return the value that the object says; FormatError where there is none."""
        inner = config.fields.get(self.name)
        if not isinstance(inner, dict):
            raise config.fail(f"{self.name} is no object")
        return self.described.read_config_json(ConfigJson(inner, config.path), known)

    def write_config_json(self, value: Any, c: Any) -> dict[str, Any]:
        """Return the object with this field alone."""
        return {self.name: self.described.write_config_json(value, c)}

    def read_gguf(self, keys: Keys, known: Known) -> Any:
        """Return the value that a file says."""
        return self.described.read_gguf(keys, known)

    def write_gguf(self, value: Any, c: Any) -> GgufKeys:
        """Return the keys that say it."""
        return self.described.write_gguf(value, c)


def field(described: Field, *, compare: bool = True) -> Any:
    """Return a dataclass field that is described so; any type, for the annotation is the field's own.

    Args:
        described: Reads and writes it.
        compare: Whether models differ by it.
    """
    return dataclasses.field(metadata={"field": described}, compare=compare)


def count(names: str | tuple[str, ...], key: str = "", **more: Any) -> Any:
    """Return a field that is a positive count; further arguments are those of :class:`Stated`."""
    return field(Stated(COUNT, _tuple(names), key, **more))


def count_or_zero(names: str | tuple[str, ...], key: str = "", **more: Any) -> Any:
    """Return a field that is a count, which may be zero; see :class:`Stated`."""
    return field(Stated(COUNT_OR_ZERO, _tuple(names), key, **{"key_default": 0, **more}))


def real(names: str | tuple[str, ...], key: str = "", kind: Kind = REAL, **more: Any) -> Any:
    """Return a field that is a finite number; see :class:`Stated`."""
    return field(Stated(kind, _tuple(names), key, **more))


def flag(names: str | tuple[str, ...], key: str = "", **more: Any) -> Any:
    """Return a field that is true or false; see :class:`Stated`."""
    return field(Stated(FLAG, _tuple(names), key, **more))


def fixed(value: Any, *also: Any, **more: Any) -> Any:
    """Return a field of one known value; see :class:`Fixed`."""
    return field(Fixed(value, also, **more))


def constant(value: Any) -> Any:
    """Return a field that nothing outside says."""
    return field(Constant(value))


def told_by_tensors(name: str, *tensors: str, absent: bool = False, default: bool = False) -> Any:
    """Return a field that a file shows by its tensors; see :class:`ToldByTensors`."""
    return field(ToldByTensors(name, tensors, absent, default))


def biased(name: str, *parts: str, default: bool = False) -> Any:
    """Return a field that says whether parts of layers, by GGUF's names, have biases."""
    return told_by_tensors(name, *(f"blk.0.{part}.bias" for part in parts), default=default)


def _tuple(names: str | tuple[str, ...]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else names
