"""The tokenizer of a text model: which kind, how texts are framed, where they end, chat template."""

from __future__ import annotations

from typing import Any

from oxibonsai.convert import plamo_vocabulary, rwkv_vocabulary, sentencepiece_file
from oxibonsai.convert.byte_level import byte_level_keys
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.recipe import Metadata
from oxibonsai.convert.sentencepiece import spm_keys
from oxibonsai.convert.unigram import unigram_keys
from oxibonsai.convert.vocabulary import special_tokens
from oxibonsai.errors import FormatError

_SPECIAL = {
    "bos_token": "bos",
    "eos_token": "eos",
    "pad_token": "padding",
    "unk_token": "unknown",
    "sep_token": "seperator",  # GGUF's spelling
    "cls_token": "cls",
    "mask_token": "mask",
}
# What frames the texts of models that name no beginning and no end.
_FRAMES = {"bos_token": "cls_token", "eos_token": "sep_token"}
# generation_config.json's names, and GGUF's of the same defaults of sampling.
_SAMPLING = {
    "temperature": ("temp", "f32", 0.0, 100.0),
    "top_k": ("top_k", "i32", 0, 2**31 - 1),
    "top_p": ("top_p", "f32", 0.0, 1.0),
    "min_p": ("min_p", "f32", 0.0, 1.0),
    "repetition_penalty": ("penalty_repeat", "f32", 0.0, 100.0),
}


def tokenizer_keys(folder: ModelFolder) -> Metadata:
    """Everything of ``tokenizer.*`` and the defaults of sampling.

    A folder without the file of a vocabulary gives a file for token ids only.
    """
    size = folder.count("vocab_size")
    tokenizer: dict[str, Any] = {}
    if (folder.path / "tokenizer.json").is_file():
        tokenizer = folder.json("tokenizer.json")
        model = tokenizer.get("model")
        model = model if isinstance(model, dict) else {}
        spm = model.get("byte_fallback") is True and model.get("type") != "Unigram"
        read = unigram_keys if model.get("type") == "Unigram" else byte_level_keys
        keys = (spm_keys if spm else read)(folder, tokenizer, size)
    elif (folder.path / sentencepiece_file.FILE).is_file():
        keys = sentencepiece_file.spm_file_keys(folder, size)
    elif (folder.path / rwkv_vocabulary.FILE).is_file():
        keys = rwkv_vocabulary.rwkv_keys(folder, size)
        return keys | _template(folder) | _sampling(folder)
    elif (folder.path / plamo_vocabulary.FILE).is_file():
        keys = plamo_vocabulary.plamo_keys(folder, size)
    else:
        return {"tokenizer.ggml.model": ("no_vocab", "str"), **_sampling(folder)}
    ids = {t: i for i, t in enumerate(keys["tokenizer.ggml.tokens"][0])}
    return keys | _frame(folder, tokenizer, ids) | _template(folder) | _sampling(folder)


def _frame(folder: ModelFolder, tokenizer: dict[str, Any], ids: dict[str, int]) -> Metadata:
    """Return the keys of special ids, and whether a bos goes first and an eos last."""
    special = special_tokens(folder)
    special |= {name: special.get(name) or special.get(other) for name, other in _FRAMES.items()}
    keys: Metadata = {}
    for name, gguf_name in _SPECIAL.items():
        text = special.get(name)
        if text is None:
            continue
        if not isinstance(text, str) or text not in ids:
            raise FormatError(f"{folder.path}: {name} is {text!r}, which is no token")
        keys[f"tokenizer.ggml.{gguf_name}_token_id"] = (ids[text], "u32")
    template = _post_template(tokenizer.get("post_processor"))
    for name, place in (("bos", 0), ("eos", -1)):
        stated = special.get(f"add_{name}_token")
        if template is not None:
            framed = bool(template) and template[place] == special.get(f"{name}_token")
            keys[f"tokenizer.ggml.add_{name}_token"] = (framed, "bool")
        elif isinstance(stated, bool):
            keys[f"tokenizer.ggml.add_{name}_token"] = (stated, "bool")
    if _pair_separators(tokenizer.get("post_processor")) > 1:
        keys["tokenizer.ggml.add_sep_token"] = (True, "bool")
    return keys | _ends(folder, keys, folder.count("vocab_size"))


