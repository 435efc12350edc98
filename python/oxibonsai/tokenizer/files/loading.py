"""From a folder's files to its tokenizer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from oxibonsai.errors import FormatError, UnsupportedError
from oxibonsai.files.home_paths import with_home
from oxibonsai.files.json_object import read_object
from oxibonsai.tokenizer.files import plamo, rwkv, sentencepiece
from oxibonsai.tokenizer.files.chat_templates import template_files
from oxibonsai.tokenizer.files.json_tokenizer import JsonAlgorithm, JsonTokenizer, library_errors
from oxibonsai.tokenizer.files.settings import AddedToken, TokenizerSettings, read_settings
from oxibonsai.tokenizer.files.tokenizer_json import kind_of, steps
from oxibonsai.tokenizer.files.tokens import (
    SPECIAL_FILES,
    SPECIAL_NAMES,
    added_token_objects,
    frame_keys,
    generation_ends,
    placed_tokens,
)
from oxibonsai.tokenizer.files.vocabulary_keys import encoder_vocabulary_keys, vocabulary_keys
from oxibonsai.tokenizer.files.wordpiece import is_japanese
from oxibonsai.tokenizer.spm import byte_of
from oxibonsai.tokenizer.tokenizer import Tokenizer
from oxibonsai.tokenizer.vocabulary import (
    BYTE,
    CONTROL,
    NORMAL,
    UNKNOWN,
    USER_DEFINED,
    Vocabulary,
    read_vocabulary,
)

if TYPE_CHECKING:
    from tokenizers import Tokenizer as FastTokenizer

_FILE = "tokenizer.json"
_MOST_BYTES = 1 << 28  # of a tokenizer.json; the largest ones have a fifth of it
_MOST_UNUSED = 1 << 20  # ids without a token
_DTYPES = {"arr[i32]": np.int32, "arr[f32]": np.float32, "arr[u8]": np.uint8}  # of GGUF's lists
_MODELS = ("BPE", "Unigram", "WordPiece", "WordLevel")


def holds_tokenizer(folder: Path) -> bool:
    """Return whether a folder has files that :func:`open_tokenizer` makes a tokenizer of."""
    own = (_FILE, sentencepiece.FILE, rwkv.FILE, plamo.FILE)
    return any((folder / name).is_file() for name in own) or (
        folder.is_dir() and is_japanese(folder)
    )


def tokenizer_folder(source: str | None) -> Path | None:
    """Return the local folder with a tokenizer and no GGUF file that a source names; None for others.

    Args:
        source: A path, or the name of anything else that a model is loaded from.
    """
    folder = None if source is None or ":" in source else with_home(source)
    if folder is None or not holds_tokenizer(folder) or any(folder.glob("*.gguf")):
        return None
    return folder


def open_tokenizer(folder: Path, vocab_size: int | None = None) -> Tokenizer:
    """Return the tokenizer that a folder holds, with or without a model.

    Args:
        folder: With ``tokenizer.json``, which is done as it says, or with the file of another
            vocabulary: ``tokenizer.model``, RWKV's, PLaMo 2's, Japanese BERT's ``vocab.txt``.
        vocab_size: Rows of the model's table; None: as ``config.json`` says, or as many as there are
            tokens.

    Raises:
        FormatError: A file is missing or damaged, or an id lies outside the model's table.
        UnsupportedError: It asks for what this version does not implement.
    """
    return open_with_settings(folder, vocab_size)[0]


def open_with_settings(
    folder: Path, vocab_size: int | None = None
) -> tuple[Tokenizer, TokenizerSettings]:
    """Return the tokenizer of a folder as :func:`open_tokenizer`, and what the other files say of it."""
    if vocab_size is None:
        vocab_size = _stated_rows(folder)
    settings = read_settings(folder)
    if not (folder / _FILE).is_file():
        return _open_keys(folder, vocab_size), settings
    path = folder / _FILE
    if path.stat().st_size > _MOST_BYTES:
        raise FormatError(f"{path} has {path.stat().st_size} bytes: no vocabulary is as large")
    document = read_object(path)
    _check_model(path, document)
    if document["model"].get("type") == "BPE":  # transformers leaves its texts alone, too
        settings = replace(settings, clean_up=False)
    return _open_json(folder, document, settings, vocab_size), settings


def read_tokenizer_files(folder: Path) -> dict[str, bytes]:
    """Return the contents of a folder's tokenizer files by their paths in it."""
    own = (sentencepiece.FILE, rwkv.FILE, plamo.FILE, "vocab.txt", "added_tokens.json")
    names = [
        _FILE,
        *own,
        *SPECIAL_FILES,
        *(str(p.relative_to(folder)) for p in template_files(folder)),
    ]
    return {name: (folder / name).read_bytes() for name in names if (folder / name).is_file()}


