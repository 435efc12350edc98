"""Tokens of fill-in-the-middle (FIM): they mark what stands before and after the text to be written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

# What the tokens are called in the model families of this field; ▁ and the wide bars are escaped.
_TEXTS = {
    "fim_pre": (
        "<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<|code_prefix|>", "<|prefix|>", "<PRE>",
        "\u2581<PRE>", "<\uff5cfim\u2581begin\uff5c>",
    ),
    "fim_suf": (
        "<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<|code_suffix|>", "<|suffix|>", "<SUF>",
        "\u2581<SUF>", "<\uff5cfim\u2581hole\uff5c>",
    ),
    "fim_mid": (
        "<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<|code_middle|>", "<|middle|>", "<MID>",
        "\u2581<MID>", "<\uff5cfim\u2581end\uff5c>",
    ),
    "fim_rep": ("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"),
    "fim_sep": ("<|file_sep|>",),
    "fim_pad": ("<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>"),
}  # fmt: skip
# Names of the same keys in older files.
_OLDER = {"fim_pre": "prefix", "fim_suf": "suffix", "fim_mid": "middle"}


@dataclass(frozen=True)
class InfillTokens:
    """The tokens of one vocabulary.

    Attributes:
        prefix: Before the text that stands first.
        suffix: Before the text that stands last.
        middle: Where the answer begins.
        repository: Before a repository's name; None if there is none.
        file: Before a file's name.
        pad: Padding.
    """

    prefix: int
    suffix: int
    middle: int
    repository: int | None = None
    file: int | None = None
    pad: int | None = None

    @property
    def ends(self) -> frozenset[int]:
        """Tokens that end an answer, because something else begins with them."""
        found = {self.repository, self.file, self.pad}
        return frozenset(i for i in found if i is not None)


def find_infill_tokens(
    texts: list[str], special: Callable[[str], int | None]
) -> InfillTokens | None:
    """Return the tokens that a file names, else those with the usual texts; None if incomplete.

    Args:
        texts: Of the vocabulary.
        special: The id in ``tokenizer.ggml.NAME_token_id``.
    """
    wanted = {text: name for name, spellings in _TEXTS.items() for text in spellings}
    found: dict[str, int] = {}
    for i, text in enumerate(texts):
        if text in wanted:
            found.setdefault(wanted[text], i)
    for name in _TEXTS:
        named = special(name)
        if named is None and name in _OLDER:
            named = special(_OLDER[name])
        if named is not None:
            found[name] = named
    three = [found.get(name) for name in ("fim_pre", "fim_suf", "fim_mid")]
    prefix, suffix, middle = three
    if prefix is None or suffix is None or middle is None:
        return None
    rest = (found.get(name) for name in ("fim_rep", "fim_sep", "fim_pad"))
    return InfillTokens(prefix, suffix, middle, *rest)
