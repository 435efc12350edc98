"""Merging by rank (BPE) on the `tokenizers` library."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oxibonsai.errors import FormatError
from oxibonsai.tokenizer.vocabulary import Metadata, Vocabulary, refuse_broken_texts

if TYPE_CHECKING:
    from tokenizers import Tokenizer as FastTokenizer


def merging_tokenizer(
    vocabulary: Vocabulary,
    metadata: Metadata,
    *,
    splits: tuple[str, ...],
    ignore_merges: bool,
    byte_fallback: bool,
    composes: bool,
) -> FastTokenizer:
    """Return a tokenizer that splits a text and merges its parts.

    Args:
        vocabulary: The tokens.
        metadata: Where ``tokenizer.ggml.merges`` is.
        splits: Expressions; see :class:`oxibonsai.tokenizer.pre_tokenizers.PreTokenizer`.
        ignore_merges: A part that is a token is taken as it is.
        byte_fallback: A character that is no token becomes tokens ``<0xNN>``; else characters stand
            for bytes.
        composes: A text is brought to Unicode's composed form (NFC) first.

    Raises:
        FormatError: A merge names no tokens of the vocabulary, or a token is no UTF-8.
    """
    from tokenizers import Regex
    from tokenizers import Tokenizer as FastTokenizer
    from tokenizers.models import BPE
    from tokenizers.normalizers import NFC
    from tokenizers.pre_tokenizers import ByteLevel, PreTokenizer, Sequence, Split

    refuse_broken_texts(vocabulary.texts)
    ids = {t: i for i, t in enumerate(vocabulary.texts)}
    pairs = _pairs(vocabulary, metadata, ids)
    model = BPE(vocab=ids, merges=pairs, ignore_merges=ignore_merges, byte_fallback=byte_fallback)
    fast = FastTokenizer(model)
    if composes:
        fast.normalizer = NFC()
    steps: list[PreTokenizer] = [Split(Regex(s), "isolated") for s in splits]
    if not byte_fallback:
        steps.append(ByteLevel(add_prefix_space=False, use_regex=False))
    fast.pre_tokenizer = Sequence(steps)
    return fast


def _pairs(
    vocabulary: Vocabulary, metadata: Metadata, ids: dict[str, int]
) -> list[tuple[str, str]]:
    merges = metadata.get("tokenizer.ggml.merges")
    if not isinstance(merges, list):
        raise FormatError("tokenizer.ggml.merges is missing: BPE needs it")
    texts = vocabulary.texts
    pairs = []
    for index, merge in enumerate(merges):
        # The separator is the first space after the first character: a piece never starts with one.
        left, _, right = str(merge)[1:].partition(" ")
        left = str(merge)[:1] + left
        if not right or left not in ids or right not in ids or left + right not in ids:
            raise FormatError(
                f"tokenizer.ggml.merges[{index}] is {merge!r}, which names no two tokens of the vocabulary"
            )
        # The vocabulary's own strings: copies of 150,000 pairs would take tens of megabytes.
        pairs.append((texts[ids[left]], texts[ids[right]]))
    return pairs


def merge(fast: FastTokenizer, text: str, numbers: list[int]) -> list[int]:
    """Return the ids of a text.

    Args:
        fast: From :func:`merging_tokenizer`.
        text: Any text.
        numbers: The number of each id, so that there is one object for it and not one for each place.
    """
    if len(text) < _LONG:
        found: list[int] = fast.encode(text, add_special_tokens=False).ids
        return found
    batch = fast.encode_batch_fast([text], add_special_tokens=False)
    return [numbers[i] for i in batch[0].ids]


# Characters from which on a batch of one pays: it lets other threads run, and keeps no offsets.
_LONG = 4000
