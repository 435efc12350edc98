"""Which replica probably has the beginning of a prompt in its prefix cache.

A router sees texts and no tokens, so it compares texts: a prompt becomes a chain of blocks, each of
which stands for everything up to its end, and the router remembers to which replicas it has sent a
block. What a replica has evicted since, it does not know; a wrong guess costs the computation of a
prompt, and never changes an answer.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections import OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Generic, TypeVar

# Characters of a block: about one page of 64 tokens of English text.
BLOCK_CHARACTERS = 256
# Blocks of a prompt that are compared.
MOST_BLOCKS = 1024
# What is rendered before the messages, in this order, and then the messages under each API's name.
_BEFORE = ("model", "tools", "system", "instructions")
_MESSAGES = ("messages", "input", "prompt")

Block = Hashable
Replica = TypeVar("Replica", bound=Hashable)


class PrefixAffinity(Generic[Replica]):
    """Remembers which replica was sent which beginnings, and prefers it for the next such prompt.

    Args:
        max_blocks: Blocks to remember; the least recently used are forgotten.
        max_imbalance: A replica is preferred only while it has at most so many more requests than the
            one with the fewest.
    """

    def __init__(self, max_blocks: int = 262_144, max_imbalance: int = 4) -> None:
        self._max_blocks = max_blocks
        self._max_imbalance = max_imbalance
        self._sent: OrderedDict[Block, dict[Replica, None]] = OrderedDict()

    def prefer(self, blocks: Sequence[Block], loads: Mapping[Replica, int]) -> Replica | None:
        """Return the replica that was sent the longest part of a prompt.

        Args:
            blocks: Of the prompt.
            loads: Requests of each replica that may be chosen.

        Returns:
            None if none was sent any of it, or those that were have too many requests.
        """
        known = list(itertools.takewhile(self._sent.__contains__, blocks))
        # What was sent a block was sent those before it.
        for block in reversed(known):
            having = [replica for replica in self._sent[block] if replica in loads]
            if having:
                break
        else:
            return None
        best = min(having, key=lambda replica: loads[replica])
        return best if loads[best] - min(loads.values()) <= self._max_imbalance else None

    def remember(self, blocks: Sequence[Block], replica: Replica) -> None:
        """Note that a prompt was sent to a replica."""
        # From the end, so that the beginnings, which more prompts share, are forgotten last.
        for block in reversed(blocks):
            self._sent.setdefault(block, {})[replica] = None
            self._sent.move_to_end(block)
        while len(self._sent) > self._max_blocks:
            self._sent.popitem(last=False)

    def forget(self, replica: Replica) -> None:
        """Forget a replica that is gone."""
        for block in [b for b, sent in self._sent.items() if replica in sent]:
            del self._sent[block][replica]
            if not self._sent[block]:
                del self._sent[block]


def prompt_blocks(body: bytes, salt: str = "") -> list[Block]:
    """Return the blocks of a request's prompt; none if the body has no prompt, or a short one.

    The first block is ``prompt_cache_key`` where the request has one: those with the same key belong
    together, whatever else they have in common.

    Args:
        body: Of the request, JSON.
        salt: Blocks of different salts differ: the API key, if replicas do not share their prefix
            cache between keys.
    """
    try:
        request = json.loads(body)
    except (ValueError, RecursionError):
        return []  # the server says what is wrong with it
    if not isinstance(request, dict):
        return []
    prompt = next((request[name] for name in _MESSAGES if name in request), None)
    if prompt is None:
        return []
    key = request.get("prompt_cache_key")
    chain = hashlib.blake2b(f"{salt} {key or ''}".encode("utf-8", "surrogatepass")).digest()
    blocks: list[Block] = [chain] if key else []
    text = "".join(_text(request[name]) for name in _BEFORE if name in request)
    text += _text(prompt)
    for start in range(0, len(text) - BLOCK_CHARACTERS + 1, BLOCK_CHARACTERS):
        piece = text[start : start + BLOCK_CHARACTERS].encode("utf-8", "surrogatepass")
        chain = hashlib.blake2b(chain + piece, digest_size=12).digest()
        blocks.append(chain)
        if len(blocks) >= MOST_BLOCKS:
            break
    return blocks


def _text(value: Any) -> str:
    """Return the texts of which one is a beginning of the other where the values are."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "".join(map(_text, value))
    return json.dumps(value, ensure_ascii=False, sort_keys=True)