def _pair_separators(processor: Any) -> int:
    """Return the number of special tokens between the two texts of a pair."""
    try:
        if processor["type"] == "Sequence":
            return max(map(_pair_separators, processor["processors"]), default=0)
        if processor["type"] == "RobertaProcessing":
            return 2
        pair = ["SpecialToken" in p for p in processor["pair"]]
        first = pair.index(False)
        return pair.index(False, first + 1) - first - 1
    except (KeyError, TypeError, ValueError):
        return 0


def _post_template(processor: Any) -> list[str] | None:
    """Texts around a sequence, which is empty text; None where no template says."""
    try:
        if processor["type"] == "Sequence":
            inner = (_post_template(p) for p in processor["processors"])
            return next((t for t in inner if t is not None), None)
        if processor["type"] == "RobertaProcessing":
            return [processor["cls"][0], "", processor["sep"][0]]
        if processor["type"] != "TemplateProcessing":
            return None
        return [p["SpecialToken"]["id"] if "SpecialToken" in p else "" for p in processor["single"]]
    except (KeyError, TypeError, IndexError):
        return None


def _generation(folder: ModelFolder) -> dict[str, Any]:
    name = "generation_config.json"
    return folder.json(name) if (folder.path / name).is_file() else {}


def _ends(folder: ModelFolder, keys: Metadata, vocab_size: int) -> Metadata:
    """Ids that end a generation beside the tokenizer's eos; GGUF has room for two."""
    stated = _generation(folder).get("eos_token_id")
    ends = stated if isinstance(stated, list) else [] if stated is None else [stated]
    for end in ends:
        if isinstance(end, bool) or not isinstance(end, int) or not 0 <= end < vocab_size:
            raise FormatError(
                f"{folder.path}: eos_token_id {end!r} is outside the vocabulary of {vocab_size}"
            )
    eos = keys.get("tokenizer.ggml.eos_token_id", (None,))[0]
    names = ["eot", "eom"] if eos is not None else ["eos", "eot", "eom"]
    others = [e for e in dict.fromkeys(ends) if e != eos]
    return {f"tokenizer.ggml.{n}_token_id": (e, "u32") for n, e in zip(names, others, strict=False)}


def _template(folder: ModelFolder) -> Metadata:
    """Return the chat template: a file of its own, or a text or list in the tokenizer's configuration."""
    template = special_tokens(folder).get("chat_template")
    if isinstance(template, list):
        named = [t for t in template if isinstance(t, dict)]
        template = next((t.get("template") for t in named if t.get("name") == "default"), None)
    file = folder.path / "chat_template.jinja"
    if file.is_file():
        try:
            template = file.read_text(encoding="utf-8")
        except (OSError, ValueError) as e:
            raise FormatError(f"cannot read {file}: {e}") from e
    return {"tokenizer.chat_template": (template, "str")} if isinstance(template, str) else {}


def _sampling(folder: ModelFolder) -> Metadata:
    """Defaults of sampling, where the model states them."""
    config = _generation(folder)
    keys: Metadata = {}
    for name, (gguf_name, kind, low, high) in _SAMPLING.items():
        value = config.get(name)
        if value is None:
            continue
        whole = isinstance(value, int) and not isinstance(value, bool)
        if not (whole or (kind == "f32" and isinstance(value, float))) or not low <= value <= high:
            raise FormatError(
                f"{folder.path / 'generation_config.json'}: {name} is {value!r}, not a number from "
                f"{low} to {high}"
            )
        keys[f"general.sampling.{gguf_name}"] = (value, kind)
    return keys
