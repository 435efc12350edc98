"""Which of the written texts are good enough to learn from, and in what form."""

from __future__ import annotations

import re
from collections import Counter

# Quotation marks, apostrophes, dashes and the ellipsis as ASCII has them.
_PLAIN = {
    0x201C: '"', 0x201D: '"', 0x2018: "'", 0x2019: "'", 0x2014: "-", 0x2013: "-", 0x2026: "...",
}  # fmt: skip
_ODD = re.compile(r"[^\n -~]|[#*_`\[\]{}<>|\\^~@]|http")
_ABOUT_ITSELF = re.compile(
    r"\b(AI|language model|assistant|chatbot|short story|this story|the story)\b", re.IGNORECASE
)
_SENTENCE = re.compile(r"[^.!?]*[.!?]+[\"')]*\s*")
_WORDS = {"story": (40, 240), "answer": (4, 60)}  # fewest and most


def cleaned(kind: str, text: str, end: str) -> str | None:
    """The text as it is learnt, or None where it is not.

    Args:
        kind: ``"story"`` or ``"answer"``.
        text: As it was written.
        end: ``"stop"``, or else it was cut and ends with its last whole sentence here.
    """
    text = re.sub(r"[ \t]+", " ", text.translate(_PLAIN)).strip()
    text = re.sub(r" ?\n\s*", "\n\n", text)
    if end != "stop":
        text = "".join(_SENTENCE.findall(text)).strip()
    fewest, most = _WORDS[kind]
    whole = text.endswith((".", "!", "?", '."', '!"', '?"'))
    fits = fewest <= len(text.split()) <= most
    if not (whole and fits) or _ODD.search(text) or _ABOUT_ITSELF.search(text) or repeats(text):
        return None
    return text


def repeated_sentence(text: str) -> bool:
    """Whether a sentence of three or more words comes twice."""
    words = [re.findall(r"[a-z']+", s.lower()) for s in _SENTENCE.findall(text)]
    counts = Counter(tuple(w) for w in words if len(w) >= 3)
    return any(n > 1 for n in counts.values())


def repeats(text: str) -> bool:
    """Whether a sentence comes twice, or five words in a row three times."""
    words = re.findall(r"[a-z']+", text.lower())
    runs = Counter(tuple(words[i : i + 5]) for i in range(len(words) - 4))
    return repeated_sentence(text) or any(n > 2 for n in runs.values())
