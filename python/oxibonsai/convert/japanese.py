"""The vocabulary of Japanese BERT: ``vocab.txt``, and how ``tokenizer_config.json`` has words cut."""

from __future__ import annotations

from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.recipe import Metadata
from oxibonsai.convert.vocabulary import CONTROL, NORMAL, placed_tokens, special_tokens
from oxibonsai.convert.wordpiece import gguf_form, special_ids
from oxibonsai.errors import FormatError, UnsupportedError

_FILE = "vocab.txt"
_PRE = {"wordpiece": "mecab", "character": "mecab-character"}
_DICTIONARY = {"mecab_dic": "unidic_lite"}
_SPECIAL = {f"{name}_token": f"[{name.upper()}]" for name in ("unk", "sep", "pad", "cls", "mask")}


def is_japanese(folder: ModelFolder) -> bool:
    """Whether the folder's tokenizer is BertJapaneseTokenizer."""
    return special_tokens(folder).get("tokenizer_class") == "BertJapaneseTokenizer"


def japanese_keys(folder: ModelFolder, vocab_size: int) -> Metadata:
    """Return the tokenizer's keys.

    Args:
        folder: With ``vocab.txt`` and ``tokenizer_config.json``.
        vocab_size: Rows of the model's table; ids without a text are filled up.
    """
    config = folder.json("tokenizer_config.json")
    known = {"word_tokenizer_type": "mecab", "mecab_kwargs": _DICTIONARY, "do_word_tokenize": True}
    for key, value in known.items():
        if config.get(key, known[key]) not in (value, None):
            raise UnsupportedError(
                f"{folder.path / 'tokenizer_config.json'}: {key} is {config[key]!r}; convert knows "
                f"{value!r}"
            )
    kind = config.get("subword_tokenizer_type", "wordpiece")
    if kind not in _PRE:
        raise UnsupportedError(
            f"{folder.path / 'tokenizer_config.json'}: subword_tokenizer_type is {kind!r}; convert "
            f"knows {', '.join(_PRE)}"
        )
    path = folder.path / _FILE
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as e:
        raise FormatError(f"cannot read {path}: {e}") from e
    special = _SPECIAL | {k: v for k, v in special_tokens(folder).items() if k in _SPECIAL}
    kinds = {text: CONTROL for text in special.values() if isinstance(text, str)}
    entries = [(text, i, kinds.get(text, NORMAL)) for i, text in enumerate(lines)]
    texts, types = placed_tokens(str(path), entries, vocab_size)
    texts = [gguf_form(t) if k == NORMAL else t for t, k in zip(texts, types, strict=True)]
    return {
        "tokenizer.ggml.model": ("bert", "str"),
        "tokenizer.ggml.pre": (_PRE[kind], "str"),
        "tokenizer.ggml.tokens": (texts, "arr[str]"),
        "tokenizer.ggml.token_type": (types, "arr[i32]"),
        "tokenizer.ggml.normalizer.lowercase": (config.get("do_lower_case") is True, "bool"),
        **special_ids(folder, special, {t: i for i, t in enumerate(texts)}),
    }