def _stated_rows(folder: Path) -> int | None:
    """Return ``vocab_size`` of a model's ``config.json``; None where it does not say it."""
    config = folder / "config.json"
    rows = read_object(config).get("vocab_size") if config.is_file() else None
    if rows is not None and (isinstance(rows, bool) or not isinstance(rows, int) or rows <= 0):
        raise FormatError(f"{config}: vocab_size is {rows!r:.80}, not a positive count")
    return rows


def _open_keys(folder: Path, vocab_size: int | None) -> Tokenizer:
    """Return the tokenizer of a folder that has another file than ``tokenizer.json``."""
    if vocab_size is None:
        raise FormatError(f"{folder} has no {_FILE}, and no config.json with a vocab_size")
    read = encoder_vocabulary_keys if is_japanese(folder) else vocabulary_keys
    keys = read(folder, vocab_size)
    if keys["tokenizer.ggml.model"][0] == "no_vocab":
        raise FormatError(f"{folder} has no {_FILE} and no other vocabulary")
    return Tokenizer.from_gguf(
        {
            key: np.array(value, _DTYPES[kind]) if kind in _DTYPES else value
            for key, (value, kind) in keys.items()
        }
    )


def _open_json(
    folder: Path, document: dict[str, Any], settings: TokenizerSettings, vocab_size: int | None
) -> JsonTokenizer:
    path = folder / _FILE
    fast = _fast_tokenizer(folder, document, settings)
    vocabulary = _vocabulary(folder, fast, document, settings, vocab_size)
    algorithm = JsonAlgorithm(fast, vocabulary.texts, document, path)
    frame = [token for token, _ in algorithm.frames[0]]
    framed = replace(
        vocabulary,
        add_bos=frame[0] is not None and frame[0] == vocabulary.bos_id,
        add_eos=frame[-1] is not None and frame[-1] == vocabulary.eos_id,
    )
    return JsonTokenizer(framed, algorithm)


def _check_model(path: Path, document: dict[str, Any]) -> None:
    model = document.get("model")
    if not isinstance(model, dict):
        raise FormatError(f"{path}: model is {model!r:.80}, not an object")
    kind = model.get("type")
    if kind is not None and kind not in _MODELS:  # older files name none
        raise UnsupportedError(f"{path}: the model is {kind!r:.80}; known are {', '.join(_MODELS)}")
    if model.get("dropout"):
        raise UnsupportedError(
            f"{path}: dropout is {model['dropout']!r}: a text would have other tokens each time"
        )


def _fast_tokenizer(
    folder: Path, document: dict[str, Any], settings: TokenizerSettings
) -> FastTokenizer:
    """Return the library's tokenizer, with the tokens that the other files add."""
    from tokenizers import AddedToken as FastToken
    from tokenizers import Tokenizer as FastTokenizer

    path = folder / _FILE
    with library_errors(path):
        fast = FastTokenizer.from_file(str(path))
    fast.no_truncation()
    fast.no_padding()
    for stated in added_token_objects(folder, document):
        _check_place(path, fast, stated["content"], stated.get("id"))

    def added(token: AddedToken) -> FastToken:
        return FastToken(
            token.content,
            lstrip=token.lstrip,
            rstrip=token.rstrip,
            single_word=token.single_word,
            normalized=token.normalized,
            special=token.special,
        )

    def add(tokens: Iterable[AddedToken]) -> None:
        """Add what is not there yet; the flags of what is there count."""
        for token in tokens:
            known = {t.content: t for t in fast.get_added_tokens_decoder().values()}.get(
                token.content
            )
            if known is None:
                fast.add_tokens([added(token)])
            elif token.special and not known.special:
                known.special = True
                fast.add_tokens([known])

    for i, token in sorted(settings.added.items()):
        add([token])
        _check_place(folder, fast, token.content, i)
    add([*settings.named.values(), *settings.extra])
    if fast.num_special_tokens_to_add(False) == 0 and (settings.first or settings.last):
        _add_frame(fast, settings)
    return fast


