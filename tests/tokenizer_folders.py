"""Folders with a tokenizer and no model, of every kind that the `tokenizers` library knows."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

CORPUS = [
    "Hello world, the tea is hot and the world is large; say hello to the worlds!",
    "Unbelievable teas, unbelievably hot worlds: isn't it? They'll say so. 1234 567",
    "Ein Caf\u00e9 in M\u00fcnchen, na\u00efve r\u00e9sum\u00e9s, gro\u00dfe Stra\u00dfen.",
    "\u6771\u4eac\u306e\u30ab\u30d5\u30a7\u3067\u304a\u8336\u3092\u98f2\u307f\u307e\u3059\u3002\u30ac\u30e9\u30b9",
    "\ud55c\uad6d\uc5b4 \ubb38\uc7a5\uc785\ub2c8\ub2e4. \ud55c\uae00\uc740 \uc544\ub984\ub2f5\ub2e4.",
    "def main():\n    return [x for x in range(10)]\n\n\tprint('done')",
    "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440! "
    "\u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645",
]
TEXTS = [
    "Hello world, the tea isn't hot!",
    "",
    " ",
    "  two  spaces  ",
    "cafe\u0301 na\u00efve de\u0301ja\u0300 vu M\u00fcnchen",
    "\u1112\u1161\u11ab\u1100\u1173\u11af \ud55c\uae00",  # Hangul of jamo, and of syllables
    "\uff21\uff22\uff23\uff01 \uff11\uff12\uff13 \uff76\uff9e \u304b\u3099",  # full and half width
    "\u212aelvin 5 \u2126 \ufb01ne \u00bd",
    "emoji \U0001f600\U0001f468\u200d\U0001f469 \U00010348 and \ufffd",
    "def main():\n    return 12345\n\n\n\tx\r\n",
    "\u6771\u4eac\u306e\u30ab\u30d5\u30a7\u3002 \u041f\u0440\u0438\u0432\u0435\u0442!",
    "\u0301 at the beginning, e\u0327\u0301 q\u0307\u0323",
    "tabs\tand\u00a0no-break\u3000wide\u2003em\u200bzero",
]
_SPLIT_QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_SPLIT_LLAMA3 = _SPLIT_QWEN2.replace(r"|\p{N}|", r"|\p{N}{1,3}|")


@dataclass(frozen=True)
class Folder:
    """A tokenizer, and what the files beside ``tokenizer.json`` say.

    Attributes:
        make: Makes the tokenizer; the special tokens that its texts hold are in ``marks``.
        config: ``tokenizer_config.json``.
        marks: Texts of added tokens.
    """

    make: Callable[[], Tokenizer]
    config: dict[str, Any] = field(default_factory=dict)
    marks: tuple[str, ...] = ()

    def texts(self) -> list[str]:
        """Return texts with and without added tokens, with marks and spaces over their borders."""
        between = [f"{a} x {b}e\u0301" for a in self.marks for b in self.marks]
        spaced = [f"a \t{m}\n\u0301b{m}{m} c\u00a0{m}d{m[:-1]} {m.upper()}" for m in self.marks]
        return [*TEXTS, *between, *spaced]

    def write(self, folder: Path) -> Path:
        """Write ``tokenizer.json`` and ``tokenizer_config.json``."""
        folder.mkdir(parents=True, exist_ok=True)
        self.make().save(str(folder / "tokenizer.json"))
        config = {"tokenizer_class": "PreTrainedTokenizerFast", **self.config}
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
        return folder


def _special(text: str, **flags: bool) -> AddedToken:
    return AddedToken(text, special=True, normalized=False, **flags)


def _byte_level(
    splits: Any, *, normalizer: Any = None, ignore_merges: bool = False, regex: bool = False
) -> Tokenizer:
    made = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    made.normalizer = normalizer
    steps = [*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=regex)]
    made.pre_tokenizer = pre_tokenizers.Sequence(steps)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(
        CORPUS, trainers.BpeTrainer(vocab_size=420, initial_alphabet=alphabet, show_progress=False)
    )
    made.post_processor = processors.ByteLevel(trim_offsets=False)
    return made


@cache
def qwen2() -> Tokenizer:
    """NFC, splits of its own, chat tokens."""
    split = pre_tokenizers.Split(Regex(_SPLIT_QWEN2), "isolated")
    made = _byte_level([split], normalizer=normalizers.NFC())
    made.add_special_tokens([_special(t) for t in ("<|endoftext|>", "<|im_start|>", "<|im_end|>")])
    made.add_tokens([AddedToken("<tool_call>", special=False, normalized=False)])
    return made


@cache
def llama3() -> Tokenizer:
    """Parts that are tokens are not merged; a bos in front."""
    split = pre_tokenizers.Split(Regex(_SPLIT_LLAMA3), "isolated")
    made = _byte_level([split], ignore_merges=True)
    made.add_special_tokens([_special(t) for t in ("<|begin_of_text|>", "<|eot_id|>")])
    bos = made.token_to_id("<|begin_of_text|>")
    frame = processors.TemplateProcessing(
        single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A <|begin_of_text|>:1 $B:1",
        special_tokens=[("<|begin_of_text|>", bos)],
    )  # fmt: skip
    made.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=True), frame])
    return made


@cache
def gpt2() -> Tokenizer:
    """ByteLevel's own expression; one token is both bos and eos."""
    made = _byte_level([], regex=True)
    made.add_special_tokens([_special("<|endoftext|>")])
    return made


