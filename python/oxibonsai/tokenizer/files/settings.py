"""Settings of a folder's tokenizer beside ``tokenizer.json``."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from oxibonsai.errors import FormatError
from oxibonsai.files.json_object import read_object
from oxibonsai.tokenizer.files.tokens import SPECIAL_FILES, SPECIAL_NAMES

Side = Literal["left", "right"]
# A larger model_max_length stands for none: transformers writes 1e30 there.
_LONGEST = 1 << 40


@dataclass(frozen=True)
class AddedToken:
    """A token that is never split, as the files describe it.

    Attributes:
        content: Its text.
        lstrip, rstrip: White space before, or behind, it is part of it.
        single_word: It is none inside of a word.
        normalized: It is found in the normalized text.
        special: It is no text.
    """

    content: str
    lstrip: bool = False
    rstrip: bool = False
    single_word: bool = False
    normalized: bool = False
    special: bool = True


@dataclass(frozen=True)
class TokenizerSettings:
    """The contents of ``tokenizer_config.json``, ``special_tokens_map.json`` and ``added_tokens.json``.

    Attributes:
        named: Special tokens by Hugging Face's names: ``"bos_token"`` ...; only those that there are.
        extra: Further special tokens.
        added: Tokens by their ids.
        model_max_length: Positions of the model; None: not said.
        padding_side, truncation_side: ``"left"`` or ``"right"``; None: not said.
        first, last: What goes before a text, and behind it, where ``tokenizer.json`` says nothing; None:
            nothing.
        clean_up: Whether decoding takes away spaces before punctuation.
        model_input_names: Columns of an encoding; None: not said.
    """

    named: dict[str, AddedToken] = field(default_factory=dict)
    extra: tuple[AddedToken, ...] = ()
    added: dict[int, AddedToken] = field(default_factory=dict)
    model_max_length: int | None = None
    padding_side: Side | None = None
    truncation_side: Side | None = None
    first: str | None = None
    last: str | None = None
    clean_up: bool = False
    model_input_names: list[str] | None = None


def read_settings(folder: Path) -> TokenizerSettings:
    """Return what the files of a folder say.

    Raises:
        FormatError: A value is none that it may be.
    """
    config: dict[str, Any] = {}
    for name in SPECIAL_FILES:
        if (folder / name).is_file():
            config |= read_object(folder / name)
    reader = _Reader(folder, config)
    named = {name: reader.token(name, config[name]) for name in SPECIAL_NAMES if config.get(name)}
    listed = config.get("extra_special_tokens") or config.get("additional_special_tokens") or []
    if isinstance(listed, dict):
        listed = list(listed.values())
    if not isinstance(listed, list):
        raise reader.wrong("extra_special_tokens", "a list of tokens")
    extra = tuple(reader.token("extra_special_tokens", token) for token in listed)
    length = config.get("model_max_length")
    if isinstance(length, bool) or not (length is None or isinstance(length, int | float)):
        raise reader.wrong("model_max_length", "a number")
    names = config.get("model_input_names")
    if names is not None and not (
        isinstance(names, list) and "input_ids" in names and all(isinstance(n, str) for n in names)
    ):
        raise reader.wrong("model_input_names", "a list of names with input_ids")
    known = {t.content for t in (*named.values(), *extra)}
    texts = {name: token.content for name, token in named.items()}
    adds_bos, adds_eos = (config.get(f"add_{end}_token") is True for end in ("bos", "eos"))
    is_bert = _is_bert(folder, config)
    if is_bert and names is None:
        names = ["input_ids", "token_type_ids", "attention_mask"]
    return TokenizerSettings(
        named=named,
        extra=extra,
        added=reader.added(known),
        model_max_length=None if length is None or not 0 < length < _LONGEST else int(length),
        padding_side=reader.side("padding_side"),
        truncation_side=reader.side("truncation_side"),
        first=texts.get("cls_token" if is_bert else "bos_token") if adds_bos or is_bert else None,
        last=texts.get("sep_token" if is_bert else "eos_token") if adds_eos or is_bert else None,
        clean_up=config.get("clean_up_tokenization_spaces") is True,
        model_input_names=names,
    )


def _is_bert(folder: Path, config: dict[str, Any]) -> bool:
    """Return whether transformers' class for a tokenizer is BERT's."""
    kind, file = config.get("tokenizer_class"), folder / "config.json"
    if kind is None and file.is_file():
        return read_object(file).get("model_type") == "bert"
    return kind in ("BertTokenizer", "BertTokenizerFast")


class _Reader:
    def __init__(self, folder: Path, config: dict[str, Any]) -> None:
        self._folder, self._config = folder, config

    def wrong(self, key: str, wanted: str) -> FormatError:
        return FormatError(f"{self._folder}: {key} is {self._config.get(key)!r:.80}, not {wanted}")

    def side(self, key: str) -> Side | None:
        match self._config.get(key):
            case None:
                return None
            case "left":
                return "left"
            case "right":
                return "right"
            case _:
                raise self.wrong(key, "'left' or 'right'")

    def token(self, key: str, value: Any) -> AddedToken:
        """Return a token that stands there as a text or as an object."""
        if isinstance(value, str) and value:
            return AddedToken(value)
        if not isinstance(value, dict) or not isinstance(value.get("content"), str):
            raise FormatError(f"{self._folder}: {key} is {value!r:.80}, no token")
        flags = {name: value.get(name, False) for name in _FLAGS}
        if not all(isinstance(flag, bool) for flag in flags.values()):
            raise FormatError(
                f"{self._folder}: {key} is {value!r:.200}, whose flags are no booleans"
            )
        return AddedToken(value["content"], special=value.get("special", True) is True, **flags)

    def added(self, special: set[str]) -> dict[int, AddedToken]:
        """Return the tokens that the folder adds to the vocabulary, by their ids.

        Args:
            special: Texts of special tokens.
        """
        table = self._config.get("added_tokens_decoder")
        if table is None:
            file = self._folder / "added_tokens.json"
            listed = read_object(file) if file.is_file() else {}
            table = {
                i: {"content": text, "special": text in special, "normalized": text not in special}
                for text, i in listed.items()
            }
        if not isinstance(table, dict):
            raise self.wrong("added_tokens_decoder", "an object")
        found = {}
        for key, value in table.items():
            if not str(key).isdecimal():
                raise FormatError(f"{self._folder}: {key!r:.80} is no id of an added token")
            found[int(key)] = self.token("added_tokens_decoder", value)
        return found


_FLAGS = ("lstrip", "rstrip", "single_word", "normalized")
