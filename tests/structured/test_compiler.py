"""Compiled structures: which are kept, which are refused, and at what cost."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import resource
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from vocabularies import byte_level

from oxibonsai import _core
from oxibonsai.errors import CapacityError, RequestError, UnsupportedError
from oxibonsai.structured import Constraint, Structure, StructureCompiler, trial
from oxibonsai.structured.grammar import OPTIONS
from oxibonsai.tokenizer import Tokenizer

_TOKENIZER = byte_level()
_COMPILER = StructureCompiler(_TOKENIZER, _TOKENIZER.vocab_size, max_kept=2)


def test_the_latest_structures_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = StructureCompiler(_TOKENIZER, _TOKENIZER.vocab_size, max_kept=2)
    runs = []
    run = trial._run
    monkeypatch.setattr(trial, "_run", lambda *given: runs.append(1) or run(*given))
    a, b, c = (Structure.json_schema({"const": text}) for text in "abc")
    for structure in (a, b, a, c, a, c):
        compiler.constraint(structure)
    assert len(runs) == 3
    compiler.constraint(b)  # b was the oldest when c came
    assert len(runs) == 4
    assert compiler.kept[0] == 2


def test_what_is_kept_is_bounded_in_bytes() -> None:
    size = 1 << 20
    compiler = StructureCompiler(_TOKENIZER, _TOKENIZER.vocab_size, max_kept_bytes=size)
    for i in range(30):
        compiler.constraint(Structure.choice([f"{i}" * 100]))
        assert compiler.kept[1] <= size
    assert compiler.kept[0] >= 2


def test_a_structure_that_is_kept_starts_afresh() -> None:
    structure = Structure.choice(["ab"])
    first = _COMPILER.constraint(structure)
    first.accept(ord("a"))
    assert _COMPILER.constraint(structure).allows(ord("a"))


def test_a_vocabulary_smaller_than_the_tokenizers_is_refused() -> None:
    with pytest.raises(RequestError, match="less than the tokenizer's"):
        StructureCompiler(_TOKENIZER, _TOKENIZER.vocab_size - 1)


def test_a_tokenizer_without_an_end_is_refused() -> None:
    tokenizer = byte_level()
    tokenizer.eos_ids = frozenset()
    with pytest.raises(UnsupportedError, match="names no token that ends a text"):
        StructureCompiler(tokenizer, tokenizer.vocab_size).constraint(Structure.json_object())


def _nested(depth: int) -> str:
    return '{"properties":{"a":' * depth + "true" + "}}" * depth


def _lists(depth: int) -> Any:
    return [] if depth == 0 else [_lists(depth - 1)]


def _wrapped(keyword: str, depth: int) -> Any:
    return True if depth == 0 else {keyword: [_wrapped(keyword, depth - 1)]}


_REFUSED_SCHEMAS: dict[str, tuple[Any, str]] = {
    "depth": (_nested(60), "nested more than 100 deep"),
    "depth of 500": (_nested(500), "nested too deep"),
    "arrays in arrays": ({"enum": [_lists(150)]}, "nested more than 100 deep"),
    "allOf in allOf": (_wrapped("allOf", 60), "nested more than 100 deep"),
    "anyOf in anyOf": (_wrapped("anyOf", 60), "nested more than 100 deep"),
    "depth of 10000": (_nested(10_000), "nested too deep"),
    "enum of 1 MB": ({"enum": [str(i) for i in range(100_000)]}, "more than 60000 values"),
    "minItems": ({"items": True, "minItems": 2**31}, "'minItems' at its root"),
    "minLength": ({"type": "string", "minLength": 2**31}, "'minLength' at its root"),
    "least of properties": ({"minProperties": 2**31}, "'minProperties' at its root"),
    "least of endless digits": ({"minLength": 10**30}, "'minLength' at its root"),
    "most below 0": ({"maxItems": -(2**31)}, "'maxItems'"),
    "half an item": ({"maxItems": 1.5}, "'maxItems'"),
    "huge number": ({"const": 10**400}, "'const' at its root holds a number"),
    "fine number": ({"multipleOf": 1e-300}, "'multipleOf' at its root holds a number"),
    "circle of three": (
        {
            "$defs": {k: {"$ref": f"#/$defs/{v}"} for k, v in ("ab", "bc", "ca")},
            "$ref": "#/$defs/a",
        },
        "no text fits",
    ),
    "circle through allOf": ({"allOf": [{"$ref": "#"}]}, "no text fits"),
    "recursive anchor": ({"$recursiveAnchor": True}, r"'\$recursiveAnchor'"),
    "dynamic reference": ({"$dynamicRef": "#a"}, r"'\$dynamicRef'"),
    "traversal": ({"$ref": "../../etc/passwd"}, r"'\$ref' at its root"),
    "reference with a NUL": ({"$ref": "#/\x00"}, r"'\$ref' at its root"),
    "named groups": ({"pattern": "(?P<a>x)(?P=a)"}, "'pattern' at its root"),
    "backwards": ({"pattern": "(?<=a)b"}, "'pattern' at its root"),
    "recursion": ({"pattern": "(?R)"}, "'pattern' at its root"),
    "backwards class": ({"pattern": "[z-a]"}, "'pattern' at its root"),
    "endless repeat": ({"pattern": "a{1,99999999999}"}, "'pattern' at its root"),
    "half a character": ({"pattern": "\\ud800"}, "'pattern' at its root"),
    "no type at all": ({"type": None}, "'type'"),
    "a list": ([{}], "not an object or a boolean"),
    "nothing": (None, "not an object or a boolean"),
    "remote": ({"$ref": "http://example.com/a.json"}, r"'\$ref' at its root"),
    "file": ({"$ref": "file:///etc/passwd"}, r"'\$ref' at its root"),
    "dangling": ({"items": {"$ref": "#/$defs/a"}}, r"'\$ref' at /items"),
    "reference to no schema": ({"const": {"a": {}}, "$ref": "#/const/a"}, "no place of a schema"),
    "only itself": ({"$ref": "#"}, "no text fits"),
    "in a circle": ({"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}, "no text fits"),
    "look-around": ({"pattern": "(?=a)b"}, "'pattern' at its root .* look-around"),
    "back reference": ({"pattern": r"(a)\1"}, r"'pattern' at its root .* '\\1' is not supported"),
    "open group": ({"pattern": "(a"}, "a group has no end"),
    "closed group": ({"pattern": "a)"}, "ends no group"),
    "deep groups": ({"pattern": "(" * 5000 + ")" * 5000}, "nested more than 100 deep"),
    "bad key": ({"patternProperties": {"[": True}}, "'patternProperties' at its root"),
    "many patterns": (
        {"patternProperties": {f"^a{i}(x+x+)+y$": True for i in range(300)}},
        "too complex",
    ),
    "products": (
        {"allOf": [{"anyOf": [{"minLength": i * 9 + j} for j in range(6)]} for i in range(10)]},
        "schema too large",
    ),
    "not": ({"items": {"not": {}}}, "'not' at /items"),
    "if": ({"properties": {"a/b": {"if": {}}}}, "'if' at /properties/a~1b"),
    "uniqueItems": ({"uniqueItems": True}, "'uniqueItems'"),
    "oneOf": ({"oneOf": [{"type": "integer"}, {"minimum": 2}]}, "oneOf"),
    "format": ({"format": "regex"}, "'format' at its root is 'regex'"),
    "dialect": ({"$schema": "http://json-schema.org/draft-04/schema#"}, r"'\$schema'"),
    "type": ({"type": "text"}, "'type' at its root is not the name of a type"),
    "types": ({"type": []}, "'type'"),
    "required": ({"required": "a"}, "'required' at its root is not an array"),
    "properties": ({"properties": []}, "'properties' at its root is not an object of schemas"),
    "items": ({"items": 3}, "'items'"),
    "anyOf": ({"anyOf": []}, "'anyOf'"),
    "maximum": ({"maximum": "3"}, "'maximum' at its root is not a number"),
    "maxLength": ({"maxLength": -1}, "'maxLength'"),
    "multipleOf": ({"multipleOf": 0}, "'multipleOf'"),
    "nested id": ({"$defs": {"a": {"$id": "x"}}}, r"'\$id' at /\$defs/a"),
    "minProperties": ({"minProperties": 2}, "'minProperties'"),
    "exact": ({"const": 2**60}, "'const' at its root holds a number of more than 15 digits"),
    "bounds": ({"exclusiveMinimum": 0, "maximum": 0.5}, "'exclusiveMinimum'"),
    "control character": ({"enum": ["\x00"]}, "'enum' at its root holds a control character"),
    "beside": (
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "definitions": {"a": {}},
            "properties": {"b": {"$ref": "#/definitions/a", "maxLength": 1}},
        },
        r"'\$ref' at /properties/b has keywords beside it",
    ),
}


def test_there_are_enough_hostile_schemas() -> None:
    assert len(_REFUSED_SCHEMAS) >= 60


@pytest.mark.parametrize("name", _REFUSED_SCHEMAS)
def test_a_schema_is_refused_with_the_keyword_or_the_place(name: str) -> None:
    schema, reason = _REFUSED_SCHEMAS[name]
    with pytest.raises(RequestError, match=reason):
        _COMPILER.constraint(Structure.json_schema(schema))


_RULES = "".join(f"a{i}: a{i + 1} a{i + 1}\n" for i in range(40))
_REFUSED_GRAMMARS: dict[str, tuple[Structure, str]] = {
    "regex": (Structure.regex("("), "unclosed group"),
    "look-around": (Structure.regex("(?=a)"), "look-around"),
    "regex of depth": (Structure.regex("(" * 8000 + ")" * 8000), "regex can't be compiled"),
    "long regex": (Structure.lark('start: "' + "a" * 200_000), "lark can't be compiled"),
    "lark": (Structure.lark("start: a"), 'unknown name: "a"'),
    "lark of depth": (Structure.lark("start: " + "(" * 90_000), "too deeply nested"),
    "only itself": (Structure.lark("start: start"), "no text fits"),
    "terminals that double": (Structure.lark(f"start: a0\n{_RULES}a40: x".upper()), "lark"),
    "chain": (
        Structure.lark("start: R0\n" + "".join(f"R{i}: R{i + 1}\n" for i in range(17_000))),
        "lark",
    ),
    "gbnf": (Structure.gbnf('root ::= "a'), "Unexpected end of input at line 1"),
    "no root": (Structure.gbnf('a ::= "a"'), "No 'root' rule"),
    "no rule": (Structure.gbnf("root ::= a"), "Rule 'a' not found"),
    "gbnf of depth": (Structure.gbnf("root ::= " + "(" * 30_000), "gbnf can't be compiled"),
    "half a character": (Structure.gbnf(r'root ::= "\ud800"'), "is no character"),
    "gbnf in circles": (Structure.gbnf("root ::= root"), "no text fits"),
}


@pytest.mark.parametrize("name", _REFUSED_GRAMMARS)
def test_a_grammar_is_refused_with_the_place(name: str) -> None:
    structure, reason = _REFUSED_GRAMMARS[name]
    with pytest.raises(RequestError, match=reason):
        _COMPILER.constraint(structure)


_TAKEN = {
    "maxItems": Structure.json_schema({"type": "array", "maxItems": 2**31}),
    "maxLength": Structure.json_schema({"type": "string", "maxLength": 2**31}),
    "branches": Structure.regex("|".join(f".*{chr(97 + i % 26)}.{{{i}}}" for i in range(1200))),
    "nested repeats": Structure.regex("(((a{1,100}){1,100}){1,100}){1,100}"),
    "catastrophic": Structure.json_schema({"pattern": "^(a+)+$"}),
    "repeats": Structure.json_schema({"pattern": "^((a{1,100}){1,100}){1,1000000}$"}),
    "tree": Structure.json_schema({"type": "object", "properties": {"a": {"$ref": "#"}}}),
    "strings": Structure.json_schema({"enum": [f"value {i}" for i in range(50_000)]}),
    "long string": Structure.json_schema({"const": "x" * 1_000_000}),
    "regex": Structure.regex("(a{1,1000}){1,1000}|(b|b)*c"),
    "many states": Structure.regex("|".join(f".*{chr(97 + i % 26)}.{{{i}}}" for i in range(1200))),
    "choice": Structure.choice([f"option {i}" for i in range(16_000)]),
    "left recursion": Structure.lark('start: start "a" | "a"'),
    "ambiguity": Structure.lark('start: e\ne: e e e | "a" | ""'),
    "rules that double": Structure.lark(f'start: a0\n{_RULES}a40: "x"'),
    "repeated rules": Structure.gbnf('root ::= ("a" "b"){1,1000000}'),
}


@pytest.mark.parametrize("name", _TAKEN)
def test_a_costly_structure_is_taken(name: str) -> None:
    assert _COMPILER.constraint(_TAKEN[name]).mask().any()


def test_a_long_structure_is_sent_whole_to_a_process_that_starts_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(trial, "LOOK_SECONDS", 0.001)
    assert _COMPILER.constraint(Structure.json_schema({"const": "y" * 900_000})).mask().any()


@pytest.mark.slow
@pytest.mark.parametrize("vocabulary", ["qwen2", "llama-spm"])
def test_no_structure_takes_more_than_two_seconds_of_processor_time_and_256_mb(
    truth_folder: Path, vocabulary: str
) -> None:
    path = truth_folder / "vocab" / f"ggml-vocab-{vocabulary}.gguf"
    tokenizer = Tokenizer.from_gguf(_core.GgufFile(str(path)))
    compiler = StructureCompiler(tokenizer, tokenizer.vocab_size + 8)
    compiler.constraint(Structure.regex("a"))
    grammars = {k: v for k, (v, _) in _REFUSED_GRAMMARS.items()}
    schemas = {k: v for k, (v, _) in _REFUSED_SCHEMAS.items()}
    slow = []
    for name, given in {**schemas, **grammars, **_TAKEN}.items():
        mine, childrens = _seconds(resource.RUSAGE_SELF), _seconds(resource.RUSAGE_CHILDREN)
        before = _resident()
        with contextlib.suppress(RequestError):
            structure = given if isinstance(given, Structure) else Structure.json_schema(given)
            compiler.constraint(structure).mask()
        mine = _seconds(resource.RUSAGE_SELF) - mine
        childrens = _seconds(resource.RUSAGE_CHILDREN) - childrens
        grown = (_resident() - before) >> 20
        if mine + childrens > 2 or grown > 256:
            slow.append((name, mine, childrens, grown))
    assert slow == []


def _seconds(who: int) -> float:
    usage = resource.getrusage(who)
    return usage.ru_utime + usage.ru_stime


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def test_a_trial_dies_of_its_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    structure = Structure.json_schema({"enum": [f"{i}" for i in range(20_000)]})
    monkeypatch.setattr(trial, "MEMORY", 24 << 20)
    with pytest.raises(RequestError, match=r"does not compile within 0\.8 s and 24 MB"):
        StructureCompiler(_TOKENIZER, _TOKENIZER.vocab_size).constraint(structure)
    monkeypatch.setattr(trial, "MEMORY", 224 << 20)
    monkeypatch.setattr(trial, "SECONDS", 0.002)
    start = time.process_time()
    with pytest.raises(RequestError, match=r"does not compile within 0\.002 s"):
        StructureCompiler(_TOKENIZER, _TOKENIZER.vocab_size).constraint(structure)
    assert time.process_time() - start < 1


def test_an_error_in_a_lark_grammar_names_its_own_line() -> None:
    with pytest.raises(RequestError, match=r"at 3\(4\)"):
        _COMPILER.constraint(Structure.lark("start: a\n\na: nothing\n"))


def test_constraints_can_be_made_from_many_threads() -> None:
    structures = [Structure.choice([f"{i}a", f"{i}b"]) for i in range(3)]

    def follow(i: int) -> bool:
        state = _COMPILER.constraint(structures[i % 3])
        state.accept(ord(str(i % 3)))
        state.accept(ord("ab"[i % 2]))
        return state.finished

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(follow, range(400)))


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("lexer precomputation failed; increase limits.initial_lexer_fuel", "it is too complex"),
        ("panic: assertion failed", "it is too large"),
        ("NoExtensionBias\n<state>\nTokens", "no text fits it"),
        ("at 1(8): failed to compile JSON schema: Bad key\n  1 | start", "Bad key"),
    ],
)
def test_messages_of_the_library_are_put_plainly(message: str, said: str) -> None:
    assert trial.readable(message) == said


def test_what_is_wrong_with_an_expression_is_said_in_one_line() -> None:
    for pattern, reason in (
        ("(", "unclosed group"),
        (r"(a)\1", "backreferences are not supported"),
        ("(?=a)b", "look-around, including look-ahead and look-behind, is not supported"),
    ):
        with pytest.raises(RequestError) as caught:
            _COMPILER.constraint(Structure.regex(pattern))
        assert str(caught.value) == f"regex can't be compiled: {reason}"


@pytest.mark.parametrize(
    "reason", ["initial lexer_fuel exhausted", "too many expressions constructed"]
)
def test_what_costs_too_much_is_called_too_complex(reason: str) -> None:
    assert trial.readable(f"lexer error: {reason}\n<state>\n...") == "it is too complex"


def _followed(count: int) -> Structure:
    """A grammar whose first token may begin any of so many rules: they are all followed at once."""
    rules = "".join(f'r{i}: "a" r{i} | "x{i}"\n' for i in range(count))
    return Structure.lark(f"start: {' | '.join(f'r{i}' for i in range(count))}\n{rules}")


def test_what_no_text_can_begin_is_refused_and_not_put_off() -> None:
    tokenizer = byte_level(["a" * count for count in range(2, 40)])
    compiler = StructureCompiler(tokenizer, tokenizer.vocab_size)
    with pytest.raises(RequestError, match=r"lark is too complex for this model: .*oo many items"):
        compiler.constraint(_followed(5000))
    assert compiler.constraint(_followed(50)).mask().any()


def test_a_first_step_that_is_too_costly_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = StructureCompiler(_TOKENIZER, _TOKENIZER.vocab_size)

    def too_costly(self: Constraint) -> None:
        raise RequestError("the structure can't be followed to its end: too many items")

    monkeypatch.setattr(Constraint, "mask", too_costly)
    with pytest.raises(
        RequestError, match=r"lark is too complex for this model: .* too many items"
    ):
        compiler.constraint(Structure.lark('start: "a"'))


_AMBIGUOUS = Structure.gbnf("root ::= root root | [a-z ]")


def _follow(compiler: StructureCompiler, tenant: str) -> None:
    constraint = compiler.constraint(_AMBIGUOUS, tenant=tenant)
    for _ in range(100):
        constraint.accept(ord("a"))


def test_a_text_that_gets_too_costly_ends_as_a_wrong_request_and_costs_nothing_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tokenizer = byte_level(["a" * count for count in range(2, 120)])
    compiler = StructureCompiler(tokenizer, tokenizer.vocab_size)
    with pytest.raises(
        RequestError, match=r"can't be followed to its end: .*oo many items"
    ) as first:
        _follow(compiler, "a")
    monkeypatch.setattr(Constraint, "mask", None)
    with pytest.raises(RequestError) as second:
        compiler.constraint(_AMBIGUOUS, tenant="a")
    assert str(second.value) == str(first.value)
    # What one tenant's text has shown is none of another's business.
    compiler.constraint(_AMBIGUOUS, tenant="b")


def test_what_was_refused_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = StructureCompiler(_TOKENIZER, _TOKENIZER.vocab_size)
    structure = Structure.json_schema({"$ref": "#"})
    with pytest.raises(RequestError) as first:
        compiler.constraint(structure)
    monkeypatch.setattr(trial, "_run", None)
    with pytest.raises(RequestError) as second:
        compiler.constraint(structure)
    assert str(first.value) == str(second.value)


def test_schemas_are_compiled_one_at_a_time_and_each_once(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = StructureCompiler(_TOKENIZER, _TOKENIZER.vocab_size)
    structures = [Structure.json_schema({"const": text}) for text in "abc"]
    inside: list[int] = []
    most: list[int] = []
    run = trial._run

    def counted(*given: Any) -> Any:
        inside.append(1)
        most.append(len(inside))
        try:
            return run(*given)
        finally:
            inside.pop()

    monkeypatch.setattr(trial, "_run", counted)
    with ThreadPoolExecutor(12) as threads:
        assert all(threads.map(compiler.constraint, structures * 4))
    assert most == [1, 1, 1]


def test_too_many_new_schemas_are_put_off_and_others_pass_by() -> None:
    compiler = StructureCompiler(_TOKENIZER, _TOKENIZER.vocab_size, max_waiting=0)
    with compiler.queue.turn():
        with pytest.raises(CapacityError, match="0 new structures wait: try again later"):
            compiler.constraint(Structure.json_schema({"const": "a"}))
        # These need no process of their own, and wait for nobody.
        for cheap in (Structure.json_object(), Structure.regex("a+"), Structure.choice(["a"])):
            assert compiler.constraint(cheap).mask().any()


class _GoneError(Exception):
    pass


def _gone() -> None:
    raise _GoneError


def test_nobody_compiles_for_a_client_that_left(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Any] = []
    popen = trial.subprocess.Popen

    def start(*given: Any, **named: Any) -> Any:
        started.append(popen([sys.executable, "-c", "import signal; signal.pause()"], **named))
        return started[0]

    monkeypatch.setattr(trial.subprocess, "Popen", start)
    compiler = StructureCompiler(_TOKENIZER, _TOKENIZER.vocab_size)
    with pytest.raises(_GoneError):
        compiler.constraint(Structure.json_schema({"const": "a"}), _gone)
    assert started[0].returncode == -signal.SIGKILL
    assert compiler.queue.waiting == 0
    with compiler.queue.turn(_gone):
        pass


def test_what_is_held_is_found_although_it_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = StructureCompiler(_TOKENIZER, _TOKENIZER.vocab_size, max_kept=1)
    structure = Structure.json_schema({"const": "a"})
    held = compiler.compiled(structure)
    compiler.constraint(Structure.regex("b"))
    monkeypatch.setattr(trial, "_run", None)
    assert compiler.compiled(structure) is held
    del held
    with pytest.raises(TypeError):
        compiler.compiled(structure)


def test_a_trial_gives_way_to_others() -> None:
    request = {
        "kind": "lark", "grammar": 'start: "a"', "options": OPTIONS, "special": {"256": "<end>"},
        "ends": [256], "vocab_size": 257, "limits": trial.COSTS, "seconds": 5, "memory": 1 << 30,
    }  # fmt: skip
    code = (
        "import os, runpy, sys; sys.argv = sys.argv[1:];"
        "runpy.run_path(sys.argv[0], run_name='__main__');"
        "sys.stderr.write(str(os.nice(0)))"
    )
    script = Path(trial.__file__).with_name("trial_process.py")
    folder = Path(str(importlib.util.find_spec("llguidance").origin)).parents[1]
    done = subprocess.run(
        [sys.executable, "-c", code, str(script), str(folder)],
        input=json.dumps(request), capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert json.loads(done.stdout) == {"lark": 'start: "a"'}
    assert int(done.stderr) >= os.nice(0) + 5
