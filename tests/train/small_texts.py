"""A tokenizer and texts that are small enough to learn in seconds."""

from __future__ import annotations

import json
import random
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

END = "<|endoftext|>"


def write_tokenizer(folder: Path) -> Path:
    """A byte-level BPE of 272 entries."""
    folder.mkdir()
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=272,
        special_tokens=[END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(sentences(50, seed=0), trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": END}))
    return folder


def sentences(count: int, seed: int) -> list[str]:
    """Sentences of a grammar of a few words."""
    draw = random.Random(seed)
    beasts, verbs = ["cat", "dog", "hen", "fox"], ["sees", "likes", "helps"]
    return [
        f"The {draw.choice(beasts)} {draw.choice(verbs)} the {draw.choice(beasts)}."
        for _ in range(count)
    ]


def write_texts(file: Path, count: int, seed: int) -> Path:
    """Such sentences as JSON lines."""
    file.write_text("".join(json.dumps({"text": s}) + "\n" for s in sentences(count, seed)))
    return file