def _add_frame(fast: FastTokenizer, settings: TokenizerSettings) -> None:
    """Put tokens before and behind each text, as the settings say."""
    from tokenizers.processors import Sequence, TemplateProcessing

    before, behind = settings.first, settings.last
    # Where both ends are marked, a pair has one beginning.
    again = None if before and behind else before
    first = [t for t in (before, "$A", behind) if t is not None]
    second = [f"{t}:1" for t in (again, "$B", behind) if t is not None]
    used = [t for t in (before, behind) if t is not None]
    frame = TemplateProcessing(
        single=first,
        pair=[*first, *second],
        special_tokens=[(t, fast.token_to_id(t)) for t in dict.fromkeys(used)],
    )
    own = fast.post_processor
    fast.post_processor = frame if own is None else Sequence([own, frame])


def _check_place(where: Path, fast: FastTokenizer, text: str, stated: Any) -> None:
    """Raise `FormatError` if the library gives an added token another id than the file does."""
    found = fast.token_to_id(text)
    if found != stated:
        raise FormatError(
            f"{where}: the added token {text!r:.80} has the id {stated!r:.80}, but would get {found}: "
            "added tokens must be those of the model or follow it without a gap"
        )


def _vocabulary(
    folder: Path,
    fast: FastTokenizer,
    document: dict[str, Any],
    settings: TokenizerSettings,
    vocab_size: int | None,
) -> Vocabulary:
    """Return the tokens by id, and the ids of the special ones."""
    ids = fast.get_vocab(with_added_tokens=True)
    if not ids:
        raise FormatError(f"{folder / _FILE}: the vocabulary is empty")
    size = max(ids.values()) + 1
    if size > len(ids) + _MOST_UNUSED:
        raise FormatError(
            f"{folder / _FILE}: an id is {size - 1}, but there are only {len(ids)} tokens"
        )
    added = fast.get_added_tokens_decoder()
    decoders = [kind_of(step) for step in steps(document.get("decoder"), "decoders")]
    unknown = _unknown(document["model"], settings)

    def kind(text: str, i: int) -> int:
        if text == unknown:
            return UNKNOWN if i not in added or not added[i].special else CONTROL
        if i in added:
            return CONTROL if added[i].special else USER_DEFINED
        return BYTE if "ByteFallback" in decoders and byte_of(text) is not None else NORMAL

    rows = size if vocab_size is None else vocab_size
    entries = [(text, i, kind(text, i)) for text, i in ids.items()]
    texts, types = placed_tokens(str(folder / _FILE), entries, rows)
    keys = frame_keys(folder, document, ids, rows)
    values: dict[str, Any] = {key: value for key, (value, _) in keys.items()}
    values["tokenizer.ggml.tokens"] = texts
    values["tokenizer.ggml.token_type"] = np.array(types, np.int32)
    if unknown in ids:
        values.setdefault(f"tokenizer.ggml.{SPECIAL_NAMES['unk_token']}_token_id", ids[unknown])
    vocabulary = read_vocabulary(values, add_bos_default=False)
    ends = vocabulary.end_ids | set(generation_ends(folder, rows))
    return replace(vocabulary, end_ids=ends)


def _unknown(model: dict[str, Any], settings: TokenizerSettings) -> str:
    """Return the text of the unknown token; empty where there is none."""
    if "unk_token" in settings.named:
        return settings.named["unk_token"].content
    if isinstance(model.get("unk_token"), str):
        return str(model["unk_token"])
    pieces, place = model.get("vocab"), model.get("unk_id")
    if isinstance(pieces, list) and isinstance(place, int) and 0 <= place < len(pieces):
        return str(pieces[place][0])
    return ""
