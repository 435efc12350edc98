"""Tokenizers as a ``tokenizer.json`` describes them, run by the `tokenizers` library."""

from __future__ import annotations

import base64
import binascii
import json
import re
import secrets
import string
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from oxibonsai.errors import FormatError, RequestError
from oxibonsai.tokenizer.byte_level import BYTE_OF
from oxibonsai.tokenizer.charsmap import KEY as CHARSMAP_KEY
from oxibonsai.tokenizer.charsmap import read_charsmap
from oxibonsai.tokenizer.composition import shrinkage
from oxibonsai.tokenizer.files.byte_level import pre_tokenizer_name
from oxibonsai.tokenizer.files.tokenizer_json import SPACE, kind_of, steps
from oxibonsai.tokenizer.merges import merge
from oxibonsai.tokenizer.offsets import Offset
from oxibonsai.tokenizer.pieces import pieces
from oxibonsai.tokenizer.pre_tokenizers import PRE_TOKENIZERS
from oxibonsai.tokenizer.spm import joined_to, token_border
from oxibonsai.tokenizer.tokenizer import Frame, Tokenizer, check_text
from oxibonsai.tokenizer.vocabulary import Vocabulary
from oxibonsai.tokenizer.wordpiece import BORDER as WORDPIECE_BORDER

if TYPE_CHECKING:
    from tokenizers import Tokenizer as FastTokenizer

