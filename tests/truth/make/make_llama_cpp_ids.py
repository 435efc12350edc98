# ruff: noqa: RUF001
"""Records llama.cpp's token ids for every tokenizer that it knows into ``truth/tokenizers``.

    python tests/truth/make make_llama_cpp_ids PYTHON

PYTHON is an interpreter that has llama-cpp-python; ids are asked of it for GGUF files that hold nothing
but a small vocabulary, whose tokens go over every border that some tokenizer draws: a wrong one
changes the ids.
"""

from __future__ import annotations

import gzip
import json
import random
import subprocess
import sys
import tempfile
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFWriter
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from oxibonsai.tokenizer.byte_level import BYTE_OF
from oxibonsai.tokenizer.pre_tokenizers import PRE_TOKENIZERS

FOLDER = Path(__file__).parents[1] / "tokenizers"
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
BYTES = [f"<0x{b:02X}>" for b in range(256)]
RESERVED = {"<s>", "</s>", "<unk>", "<extra>", "unused▁one", "<dna>", "</dna>", "<oov>", *BYTES}
ASK = """
import json, sys
import llama_cpp as lib
silent = lib.llama_log_callback(lambda level, text, data: None)
lib.llama_log_set(silent, None)
lib.llama_backend_init()
for line in sys.stdin:
    path, texts = json.loads(line)
    settings = lib.llama_model_default_params()
    settings.vocab_only = True
    model = lib.llama_model_load_from_file(path.encode(), settings)
    vocab = lib.llama_model_get_vocab(model)
    rows = []
    for text in texts:
        data = text.encode()
        room = (lib.llama_token * (4 * len(data) + 16))()
        count = lib.llama_tokenize(vocab, data, len(data), room, len(room), True, False)
        rows.append(room[:count])
    print(json.dumps(rows), flush=True)
    lib.llama_model_free(model)
"""

PHRASES = [
    "The quick brown fox didn't jump over the lazy dog's 12,345 bones; we'LL see, I'M sure they've 7.",
    "ÉCOLE d'été à Ñandú, naïve façade — œuvre 3½, größte Straße, Łódź, İstanbul'da",
    "Съешь же ещё этих мягких французских булок, да выпей чаю № 42",
    "Ξεσκεπάζω τὴν ψυχοφθόρα βδελυγμία ΟΔΥΣΣΕΥΣ",
    "我能吞下玻璃而不伤身体。他说：“你好，世界！”……１２３４５６７",
    "いろはにほへと ちりぬるを、カタカナとﾊﾝｶｸ、２０２４年５月",
    "다람쥐 헌 쳇바퀴에 타고파 ㄱㄴㄷ 1234567890",
    "हिन्दी में लिखना आसान है। १२३४५ क्या?",
    "আমি কাঁচ খেতে পারি, ৬৭৮৯",
    "ภาษาไทยไม่มีช่องว่างระหว่างคำ ๑๒๓๔",
    "أنا قادر على أكل الزجاج، ولا يؤلمني ٤٥٦؟",
    "אני יכול לאכול זכוכית וזה לא מזיק לי",
    "ខ្ញុំអាចញុំកញ្ចក់បាន ၁၂၃ ကျွန်တော် ຂ້ອຍ",
    "😀😃👩‍👩‍👧‍👦🏳️‍🌈 👍🏽🇯🇵 ❤️ ☃ ✨✨",
    "def f(x_1, *args):\n    return x_1**2 + 0x7fff_ffff  # TODO: fixMe(HTTPServer2XMLParser)\n\n\n",
    'if (a<=b&&c!=d) {\r\n\t\tprintf("%5.2f\\n", a/3.14159e-10);\r\n}\r\n',
    "https://example.com/a/b?c=d&e=%20f#g <a href='x'>y</a> {{z}} [[1]] ~`@^|\\",
    "   leading,  two   three    four spaces \t\t tabs \n \n  \n\n trailing   ",
    "1 12 123 1234 12345 123456 1234567 1,000,000.00 $5 €6 £7 +8 -9 =10 <11> ^12",
    "camelCase PascalCase snake_case SCREAMING_CASE kebab-case iOS eBay McDonald's O'Neill 'tis",
    "aʼb ﬁ ﬂ ① Ⅷ ² ³ ª º µ Å ﷺ … ‥ «» ‹› „“ ‚‘ 〈〉《》「」『』【】",
    "\u00a0nbsp\u2003em\u3000wide\u200bzero\u2028line\u0085next\x0bvt\x0cff\x1cfs",
    "a\u0301e\u0302o\u0308 n\u0303 \u0e01\u0e34 \u0915\u094d\u0937 \u1112\u1161\u11ab",
    "<sentinel:5> IMGIMGABZ <s> </s> <dna>ACGTacgtNNAC</dna> ▁under▁scores",
]
SPACES = [" ", " ", " ", "\n", "  ", "\n\n", "", "\t", " \n", "\r\n", "   "]