@cache
def roberta() -> Tokenizer:
    """A mask that takes the white space before it; two separators between the texts of a pair."""
    made = _byte_level([], regex=True)
    made.add_special_tokens(
        [*map(_special, ("<s>", "<pad>", "</s>", "<unk>")), _special("<mask>", lstrip=True)]
    )
    made.post_processor = processors.RobertaProcessing(
        ("</s>", made.token_to_id("</s>")), ("<s>", made.token_to_id("<s>")),
        trim_offsets=True, add_prefix_space=False,
    )  # fmt: skip
    return made


@cache
def gemma() -> Tokenizer:
    """BPE of characters with byte fallback, spaces replaced in the whole text."""
    made = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    made.normalizer = normalizers.Replace(" ", "\u2581")
    special = ["<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>"]
    texts = [line.replace(" ", "\u2581") for line in CORPUS]
    made.pre_tokenizer = pre_tokenizers.Split("\u2581", "merged_with_next")  # to train words
    byte_tokens = [f"<0x{b:02X}>" for b in range(256)]
    made.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=560, special_tokens=[*special, *byte_tokens], show_progress=False
        ),
    )
    document = json.loads(made.to_str())
    document["added_tokens"] = [t for t in document["added_tokens"] if t["content"] in special]
    document["pre_tokenizer"] = None
    made = Tokenizer.from_str(json.dumps(document))
    made.add_tokens([AddedToken("\n\n", normalized=False)])
    made.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    made.post_processor = processors.TemplateProcessing(
        single="<bos> $A", pair="<bos> $A <bos>:1 $B:1",
        special_tokens=[("<bos>", made.token_to_id("<bos>"))],
    )  # fmt: skip
    return made


@cache
def llama2() -> Tokenizer:
    """As ``gemma``, with a space in front of every text between two special tokens."""
    made = Tokenizer.from_str(gemma().to_str())
    made.normalizer = normalizers.Sequence(
        [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]
    )
    made.decoder = decoders.Sequence(
        [
            decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )  # fmt: skip
    return made


@cache
def mistral() -> Tokenizer:
    """As ``llama2``, but only the first text gets a space in front (Metaspace)."""
    made = Tokenizer.from_str(llama2().to_str())
    made.normalizer = None
    made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    return made


@cache
def bert() -> Tokenizer:
    """WordPiece after BERT's own normalizer; words that stand alone and a mask."""
    made = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=100))
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    made.train_from_iterator(
        CORPUS,
        trainers.WordPieceTrainer(vocab_size=220, special_tokens=special, show_progress=False),
    )
    made.decoder = decoders.WordPiece("##", cleanup=True)
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )  # fmt: skip
    made.add_tokens([AddedToken("tea-time", single_word=True, normalized=True)])
    return made


@cache
def charsmap() -> bytes:
    """SentencePiece's table of replacements (nmt_nfkc), as T5's."""
    from sentencepiece import SentencePieceTrainer, sentencepiece_model_pb2

    written = io.BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS), model_writer=written, vocab_size=120, hard_vocab_limit=False,
        minloglevel=2,
    )  # fmt: skip
    model: Any = sentencepiece_model_pb2
    table: bytes = model.ModelProto.FromString(
        written.getvalue()
    ).normalizer_spec.precompiled_charsmap
    return table


def _unigram(normalizer: Any, pre_tokenizer: Any, special: list[str]) -> Tokenizer:
    made = Tokenizer(models.Unigram())
    made.normalizer, made.pre_tokenizer = normalizer, pre_tokenizer
    made.train_from_iterator(
        CORPUS,
        trainers.UnigramTrainer(
            vocab_size=300, special_tokens=special, unk_token="<unk>", show_progress=False
        ),
    )
    return made


@cache
def t5() -> Tokenizer:
    """Unigram after SentencePiece's table; an eos behind."""
    space = pre_tokenizers.Metaspace(prepend_scheme="always")
    table = normalizers.Precompiled(charsmap())
    made = _unigram(table, space, ["<pad>", "</s>", "<unk>", "<extra_id_0>"])
    made.normalizer = normalizers.Sequence(
        [
            table,
            normalizers.Strip(left=False, right=True),
            normalizers.Replace(Regex(" {2,}"), "\u2581"),
        ]
    )
    made.decoder = decoders.Metaspace()
    made.post_processor = processors.TemplateProcessing(
        single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 1)]
    )
    return made