_NEVER = re.compile(r"(?!)")
# Places where a long text may be cut if the pre-tokenizer has a border there: a text with such a place,
# its index, and what matches there.
_PLACES = (
    ("ab cd", 2, r"(?<=[A-Za-z])(?= [A-Za-z])"),
    ("ab\ncd", 2, r"(?<=[A-Za-z])(?=\n)"),
    ("\u4e00\u3002\u4e00", 1, r"(?<=[\u3041-\u3096\u30a1-\u30fa\u4e00-\u9fa5])(?=[\u3001\u3002])"),
)
# Normalizers for which nothing that stands behind a letter and a space depends on what stands before.
_LOCAL = frozenset({"NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Strip", "Prepend"})
_MARKS_SPACES = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
_MERGES_SPACES = [
    {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": content}
    for content in (" ", SPACE)
]


class JsonTokenizer(Tokenizer):
    """A tokenizer that the `tokenizers` library runs.

    The library finds the added tokens, too, and what frames a text is what the post-processor adds.

    Args:
        vocabulary: Its tokens.
        algorithm: What the library does.
    """

    def __init__(self, vocabulary: Vocabulary, algorithm: JsonAlgorithm) -> None:
        super().__init__(vocabulary, algorithm)
        self._algorithm: JsonAlgorithm = algorithm

    def frame(self, *, pair: bool = False) -> Frame:
        """Return the special tokens around one text, or around two.

        Args:
            pair: Two texts.
        """
        return self._algorithm.frames[pair]

    def _ids(self, text: str, *, parse_special: bool, bounded: bool) -> Iterator[Sequence[int]]:
        yield from self._algorithm.ids(text, parse_special=parse_special, bounded=bounded)

    def encode_with_offsets(
        self, text: str, *, parse_special: bool = False
    ) -> tuple[list[int], list[Offset]]:
        """Return the ids of a text without what frames it, and where each stands in the text.

        Args:
            text: Any text.
            parse_special: As in :meth:`encode`.
        """
        check_text(text)
        return self._algorithm.ids_with_offsets(text, parse_special=parse_special)

    def decode(self, ids: Iterable[int], *, skip_special: bool = True) -> str:
        """Return the text of ids, as the decoder of the file has it."""
        listed = list(ids)
        for token in listed:
            self._check_id(token)
        skipped = self.special_ids if skip_special else frozenset[int]()
        return self._algorithm.decode([i for i in listed if i not in skipped])


class JsonAlgorithm:
    """The algorithm of the library's tokenizer, and the bytes of its tokens.

    Args:
        fast: The library's tokenizer.
        texts: Of its tokens by id.
        document: The ``tokenizer.json`` that it is made of.
        path: Of that file, for errors.

    Attributes:
        frames: The special tokens around one text, and around two.
    """

    composes = False  # the library knows the offsets of what it composes

    def __init__(
        self, fast: FastTokenizer, texts: list[str], document: dict[str, Any], path: Path
    ) -> None:
        self._fast, self._path, self._texts = fast, path, texts
        self._numbers = list(range(len(texts)))
        self._document = {key: part for key, part in document.items() if key != "model"}
        decoders = [kind_of(step) for step in steps(document.get("decoder"), "decoders")]
        self._is_byte_level = "ByteLevel" in decoders
        model = document["model"]
        with library_errors(path):
            self._text_only = self._make_text_only(model)
            self.frames = (self._frame(pair=False), self._frame(pair=True))
            self.add_space_prefix = self._drops_first_space()
        self._splits = pre_tokenizer_name(document) if model.get("type") == "BPE" else None
        self._normalizers = steps(document.get("normalizer"), "normalizers")
        self.longest_piece = max(len(t.encode()) for t in texts)
        self.lost_bytes: bytes | None = None
        kinds = {kind_of(step) for step in self._normalizers}
        if self._is_byte_level and self._splits is not None and kinds <= {"NFC"}:
            known = set(texts)
            lost = bytes(b for c, b in BYTE_OF.items() if c not in known)
            self.longest_piece *= shrinkage(bool(kinds))
            self.lost_bytes = None if (lost and kinds) or self._strips else lost

    def encode_text(self, text: str, *, after_special: bool, bounded: bool) -> Iterator[list[int]]:
        """Yield the ids of a text in which no special token is looked for, piece by piece.

        Args:
            text: Any text.
            after_special: Makes no difference here.
            bounded: See :func:`oxibonsai.tokenizer.pieces.pieces`.
        """
        del after_special
        yield from self.ids(text, parse_special=False, bounded=bounded)

    def ids(self, text: str, *, parse_special: bool, bounded: bool) -> Iterator[list[int]]:
        """Yield the ids of a text, piece by piece.

        Args:
            text: Any text.
            parse_special: Let the text of a special token become that token.
            bounded: See :func:`oxibonsai.tokenizer.pieces.pieces`.
        """
        fast = self._fast if parse_special else self._text_only
        for i, piece in enumerate(pieces(text, lambda: self._border, bounded=bounded)):
            with library_errors(self._path):
                # Where each text gets a space in front, it takes the place of the piece's own.
                own = piece[1:] if i > 0 and self._prepends else piece
                yield merge(fast, own, self._numbers)

    def ids_with_offsets(self, text: str, *, parse_special: bool) -> tuple[list[int], list[Offset]]:
        """Return the ids of a text, and where each stands in it."""
        fast = self._fast if parse_special else self._text_only
        with library_errors(self._path):
            found = fast.encode(text, add_special_tokens=False)
        return found.ids, found.offsets

    def decode(self, ids: list[int]) -> str:
        """Return the text of ids."""
        with library_errors(self._path):
            text: str = self._fast.decode(ids, skip_special_tokens=False)
        return text

    def piece_bytes(self, text: str) -> bytes:
        """Return the bytes that a token stands for inside of a text."""
        if self._is_byte_level:
            try:
                return bytes(BYTE_OF[c] for c in text)
            except KeyError:
                return text.encode()
        # Between two others, since some decoders do otherwise at the ends.
        alone, two = self._decoded("a"), self._decoded("a", "a")
        between = self._decoded("a", text, "a")
        return between[len(alone) : len(between) - len(two) + len(alone)].encode()

    def _decoded(self, *tokens: str) -> str:
        decoder = self._fast.decoder
        text: str = " ".join(tokens) if decoder is None else decoder.decode(list(tokens))
        return text

    def _drops_first_space(self) -> bool:
        """Return whether the space that a token begins with is left out at the beginning of a text."""
        for token in (f"{SPACE}a", "a"):
            inside = self.piece_bytes(token).decode()
            if inside.startswith(" ") and self._decoded(token) == inside[1:]:
                return True
        return False

    def _make_text_only(self, model: dict[str, Any]) -> FastTokenizer:
        """Return the tokenizer for which the text of a special token is a text.

        Args:
            model: That of the ``tokenizer.json``.
        """
        from tokenizers import Tokenizer as FastTokenizer

        added = self._fast.get_added_tokens_decoder()
        special = {token.content for token in added.values() if token.special}
        fast = FastTokenizer(self._fast.model)
        if hidden := _reachable(model, special):
            renamed = {"version": "1.0", "model": _without(model, hidden)}
            fast = FastTokenizer(FastTokenizer.from_str(json.dumps(renamed)).model)
        for part in ("normalizer", "pre_tokenizer", "post_processor"):
            if getattr(self._fast, part) is not None:
                setattr(fast, part, getattr(self._fast, part))
        # Special tokens that stand in no vocabulary of the model keep their ids by their order.
        fast.add_tokens([added[i] for i in sorted(added) if added[i].content not in hidden])
        fast.encode_special_tokens = True
        return fast

    def _frame(self, *, pair: bool) -> Frame:
        """Return what the post-processor puts around one text, or around two."""
        texts = ("a", "0", *(t for t in self._texts[:1000] if t))
        some = next((t for t in texts if self._fast.encode(t, add_special_tokens=False).ids), None)
        if some is None:
            raise FormatError(f"{self._path}: the tokenizer gives no token for any text")
        found = self._fast.encode(some, some if pair else None, add_special_tokens=True)
        frame: Frame = []
        before: int | None = None
        table = zip(found.ids, found.sequence_ids, found.type_ids, strict=True)
        for token, sequence, kind in table:
            if sequence is None:
                frame.append((token, kind))
            elif sequence != before:
                frame.append((None, kind))
            before = sequence
        return frame

    @cached_property
    def _strips(self) -> bool:
        """Whether an added token depends on, or takes, what stands next to it."""
        added = self._fast.get_added_tokens_decoder().values()
        return any(t.lstrip or t.rstrip or t.single_word for t in added)

    @cached_property
    def _prepends(self) -> bool:
        """Whether a text gets a space in front."""
        return any(kind_of(step) == "Prepend" for step in self._normalizers) or any(
            kind_of(step) == "Metaspace"
            and step.get("prepend_scheme", "always") != "never"
            and step.get("add_prefix_space", True) is True
            for step in self._pre_tokenizers
        )

    @property
    def _pre_tokenizers(self) -> list[Any]:
        return steps(self._document.get("pre_tokenizer"), "pretokenizers")

    @cached_property
    def _border(self) -> re.Pattern[str]:
        """Return the pattern of places to cut a long text; it matches nowhere in an unknown tokenizer."""
        kinds = {kind_of(step) for step in self._pre_tokenizers}
        normalizers = {kind_of(step) for step in self._normalizers}
        if self._strips:
            return _NEVER
        if self._splits is not None and normalizers <= {"NFC"}:
            return self._places(PRE_TOKENIZERS[self._splits].border)
        if kinds == {"BertPreTokenizer"} and normalizers <= {"BertNormalizer"}:
            return self._places(WORDPIECE_BORDER)
        if self._normalizers == [_MARKS_SPACES] and not kinds:
            return token_border(self._texts, SPACE)
        marks = "Metaspace" in kinds or _MARKS_SPACES in self._normalizers
        if not marks or not kinds <= {"Metaspace", "WhitespaceSplit"} or not self._is_local():
            return _NEVER
        texts = set(self._texts)
        letters = sorted((texts & {*string.ascii_letters}) - joined_to(SPACE, texts))
        either = "".join(letters)
        return re.compile(f"(?<=[{either}])(?= [{either}])") if letters else _NEVER

    def _places(self, border: re.Pattern[str]) -> re.Pattern[str]:
        """Return those of ``_PLACES`` that a border is at and that no added token holds."""
        added = [t.content for t in self._fast.get_added_tokens_decoder().values()]
        found = []
        for sample, at, place in _PLACES:
            if border.match(sample, at) and not any(re.search(place, t) for t in added):
                found.append(place)
        return re.compile("|".join(found)) if found else _NEVER

    def _is_local(self) -> bool:
        """Return whether no normalizer looks beyond a letter and a space."""
        for step in self._normalizers:
            if kind_of(step) == "Precompiled":
                try:
                    table = base64.b64decode(step.get("precompiled_charsmap") or "", validate=True)
                except (binascii.Error, TypeError, ValueError):
                    return False
                stored = np.frombuffer(table, np.uint8)
                charsmap = read_charsmap({CHARSMAP_KEY: stored}) if table else None
                if charsmap is not None and charsmap.replaces_inner_spaces:
                    return False
            elif step not in (_MARKS_SPACES, *_MERGES_SPACES) and kind_of(step) not in _LOCAL:
                return False
        return True


def _reachable(model: dict[str, Any], special: set[str]) -> set[str]:
    """Return the special tokens that the model might make of a text.

    Args:
        model: That of the ``tokenizer.json``.
        special: Texts of all special tokens.
    """
    vocabulary = model.get("vocab", ())
    known = vocabulary if isinstance(vocabulary, dict) else {piece for piece, _ in vocabulary}
    found = special.intersection(known)
    if found and model.get("type") == "BPE" and model.get("ignore_merges") is not True:
        merges = model.get("merges", ())
        found &= {m.replace(" ", "", 1) if isinstance(m, str) else "".join(m) for m in merges}
    unknown = model.get("unk_id")
    if isinstance(vocabulary, list) and isinstance(unknown, int):
        return found - {vocabulary[unknown][0]}
    return found - {model.get("unk_token")}


def _without(model: dict[str, Any], hidden: set[str]) -> dict[str, Any]:
    """Return a model in whose vocabulary other texts stand for some tokens.

    Args:
        model: That of the ``tokenizer.json``.
        hidden: The tokens; no text holds what stands for them, which nobody knows.
    """
    secret = secrets.token_hex()

    def name(text: str) -> str:
        return f"\U0010fffe{secret}{text}" if text in hidden else text

    vocabulary = model["vocab"]
    if isinstance(vocabulary, list):
        return {**model, "vocab": [[name(piece), score] for piece, score in vocabulary]}
    merges = [
        merge
        for merge in model.get("merges", [])
        if (merge.replace(" ", "", 1) if isinstance(merge, str) else "".join(merge)) not in hidden
    ]
    others = {"merges": merges} if "merges" in model else {}
    return {**model, "vocab": {name(text): i for text, i in vocabulary.items()}, **others}


@contextmanager
def library_errors(path: Path) -> Iterator[None]:
    """Raise what the library says of a file as `FormatError`.

    Args:
        path: The file.
    """
    try:
        yield
    except (FormatError, RequestError):
        raise
    except Exception as e:
        raise FormatError(f"{path}: {e}") from e
    except BaseException as e:
        if type(e).__name__ != "PanicException":  # of Rust, whose type has no public name
            raise
        raise FormatError(f"{path} is damaged: the tokenizers library gives up on it: {e}") from e