def make_texts() -> list[str]:
    """20 kB of mixed scripts, code and emoji, and 6,000 random characters."""
    rng = random.Random(20)
    texts = list(PHRASES)
    while sum(len(t.encode()) for t in texts) < 20_000:
        parts = []
        for _ in range(12):
            phrase = rng.choice(PHRASES)
            start = rng.randrange(len(phrase))
            parts += [phrase[start : start + rng.randint(1, 14)], rng.choice(SPACES)]
        texts.append("".join(parts))
    assigned = [
        chr(c)
        for c in range(1, 0x20000)
        if unicodedata.category(chr(c)) not in ("Cn", "Cs", "Co") and chr(c) != "\u1fbe"
    ]
    common = [c for c in assigned if ord(c) < 0x3100]
    for i in range(120):
        source = common if i % 2 else assigned
        mixed = (rng.choice(source if rng.random() < 0.7 else "aB 1'\n.,") for _ in range(50))
        texts.append("".join(mixed))
    return texts


def train(texts: list[str], *, byte_level: bool, size: int) -> list[str]:
    """Merges over pieces of the texts that start anywhere, across any border."""
    rng = random.Random(3)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = (
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        if byte_level
        else pre_tokenizers.Split("\x00", "isolated")
    )
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        show_progress=False,
        initial_alphabet=sorted(BYTE_OF) if byte_level else [],
        max_token_length=10,
        limit_alphabet=20_000,
    )
    pieces = []
    for text in texts:
        for _ in range(3):
            start = rng.randrange(max(len(text) - 20, 1))
            pieces.append(text[start : start + 40])
    tokenizer.train_from_iterator([*texts, *pieces], trainer)
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    dropped = set(RESERVED)
    kept = []
    for left, right in merges:
        if " " in left + right or {left, right, left + right} & dropped:
            dropped.add(left + right)
        else:
            kept.append(f"{left} {right}")
    return kept


def tokens_of(merges: list[str], alphabet: list[str]) -> list[str]:
    return list(dict.fromkeys([*alphabet, *(m.replace(" ", "", 1) for m in merges)]))


def charsmap(table: dict[str, str]) -> list[int]:
    """A table of replacements in SentencePiece's form, as a double array."""
    replacements = b""
    trie: dict[int, Any] = {}
    for key, value in table.items():
        node = trie
        for byte in key.encode():
            node = node.setdefault(byte, {})
        node[0] = len(replacements)
        replacements += value.encode() + b"\0"
    units = {0: 0}

    def place(index: int, node: dict[int, Any]) -> None:
        at = next(p for p in range(1, 1 << 20) if all((p ^ c) not in units for c in (0, *node)))
        units[index] |= (index ^ at) << 10 | (1 << 8 if 0 in node else 0)
        units[at] = 1 << 31 | node.get(0, 0)
        children = {c: n for c, n in node.items() if c != 0}
        for label in children:
            units[at ^ label] = label
        for label, child in children.items():
            place(at ^ label, child)

    place(0, trie)
    array = np.zeros((max(units) | 255) + 1, dtype="<u4")
    for index, unit in units.items():
        array[index] = unit
    return list(np.uint32(array.nbytes).tobytes() + array.tobytes() + replacements)


