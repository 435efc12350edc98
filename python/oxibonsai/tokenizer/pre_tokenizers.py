"""How a text is split before its parts are merged, by the name in ``tokenizer.ggml.pre``.

The names and the splits are llama.cpp's, since its ids are what a GGUF file is used with. Where its
expressions only come near those of the model's own tokenizer, these do the same: ``tekken``,
``gpt-4o`` and ``youtu`` take every letter outside of ASCII for both cases.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from oxibonsai.errors import UnsupportedError
from oxibonsai.tokenizer.vocabulary import Metadata, flag, text_value

_CONTRACTIONS = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_SYMBOLS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
_WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA3 = rf"{_CONTRACTIONS}|{_WORD}|\p{{N}}{{1,3}}|{_SYMBOLS}|{_SPACES}"
_QWEN2 = rf"{_CONTRACTIONS}|{_WORD}|\p{{N}}|{_SYMBOLS}|{_SPACES}"
_QWEN35 = (
    rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
    rf"| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_SPACES}"
)
_HALVES = "|".join(rf"\s{{{n}}}(?!\S)" for n in (512, 256, 128, 64, 32, 16, 8, 4))
_JAIS2 = (
    rf"{_CONTRACTIONS}|{_WORD}|\p{{N}}{{1,3}}|{_SYMBOLS}|\s*[\r\n]+|{_HALVES}|\s{{1,2}}(?!\S)|\s"
)
_BAILING = (
    r"'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])"
    rf"|{_WORD}|\p{{N}}|{_SYMBOLS}|\s*[\r\n]|\s+(?!\S)|\s+"
)
_SEED = rf"{_CONTRACTIONS}|{_WORD}|\p{{N}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{_SPACES}"
_EXAONE_MOE = (
    rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?(?:\p{{L}}\p{{M}}*(?: \p{{L}}\p{{M}}*)*)+|\p{{N}}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"
)
# Words that change from small to capital letters come apart there.
_CASED = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + _SPACES


def _cased(letters: str, ending: str, digits: str) -> str:
    capital, small = rf"[{letters}&&[^a-z]]", rf"[{letters}&&[^A-Z]]"
    first = r"[^\r\n\p{L}\p{N}]?"
    return rf"{first}{capital}*{small}+{ending}|{first}{capital}+{small}*{ending}|{digits}{_CASED}"


_TEKKEN = _cased(r"\p{L}", "", r"\p{N}")
_GPT4O = _cased(r"\p{L}", f"{_CONTRACTIONS}?", r"\p{N}{1,3}")
_GRANITE_EMBED = _cased(r"\p{L}\p{M}", f"{_CONTRACTIONS}?", r"\p{N}{1,3}")
_UNCASED = rf"[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+{_CONTRACTIONS}?"
_YOUTU = (
    r"[\uac00-\ud7a3\u3131-\u318e]+"
    r"|[\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b\uff0c\u3001-\u303f\ufe30-\ufe4f]+"
    r"|[\u3105-\u312f]+|[\u4e00-\u9fa5\u3040-\u30ff]+",
    rf"{_UNCASED}|\p{{N}}{_CASED}",
)
# Digits in groups of three counted from their end. What stands before a number stays with its first.
_DIGITS_FROM_END = r"[^\p{N}]*\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))"
_PUNCTUATED = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
)
_DEEPSEEK3 = (
    r"\p{N}{1,3}",
    r"[\u4e00-\u9fa5\u3040-\u30ff]+",
    rf"{_PUNCTUATED}| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_SPACES}",
)
_SPARK = (
    *_DEEPSEEK3[:2],
    rf"{_PUNCTUATED}| ?[\p{{P}}\p{{S}}]+|[\r\n]|\s+(?!\S)|\s+",
    r"\p{N}",
)
_AFMOE = (
    _DIGITS_FROM_END,
    r"[\u4e00-\u9fff\u3400-\u4dbf\u8c48-\ufaff\u3040-\u30ff\uff65-\uff9f\u2f00-\u2fdf"
    r"\u0e40-\u0eff\u1780-\u17ff\u1000-\u109f\uaa60-\uaa7f\ua9e0-\ua9ff\uac00-\ud7af\u1100-\u11ff]+",
    _DEEPSEEK3[2],
)
_CJK = r"[\u0800-\u9fa5\uac00-\ud7ff&&[^\s]]+"
# Letters with two cases, as they were in the version of Unicode that the model was made with.
_CASED_LETTERS = (
    r"A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af"
    r"\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1"
    r"\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd"
    r"\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d"
    r"\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4"
    r"\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec"
    r"\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128"
    r"\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b"
    r"\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787"
    r"\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a"
    r"\x{10400}-\x{1044f}\x{104b0}-\x{104d3}\x{104d8}-\x{104fb}\x{10c80}-\x{10cb2}"
    r"\x{10cc0}-\x{10cf2}\x{118a0}-\x{118df}\x{1e900}-\x{1e943}"
)
_DEEPSEEK_LLM = (
    r"[\r\n]",
    rf"\s?[{_CASED_LETTERS}]+",
    r"\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3001\u3002]+",
    r"\s+\z",
    _CJK,
    r"\p{N}+",
)
_HAN = (
    r"\u4e00-\u9fff\u3400-\u4dbf\uf900-\ufaff\x{20000}-\x{2a6df}\x{2a700}-\x{2ebef}"
    r"\x{2f800}-\x{2fa1f}"
)
_KIMI = (
    rf"[{_HAN}]+|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}&&[^{_HAN}]]+{_CONTRACTIONS}?"
    rf"|\p{{N}}{{1,3}}|{_SYMBOLS}|{_SPACES}"
)
_SENTENCE = r" ?[^(\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+"
_CHAMELEON = (
    r"<sentinel:[0-9]+>",
    r"(?:IMGIMG)[A-I]{1,4}Z",
    r"[\t\n]|    |  ",
    r"\p{N}",
    r"[\p{P}!-/:-@\[-`{-~]",
    _GPT2,
)

# Where one match of a split ends and the next begins, whatever is around, so that a long text may be
# cut there. Digits and letters are those on whose kind all versions of Unicode agree.
_AFTER_WORD = r"(?<=[0-9A-Za-z\u3041-\u3096\u30a1-\u30fa\u4e00-\u9fa5\uac00-\ud7a3])"
_CJK_SYMBOLS = r"\u3001\u3002\uff01-\uff0f\uff1a-\uff20"
_BEFORE_SPACE = r"(?<=\S)(?= )"
_BORDER = re.compile(rf"{_BEFORE_SPACE}|{_AFTER_WORD}(?=[\t\n\r !-/:-@\[-`{{-~{_CJK_SYMBOLS}])")
# An apostrophe may go on with the word before.
_CONTRACTED = re.compile(
    rf"{_BEFORE_SPACE}|{_AFTER_WORD}(?=[\t\n\r !-&(-/:-@\[-`{{-~{_CJK_SYMBOLS}])"
)
_SPACED = re.compile(_BEFORE_SPACE)
_SYMBOLIC = re.compile(rf"{_AFTER_WORD}(?=[\t\n\r!-/:-@\[-`{{-~{_CJK_SYMBOLS}])")
_BETWEEN_WORDS = re.compile(r"(?<=[A-Za-z])(?= [A-Za-z])")
_NUMBERS = re.compile(r"(?<=[0-9])(?=[ ,.A-Za-z])|(?<=[ ,.A-Za-z])(?=[0-9])")
_LINES = re.compile(r"(?<=[^\n])(?=\n)|(?<=\n)(?=[^\n])")
_SPACE = re.compile(r"(?<=\S)(?=[ \n])")


@dataclass(frozen=True)
class PreTokenizer:
    """Splits, and what a name says beside them.

    Attributes:
        splits: Expressions of Oniguruma; each isolates its matches in what the one before left.
        border: Matches the empty text where no part reaches over.
        byte_level: Whether the parts are merged as bytes; else as characters.
        ignore_merges: A part that is a token is taken as it is.
        add_bos: A text begins with a bos where the file doesn't say.
        forces_bos: It does whatever the file says.
        escapes_spaces: A space is written as U+2581.
        whole_newlines: A run of new lines that is a token is taken as it is.
        composes: A text is brought to Unicode's composed form (NFC) first, where the file doesn't say.
    """

    splits: tuple[str, ...]
    border: re.Pattern[str] = _BORDER
    byte_level: bool = True
    ignore_merges: bool = False
    add_bos: bool = False
    forces_bos: bool = False
    escapes_spaces: bool = False
    whole_newlines: bool = False
    composes: bool = False


_SPLIT_BY_LINES = (r"[^\n]+|\n+",)
_GEMMA4 = PreTokenizer(
    _SPLIT_BY_LINES,
    _LINES,
    byte_level=False,
    add_bos=True,
    forces_bos=True,
    escapes_spaces=True,
    whole_newlines=True,
)
_FAMILIES: dict[str, PreTokenizer] = {
    "default": PreTokenizer((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]")),
    "gpt-2 phi-2 jina-es jina-de gigachat jina-v2-es jina-v2-de a.x-4.0 mellum modern-bert "
    "jina-v1-en jina-v2-code roberta-bpe mpt olmo jais trillion granite-docling exaone4": (
        PreTokenizer((_GPT2,))
    ),
    "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano": PreTokenizer(
        (_LLAMA3,), ignore_merges=True, add_bos=True
    ),
    "glm4 glm5": PreTokenizer((_LLAMA3,), ignore_merges=True),
    "chatglm-bpe dbrx smaug-bpe": PreTokenizer((_LLAMA3,)),
    "qwen2 deepseek-r1-qwen kormo f2llmv2 megrez stablelm2 hunyuan solar-open grok-2": (
        PreTokenizer((_QWEN2,))
    ),
    "qwen35": PreTokenizer((_QWEN35,)),
    "smollm starcoder refact command-r codeshell exaone minerva-7b mellum2": PreTokenizer(
        (r"\p{N}", _GPT2)
    ),
    "falcon": PreTokenizer((r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, r"[0-9][0-9][0-9]")),
    "jais-2": PreTokenizer((_JAIS2,)),
    "minicpm5": PreTokenizer(
        (
            r"\p{N}{1,3}",
            rf"{_CONTRACTIONS}|{_WORD}|\p{{N}}+|{_SYMBOLS}|{_SPACES}",
        ),
        ignore_merges=True,
    ),
    "deepseek-llm": PreTokenizer(_DEEPSEEK_LLM, _BETWEEN_WORDS),
    "deepseek-coder": PreTokenizer(
        (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _CJK, r"\p{N}"), _BETWEEN_WORDS
    ),
    "deepseek-v3 hunyuan-dense joyai-llm hy_v4": PreTokenizer(_DEEPSEEK3),
    "spark2_5": PreTokenizer(_SPARK),
    "youtu": PreTokenizer(_YOUTU, _CONTRACTED, ignore_merges=True),
    "poro-chat bloom gpt3-finnish": PreTokenizer((_SENTENCE,), _BETWEEN_WORDS),
    "viking": PreTokenizer((_SENTENCE, r"\p{N}"), _BETWEEN_WORDS),
    "tekken": PreTokenizer((_TEKKEN,), ignore_merges=True, add_bos=True),
    "gpt-4o llama4 kanana2 talkie minimax-m2": PreTokenizer((_GPT4O,), _CONTRACTED),
    "granite-embed-multi-97m": PreTokenizer((_GRANITE_EMBED,), _CONTRACTED, ignore_merges=True),
    "tiny_aya cohere2moe": PreTokenizer(
        (_DIGITS_FROM_END, rf"{_UNCASED}|\p{{N}}{{1,3}}{_CASED}"), _CONTRACTED
    ),
    "kimi-k2": PreTokenizer((_KIMI,), _CONTRACTED),
    "superbpe": PreTokenizer((r"\p{N}+", r"(?=(?:[0-9]{3})+(?![0-9]))"), _NUMBERS),
    "bailingmoe bailingmoe2 llada-moe": PreTokenizer((_BAILING,)),
    "seed-coder": PreTokenizer((_SEED,)),
    "ufakzeka": PreTokenizer((rf"{_WORD}|\p{{N}}|{_SYMBOLS}|{_SPACES}",)),
    "afmoe": PreTokenizer(_AFMOE),
    "laguna": PreTokenizer((*_SPLIT_BY_LINES, _QWEN2)),
    "exaone-moe": PreTokenizer((_EXAONE_MOE,), _SYMBOLIC),
    "chameleon": PreTokenizer(_CHAMELEON, _SPACED, add_bos=True),
    "gemma4 granite-embed-multi-311m": _GEMMA4,
    "sarvam-moe": PreTokenizer(_SPLIT_BY_LINES, _LINES, byte_level=False, escapes_spaces=True),
}
# Of tokenizer.ggml.model = whitespace, and of nothing else.
WHITE_SPACE = PreTokenizer((r"\S+",), _SPACE, byte_level=False)

# Whose own tokenizers compose a text, which GGUF files have no key for. By transformers' classes: those
# of Qwen2Tokenizer, Qwen3_5Tokenizer, CohereTokenizer and GPTNeoXTokenizer. By the models' own code or
# tokenizer.json: hunyuan, stablelm2, modern-bert.
_COMPOSING = (
    "qwen2 deepseek-r1-qwen f2llmv2 qwen35 command-r tiny_aya cohere2moe mpt olmo hunyuan stablelm2 "
    "modern-bert"
)

PRE_TOKENIZERS: dict[str, PreTokenizer] = {
    name: replace(kind, composes=name in _COMPOSING.split())
    for names, kind in _FAMILIES.items()
    for name in names.split()
}
# Says that the tokenizer composes, or does not, where its pre-tokenizer's name says otherwise. No key of
# llama.cpp's, which never composes.
COMPOSES_KEY = "tokenizer.ggml.normalizer.nfc"


def pre_tokenizer(metadata: Metadata) -> PreTokenizer:
    """Return what the file's ``tokenizer.ggml.pre`` names, as the file's other keys change it.

    Raises:
        FormatError: The name is no text, or ``COMPOSES_KEY`` no boolean.
        UnsupportedError: The name is not known.
    """
    name = text_value(metadata, "tokenizer.ggml.pre") or "default"
    if name not in PRE_TOKENIZERS:
        raise UnsupportedError(
            f"tokenizer.ggml.pre is {name!r}; known pre-tokenizers are {', '.join(PRE_TOKENIZERS)}"
        )
    kind = PRE_TOKENIZERS[name]
    return replace(kind, composes=flag(metadata, COMPOSES_KEY, kind.composes))
