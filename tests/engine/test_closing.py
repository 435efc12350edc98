"""JSON texts that come to their end before their limit of tokens."""

from __future__ import annotations

import json
import random
from typing import Any

import jsonschema
import pytest

from oxibonsai.engine.closing import ClosingConstraint, ClosingTokens
from oxibonsai.structured import Structure, StructureCompiler
from structured.vocabularies import byte_level, spm

_TEXT = {"type": "string"}
_ITEM = {
    "type": "object",
    "properties": {
        "name": _TEXT,
        "size": {"type": "number"},
        "tags": {"type": "array", "items": _TEXT},
    },
    "required": ["name", "size", "tags"],
}
SCHEMAS: list[dict[str, Any]] = [
    _TEXT,
    {"type": "array", "items": _TEXT},
    {"type": "array", "items": {"type": "array", "items": _TEXT}},
    {"type": "object", "properties": {"items": {"type": "array", "items": _ITEM}, "end": _TEXT},
     "required": ["items", "end"]},
    {"type": "object", "properties": {"a": {"type": "number"}, "b": {"enum": ["one", "two"]}},
     "required": ["b"]},
    {"type": "object"},
    {"type": "array", "minItems": 3, "items": {"type": "string", "minLength": 4}},
]  # fmt: skip


@pytest.mark.parametrize("schema", SCHEMAS, ids=str)
@pytest.mark.parametrize("tokenizer", [byte_level(), spm()], ids=["byte-level", "spm"])
def test_whoever_never_closes_is_whole_at_the_limit(tokenizer: Any, schema: dict[str, Any]) -> None:
    compiler = StructureCompiler(tokenizer, tokenizer.vocab_size)
    tokens = ClosingTokens.of(tokenizer, tokenizer.vocab_size)
    structure = Structure.described_json(schema)
    choose = random.Random(str(schema))
    for limit in (220, 300, 333):
        text = ClosingConstraint(compiler.constraint(structure), limit, tokens)
        written = bytearray()
        for _ in range(limit):
            if text.finished:
                break
            mask = text.mask()
            assert mask is not None
            ids = [i for i in range(tokenizer.vocab_size) if mask[i // 32] >> (i % 32) & 1]
            # Anything but an end of a string, of a bracket or of the text, as long as there is a choice.
            going_on = [
                i for i in ids
                if i not in tokenizer.eos_ids and not set(tokenizer.token_bytes(i)) & set(b'"]}')
            ]  # fmt: skip
            token = choose.choice(going_on or ids)
            if token in tokenizer.eos_ids:
                break
            text.accept(token)
            written += tokenizer.token_bytes(token)
        assert text.may_end, written
        jsonschema.validate(json.loads(written), schema)


def test_far_from_the_limit_everything_may_come() -> None:
    tokenizer = byte_level()
    compiler = StructureCompiler(tokenizer, tokenizer.vocab_size)
    tokens = ClosingTokens.of(tokenizer, tokenizer.vocab_size)
    plain = compiler.constraint(Structure.described_json(SCHEMAS[3]))
    text = ClosingConstraint(plain.fork(), 1000, tokens)
    for byte in b'{"items": [{"name": "a", "size": 1':
        assert (text.mask() == plain.mask()).all()  # type: ignore[attr-defined]
        text.accept(byte)
        plain.accept(byte)


def test_the_last_field_has_the_room_that_is_left() -> None:
    names = [f"f{i}" for i in range(20)]
    fields = dict.fromkeys([*names, "summary"], _TEXT)
    schema = {"type": "object", "properties": fields, "required": [*fields]}
    tokenizer = byte_level()
    compiler = StructureCompiler(tokenizer, tokenizer.vocab_size)
    tokens = ClosingTokens.of(tokenizer, tokenizer.vocab_size)
    text = ClosingConstraint(compiler.constraint(Structure.described_json(schema)), 700, tokens)
    for byte in json.dumps({**dict.fromkeys(names, "a"), "summary": ""})[:-2].encode():
        text.mask()
        text.accept(byte)
    written = 0
    while text.mask()[ord("x") // 32] >> (ord("x") % 32) & 1:  # type: ignore[index]
        text.accept(ord("x"))
        written += 1
    assert text._left < 40, written
    assert written > 300


def test_where_only_banned_tokens_close_others_may_come() -> None:
    tokenizer = byte_level()
    compiler = StructureCompiler(tokenizer, tokenizer.vocab_size)
    tokens = ClosingTokens.of(tokenizer, tokenizer.vocab_size)
    structure = Structure.described_json({"type": "integer"})
    text = ClosingConstraint(compiler.constraint(structure), 8, tokens)
    text.accept(ord("1"))
    digits = [d for d in b"0123456789"]
    mask = text.mask_beside(frozenset(tokenizer.eos_ids))
    assert all(mask[d // 32] >> (d % 32) & 1 for d in digits)  # type: ignore[index]
    assert not any(text.mask()[d // 32] >> (d % 32) & 1 for d in digits)  # type: ignore[index]


def test_a_fork_counts_on_its_own() -> None:
    tokenizer = byte_level()
    compiler = StructureCompiler(tokenizer, tokenizer.vocab_size)
    tokens = ClosingTokens.of(tokenizer, tokenizer.vocab_size)
    text = ClosingConstraint(compiler.constraint(Structure.described_json(_TEXT)), 40, tokens)
    text.accept(ord('"'))
    fork = text.fork()
    for _ in range(38):
        fork.accept(ord("x"))
    quote = {i for i in range(256) if fork.mask()[i // 32] >> (i % 32) & 1}  # type: ignore[index]
    assert quote == {ord('"')}
    assert text.mask()[ord("x") // 32] >> (ord("x") % 32) & 1  # type: ignore[index]