def vocabularies(texts: list[str]) -> dict[str, dict[str, Any]]:
    """Keys below ``tokenizer.ggml``, by the kind of vocabulary."""
    merges = train(texts, byte_level=True, size=6000)
    tokens = ["<s>", "</s>", *tokens_of(merges, sorted(BYTE_OF))]
    frame = {"bos_token_id": 0, "eos_token_id": 1}
    found: dict[str, dict[str, Any]] = {}
    found["byte_level"] = {
        "tokens": tokens,
        "token_type": [CONTROL] * 2 + [NORMAL] * (len(tokens) - 2),
        "merges": merges,
        **frame,
    }
    sequences = [a + b + "ACGT" + "\ue000" for a in "ACGT" for b in "ACGT"]
    special = ["<dna>", "</dna>", "<oov>"]
    found["dna"] = {
        "tokens": [*tokens, *special, *sequences],
        "token_type": [CONTROL] * 2 + [NORMAL] * (len(tokens) - 2 + 3 + len(sequences)),
        "merges": merges,
        **frame,
    }
    marked = [t.replace(" ", "▁") for t in texts]
    merges = train(marked, byte_level=False, size=5000)
    merges = [m for m in merges if "\n" not in m]
    letters = sorted({c for t in texts[: len(PHRASES)] for c in t} - {" "} | {"▁"})
    known = set(letters)
    merges = [m for m in merges if set(m.replace(" ", "", 1)) <= known]
    pieces = tokens_of(merges, letters)
    lines = ["\n\n", "\n\n\n"]
    found["characters"] = {
        "tokens": ["<s>", "</s>", *BYTES, *lines, *pieces],
        "token_type": [CONTROL] * 2 + [BYTE] * 256 + [NORMAL] * (len(pieces) + 2),
        "merges": merges,
        **frame,
    }
    rng = random.Random(4)
    scores = [-rng.uniform(1, 4) * (1 + 9 / len(p)) for p in pieces]
    added = ["<unk>", "<extra>", "unused▁one"]
    replaced = {"ﬁ": "fi", "ﬂ": "fl", "\t": " ", "\n": " ", "\u3000": " ", "…": "...", "\u200b": ""}
    replaced |= {"a\u0301": "á", "e\u0302": "ê", "①": "1", "Ⅷ": "VIII", "ﷺ": "صلى", "\x0b": " "}
    found["unigram"] = {
        "tokens": ["<s>", "</s>", *added, *pieces],
        "token_type": [CONTROL, CONTROL, UNKNOWN, USER_DEFINED, UNUSED] + [NORMAL] * len(pieces),
        "scores": [0.0, 0.0, 0.0, -1.0, -3.0, *scores],
        "unknown_token_id": 2,
        "precompiled_charsmap": charsmap(replaced),
        **frame,
    }
    plain = [p.replace("▁", " ") for p in pieces]
    found["plamo2"] = {
        "tokens": ["<unk>", "<s>", "</s>", *BYTES, *plain],
        "token_type": [UNKNOWN, CONTROL, CONTROL] + [BYTE] * 256 + [NORMAL] * len(plain),
        "scores": [-2000.5, -3000.0, -3000.0] + [0.0] * 256 + scores,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    singles = [f"\\x{b:02x}" for b in range(256)]
    words = [p.replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t") for p in plain]
    words = [w for p, w in zip(plain, words, strict=True) if len(p.encode()) > 1]
    found["rwkv"] = {
        "tokens": ["<|end|>", *singles, *words],
        "token_type": [CONTROL] + [NORMAL] * (256 + len(words)),
        "eos_token_id": 0,
    }
    return found


def cases() -> dict[str, tuple[str, dict[str, Any]]]:
    """The vocabulary and the keys of each file, by a name for it."""
    found: dict[str, tuple[str, dict[str, Any]]] = {}
    for name, kind in PRE_TOKENIZERS.items():
        vocabulary = "byte_level" if kind.byte_level else "characters"
        found[f"gpt2 {name}"] = (vocabulary, {"model": "gpt2", "pre": name})
    found["gemma4"] = ("characters", {"model": "gemma4", "add_bos_token": False})
    found["hybriddna"] = ("dna", {"model": "hybriddna", "pre": "gpt-2"})
    for lower in (False, True):
        keys = {"model": "whitespace", "pre": "whitespace", "normalizer.lowercase": lower}
        found[f"whitespace lowercase={lower}"] = ("characters", keys)
    for prefix in (False, True):
        for merged in (False, True):
            keys = {"add_space_prefix": prefix, "remove_extra_whitespaces": merged}
            name = f"t5 prefix={prefix} merged={merged}"
            found[name] = ("unigram", {"model": "t5", **keys})
    found["plamo2"] = ("plamo2", {"model": "plamo2"})
    found["rwkv"] = ("rwkv", {"model": "rwkv"})
    return found


def write_gguf(path: Path, keys: dict[str, Any]) -> None:
    writer = GGUFWriter(path, "llama")
    for name in ("context_length", "embedding_length", "block_count", "feed_forward_length"):
        writer.add_uint32(f"llama.{name}", 64)
    writer.add_head_count(1)
    writer.add_layer_norm_rms_eps(1e-5)
    for name, value in keys.items():
        key = f"tokenizer.ggml.{name}"
        if isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        elif isinstance(value, str):
            writer.add_string(key, value)
        else:
            # Small whole numbers are written as int32 unless they come as bytes.
            writer.add_array(key, bytes(value) if name == "precompiled_charsmap" else value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def main(python: str) -> None:
    texts = make_texts()
    tables = vocabularies(texts)
    FOLDER.mkdir(exist_ok=True)
    stored: dict[str, np.ndarray] = {}
    names: dict[str, str] = {}
    llama = subprocess.Popen(
        [python, "-c", ASK], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert llama.stdin is not None
    assert llama.stdout is not None
    with tempfile.TemporaryDirectory() as folder:
        for name, (vocabulary, keys) in cases().items():
            path = Path(folder) / "vocab.gguf"
            write_gguf(path, tables[vocabulary] | keys)
            print(json.dumps([str(path), texts]), file=llama.stdin, flush=True)
            rows = json.loads(llama.stdout.readline())
            counts = np.array([len(r) for r in rows], dtype=np.uint16)
            ids = np.array([i for r in rows for i in r], dtype=np.uint16)
            both = np.concatenate([counts, ids])
            same = (k for k, v in stored.items() if np.array_equal(v, both))
            key = next(same, name)
            stored[key] = both
            names[name] = key
    llama.stdin.close()
    llama.wait()
    np.savez_compressed(FOLDER / "ids.npz", allow_pickle=False, **stored)
    files = {n: {"vocabulary": v, "keys": k, "ids": names[n]} for n, (v, k) in cases().items()}
    record = {"texts": texts, "vocabularies": tables, "files": files}
    data = json.dumps(record, ensure_ascii=False, sort_keys=True).encode()
    (FOLDER / "vocabularies.json.gz").write_bytes(gzip.compress(data, mtime=0))
    print(len(texts), "texts,", len(names), "tokenizers,", len(stored), "different")


if __name__ == "__main__":
    main(sys.argv[1])
