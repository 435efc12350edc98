"""Constraints over small vocabularies: which tokens come next, where a text may end."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from vocabularies import END, MARK, OTHER_END, PIECES, TOOL_CALL, byte_level, spm

from oxibonsai.errors import RequestError
from oxibonsai.structured import Constraint, Structure, StructureCompiler
from oxibonsai.tokenizer import Tokenizer

_TOKENIZER = byte_level()
_SPARE_ROWS = 70
_COMPILER = StructureCompiler(_TOKENIZER, _TOKENIZER.vocab_size + _SPARE_ROWS)
_ENDS = {END, OTHER_END}
_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


def constraint(structure: Structure) -> Constraint:
    return _COMPILER.constraint(structure)


def allowed(state: Constraint) -> set[int]:
    return {i for i in range(state.mask().size * 32) if state.allows(i)}


def after(state: Constraint, text: str) -> Constraint:
    state = state.fork()
    for byte in text.encode():
        state.accept(byte)
    return state


def takes(state: Constraint, text: str) -> bool:
    try:
        return after(state, text).may_end
    except RequestError:
        return False


def next_tokens(tokenizer: Tokenizer, texts: list[str], done: str) -> set[int]:
    """The definition: tokens after which one of some texts can still be reached."""
    rest = [t.encode()[len(done.encode()) :] for t in texts if t.startswith(done)]
    usable = range(tokenizer.vocab_size)
    special = {i for i, t in enumerate(tokenizer.vocabulary.types) if t not in (1, 6)}
    found = {i for i in usable if i not in special and tokenizer.token_bytes(i)}
    found = {i for i in found if any(r.startswith(tokenizer.token_bytes(i)) for r in rest)}
    return found | (set(tokenizer.eos_ids) if b"" in rest else set())


@given(st.lists(_TEXTS, min_size=1, max_size=6), st.data())
def test_a_choice_allows_exactly_the_tokens_that_lead_to_an_option(options, data) -> None:
    state = constraint(Structure.choice(options))
    target = data.draw(st.sampled_from(options))
    for i in range(len(target) + 1):
        assert allowed(after(state, target[:i])) == next_tokens(_TOKENIZER, options, target[:i])


@given(st.lists(_TEXTS, min_size=1, max_size=6))
def test_a_choice_may_end_after_an_option_and_nowhere_else(options) -> None:
    state = constraint(Structure.choice(options))
    for option in options:
        for i in range(len(option) + 1):
            here = after(state, option[:i])
            assert here.may_end == (option[:i] in options)
            longer = any(o != option[:i] and o.startswith(option[:i]) for o in options)
            assert here.finished == (here.may_end and not longer)
            assert (allowed(here) >= _ENDS) == here.may_end
            assert (not _ENDS & allowed(here)) == (not here.may_end)


@settings(max_examples=60)
@given(st.sampled_from(["a*b?", "(ab|abc)+", "[a-c]{2,4}", "a|", "[^a]b.", r"\d+"]), st.data())
def test_a_regex_takes_what_it_matches_to_the_end(pattern: str, data) -> None:
    state = constraint(Structure.regex(pattern))
    text = data.draw(st.text("abc1", max_size=6) | st.from_regex(pattern, fullmatch=True))
    if text.isascii():
        assert takes(state, text) == (re.fullmatch(pattern, text) is not None)


def test_spm_tokens_are_bytes_and_pieces_with_spaces() -> None:
    tokenizer = spm()
    compiler = StructureCompiler(tokenizer, tokenizer.vocab_size)
    texts = [" ab", "ab", "é", '{"', "<0x41>x"]
    state = compiler.constraint(Structure.choice(texts))
    assert allowed(state) == next_tokens(tokenizer, texts, "")
    pieces = {tokenizer.vocabulary.texts[i] for i in allowed(state)}
    assert {"▁", "▁a", "<0x20>", "a", "ab", "<0xC3>", "é", "{", '{"'} <= pieces


def test_any_text_does_not_hold_special_tokens_unknown_ones_or_spare_rows() -> None:
    anything = constraint(Structure.regex(r"(?s:.)*"))
    assert allowed(anything) & {TOOL_CALL, MARK} == set()
    assert max(allowed(anything)) < _TOKENIZER.vocab_size
    assert set(range(260, 260 + len(PIECES))) <= allowed(anything)
    tokenizer = spm()
    state = StructureCompiler(tokenizer, tokenizer.vocab_size).constraint(
        Structure.regex("(?s:.)*")
    )
    unused = tokenizer.vocab_size - 1
    assert allowed(state) & {0, 1, unused} == set()


def test_a_grammar_can_name_special_tokens() -> None:
    state = constraint(Structure.lark('start: "a" <tool_call> %json {"type": "null"} "b"'))
    state.accept(ord("a"))
    assert allowed(state) == {TOOL_CALL}
    state.accept(TOOL_CALL)
    for byte in b"nullb":
        assert not state.finished
        state.accept(byte)
    assert state.finished
    assert allowed(state) == _ENDS


def test_an_end_token_that_a_grammar_names_is_part_of_the_text() -> None:
    state = constraint(Structure.lark('start: "a" <|im_end|> "b"'))
    state.accept(ord("a"))
    assert END in allowed(state)
    assert not state.finished


def test_schemas_inside_a_grammar_are_held_to_the_same_rules() -> None:
    lenient = '{"type": "integer", "x-guidance": {"lenient": true, "whitespace_flexible": true}}'
    assert not takes(constraint(Structure.lark(f'start: "[" %json {lenient} "]"')), "[ 1]")
    with pytest.raises(RequestError, match="'not' at its root"):
        constraint(Structure.lark('start: %json {"not": {}}'))
    with pytest.raises(RequestError, match="no JSON schema after %json in line 2"):
        constraint(Structure.lark("start: a\na: %json {"))
    # In texts, comments and expressions it is no keyword.
    text = 'start: "%json" A // %json\nA: /%json "/\n'
    assert takes(constraint(Structure.lark(text)), '%json%json "')


def test_a_token_out_of_place_is_refused_and_changes_nothing() -> None:
    state = constraint(Structure.choice(["ab"]))
    before = state.mask()
    for token in (ord("b"), END, TOOL_CALL, -1, 10**6):
        with pytest.raises(RequestError, match=f"token {token} may not come next"):
            state.accept(token)
    assert (state.mask() == before).all()
    state.accept(ord("a"))


def test_after_an_end_there_is_nothing_but_an_end() -> None:
    state = after(constraint(Structure.choice(["ab", "abc"])), "ab")
    assert state.may_end
    assert not state.finished
    state.accept(OTHER_END)
    assert state.finished
    assert allowed(state) == _ENDS


def test_masks_are_words_that_stay_as_they_are() -> None:
    state = constraint(Structure.choice(["ab"]))
    mask = state.mask()
    assert mask.dtype == "uint32"
    assert mask.size == -(-(_TOKENIZER.vocab_size + _SPARE_ROWS) // 32)
    copy = mask.copy()
    state.accept(ord("a"))
    assert (mask == copy).all()
    with pytest.raises(ValueError, match="read-only"):
        mask[0] = 1


def test_forks_go_their_own_ways() -> None:
    state = constraint(Structure.choice(["ax", "ay"]))
    state.accept(ord("a"))
    left, right = state.fork(), state.fork()
    left.accept(ord("x"))
    right.accept(ord("y"))
    assert left.finished
    assert right.finished
    assert allowed(state) == {ord("x"), ord("y")}


@given(st.integers(0, 7))
def test_rollback_takes_back_the_last_tokens(count: int) -> None:
    text = '{"a":1}'
    state = after(constraint(Structure.json_object()), text)
    state.rollback(count)
    assert allowed(state) == allowed(after(constraint(Structure.json_object()), text[: 7 - count]))
    state.accept(text.encode()[7 - count] if count else END)


def test_rollback_beyond_the_beginning_is_refused() -> None:
    state = after(constraint(Structure.json_object()), "{")
    for count in (2, -1):
        with pytest.raises(RequestError, match="can't take back"):
            state.rollback(count)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.text('aé\n"\\', max_size=4),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.text("ab"), inner, max_size=3)
        ),
        max_leaves=8,
    )
)
def test_json_comes_on_one_line_with_a_space_at_most(value) -> None:
    state = constraint(Structure.json_schema(True))
    assert takes(state, json.dumps(value, ensure_ascii=False, separators=(",", ":")))
    assert takes(state, json.dumps(value, ensure_ascii=False))
    for spread in (
        json.dumps(value, ensure_ascii=False, indent=1),
        json.dumps(value, ensure_ascii=False, separators=(",  ", ":  ")),
    ):
        assert takes(state, spread) == (spread == json.dumps(value, ensure_ascii=False))


def test_a_schema_takes_documents_in_the_order_of_its_properties() -> None:
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 3}, "age": {"type": "integer"}},
        "required": ["age"],
        "additionalProperties": False,
    }
    state = constraint(Structure.json_schema(schema))
    assert takes(state, '{"name":"Bo","age":3}')
    assert takes(state, '{"age": 3}')
    for wrong in (
        '{"name":"Bo"}',
        '{"age":3,}',
        '{"age":3,"x":1}',
        '{"name":"Bobo","age":3}',
        "{}",
    ):
        assert not takes(state, wrong)
    assert after(state, '{"age":3}').finished


@pytest.mark.parametrize(
    ("grammar", "right", "wrong"),
    [
        ('root ::= "yes" | "no"', ["yes", "no"], ["", "yesno", "y"]),
        ("root ::= [a-c]{2,3} [^a]?", ["ab", "abcz", "abb"], ["a", "abca"]),
        ('root ::= item ("," item)*\nitem ::= [0-9]+', ["1", "12,3"], [",", "1,", ""]),
        (
            'root ::= "(" root? ")"  # nested\n',
            ["()", "(())"],
            ["(", ")(", "(()"],
        ),
        (
            r'root ::= [\u3042-\u3093\u0041]+ "\u00e9\U0001F432\u0042" [^\u00e9\n]',
            ["あé🐲Bx", "Aé🐲B\\"],
            ["Bé🐲Bx", "Aé🐲Bé", "Aé🐲B\n"],
        ),
        (r'root ::= "a/b\\" [/\]\[] "\t\""', ['a/b\\/\t"', 'a/b\\[\t"'], ["a/b"]),
        (
            'root ::= expr ("=" ws term "\\n")+\nexpr ::= term ([-+*/] term)*\n'
            'term ::= [a-z] | num | "(" ws expr ")" ws\nnum ::= [0-9]+ ws\nws ::= [ \\t]*',
            ["1+2=3\n", "a=b\n", "(a*2)=7\n"],
            ["1+2", "=3\n", "1+=2\n"],
        ),
    ],
)
def test_gbnf(grammar: str, right: list[str], wrong: list[str]) -> None:
    state = constraint(Structure.gbnf(grammar))
    assert [t for t in right if not takes(state, t)] == []
    assert [t for t in wrong if takes(state, t)] == []