@cache
def xlm_r() -> Tokenizer:
    """Unigram, a mask that takes the space before it, two separators."""
    table = normalizers.Precompiled(charsmap())
    steps = [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme="always")]
    made = _unigram(table, pre_tokenizers.Sequence(steps), ["<s>", "<pad>", "</s>", "<unk>"])
    made.add_special_tokens([_special("<mask>", lstrip=True)])
    made.decoder = decoders.Metaspace()
    made.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>",
        special_tokens=[("<s>", 0), ("</s>", 2)],
    )  # fmt: skip
    return made


@cache
def word_level() -> Tokenizer:
    """Whole words, in small letters."""
    made = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    made.normalizer = normalizers.Lowercase()
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.train_from_iterator(
        CORPUS, trainers.WordLevelTrainer(special_tokens=["[UNK]", "[PAD]"], show_progress=False)
    )
    return made


@cache
def clip() -> Tokenizer:
    """BPE whose tokens say where a word ends; two words of a frame that are neither bos nor eos."""
    made = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    made.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.decoder = decoders.BPEDecoder(suffix="</w>")
    made.train_from_iterator(
        CORPUS,
        trainers.BpeTrainer(
            vocab_size=260, special_tokens=["<unk>", "<start>", "<lang>", "<end>"],
            end_of_word_suffix="</w>", show_progress=False,
        ),
    )  # fmt: skip
    made.post_processor = processors.TemplateProcessing(
        single="<start> <lang> $A <end>", pair="<start> $A <end> <lang>:1 $B:1 <end>:1",
        special_tokens=[(t, made.token_to_id(t)) for t in ("<start>", "<lang>", "<end>")],
    )  # fmt: skip
    return made


_BERT = {"unk": "[UNK]", "sep": "[SEP]", "pad": "[PAD]", "cls": "[CLS]", "mask": "[MASK]"}
_ROBERTA = {
    "bos": "<s>",
    "eos": "</s>",
    "cls": "<s>",
    "sep": "</s>",
    "unk": "<unk>",
    "pad": "<pad>",
}
_GEMMA = {"bos": "<bos>", "eos": "<eos>", "unk": "<unk>", "pad": "<pad>"}


def _named(names: dict[str, str], **others: Any) -> dict[str, Any]:
    return {**{f"{name}_token": text for name, text in names.items()}, **others}


FOLDERS = {
    "qwen2": Folder(
        qwen2, _named({"eos": "<|im_end|>", "pad": "<|endoftext|>"}, add_bos_token=False),
        ("<|im_start|>", "<tool_call>"),
    ),
    "llama3": Folder(
        llama3, _named({"bos": "<|begin_of_text|>", "eos": "<|eot_id|>"}, model_max_length=2048),
        ("<|begin_of_text|>", "<|eot_id|>"),
    ),
    "gpt2": Folder(gpt2, _named({"bos": "<|endoftext|>", "eos": "<|endoftext|>"}), ("<|endoftext|>",)),
    "roberta": Folder(
        roberta,
        _named(_ROBERTA, mask_token={"content": "<mask>", "lstrip": True, "rstrip": False,
               "single_word": False, "normalized": False, "special": True, "__type": "AddedToken"}),
        ("<mask>", "</s>"),
    ),
    "gemma": Folder(gemma, _named(_GEMMA, padding_side="left"), ("<start_of_turn>", "\n\n")),
    "llama2": Folder(llama2, _named(_GEMMA), ("<bos>", "<start_of_turn>")),
    "mistral": Folder(mistral, _named(_GEMMA), ("<bos>", "<start_of_turn>")),
    "bert": Folder(
        bert,
        _named(_BERT, clean_up_tokenization_spaces=True, model_max_length=64,
               model_input_names=["input_ids", "token_type_ids", "attention_mask"]),
        ("[MASK]", "tea-time"),
    ),
    "t5": Folder(
        t5, _named({"eos": "</s>", "pad": "<pad>", "unk": "<unk>"}, extra_special_tokens=["<extra_id_0>"]),
        ("<extra_id_0>", "</s>"),
    ),
    "xlm_r": Folder(
        xlm_r, _named(_ROBERTA, truncation_side="left", mask_token="<mask>"), ("<mask>", "<s>")
    ),
    "word_level": Folder(
        word_level, _named({"unk": "[UNK]", "pad": "[PAD]"}, clean_up_tokenization_spaces=True), ("[PAD]",)
    ),
    "clip": Folder(clip, _named({"unk": "<unk>", "pad": "<end>"}), ("<start>", "<lang>")),
}  # fmt: skip
