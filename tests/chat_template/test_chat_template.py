"""Chat templates: the text that Hugging Face renders, and what hostile ones may not do."""

from __future__ import annotations

import tracemalloc
from itertools import count
from types import SimpleNamespace

import pytest

from oxibonsai.chat_template import MAX_SOURCE, ChatTemplate, TooCostlyError, bounds
from oxibonsai.errors import FormatError, RequestError

MESSAGES = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Why is the sky blue? <b>&</b>"},
    {
        "role": "assistant",
        "content": "Scattering.",
        "tool_calls": [{"name": "f", "arguments": {"x": 1}}],
    },
    {"role": "user", "content": "Sure?"},
]
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]

TEMPLATES = [
    # ChatML with tools as JSON lines
    "{%- if tools %}{{- '<tools>' }}{%- for tool in tools %}{{- '\n' }}{{- tool | tojson }}{%- endfor %}"
    "{{- '</tools>\n' }}{%- endif %}{%- for m in messages %}{{- '<|im_start|>' + m.role + '\n' + m.content"
    " + '<|im_end|>\n' }}{%- endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}"
    "{%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\n\n</think>\n\n' }}"
    "{%- endif %}{%- endif %}",
    # roles in headers, loop variables, namespace, trimming
    "{{ bos_token }}{% set ns = namespace(turns=0) %}{% for m in messages %}\n"
    "    {% if loop.first and m['role'] == 'system' %}\n[{{ m['content'] | trim }}]\n"
    "    {% else %}\n{% set ns.turns = ns.turns + 1 %}<{{ m['role'] }} {{ ns.turns }}/{{ loop.length }}>"
    "{{ m['content'] }}{{ eos_token if loop.last else '' }}\n    {% endif %}\n{% endfor %}",
    # macros, slices, filters, string methods, generation tags, loop controls
    "{% macro turn(m) %}{{ m.role | upper }}: {{ m.content.split('?')[0] | replace('sky', 'sea') }}"
    "{% endmacro %}{% for m in messages[1:] %}{% if m.role == 'tool' %}{% continue %}{% endif %}"
    "{% generation %}{{ turn(m) ~ '\n' }}{% endgeneration %}{% endfor %}"
    "{{ messages | map(attribute='role') | join(', ') }} {{ range(3) | list }} {{ 7 // 2 * 3 }}",
    # what is safe in HTML joined to what is not
    "{% for m in messages %}{{ '<a>' ~ (m | tojson | safe) ~ '</a>' ~ m.content }}{% endfor %}",
]  # fmt: skip


@pytest.mark.hf
@pytest.mark.parametrize("source", TEMPLATES)
@pytest.mark.parametrize("tools", [None, TOOLS])
def test_the_text_is_that_of_transformers(
    source: str, tools: list[dict[str, object]] | None
) -> None:
    chat = pytest.importorskip("transformers.utils.chat_template_utils")
    expected = chat.render_jinja_template(
        conversations=[MESSAGES], tools=tools, chat_template=source, add_generation_prompt=True,
        bos_token="<s>", eos_token="</s>", enable_thinking=False,
    )[0][0]  # fmt: skip
    template = ChatTemplate(source, bos_token="<s>", eos_token="</s>")
    assert template.render(MESSAGES, tools=tools, enable_thinking=False) == expected


def test_chatml_is_there_for_models_without_a_template() -> None:
    text = ChatTemplate.chatml().render([{"role": "user", "content": "Hi"}])
    assert text == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"


def test_a_template_can_refuse_messages() -> None:
    with pytest.raises(RequestError, match="system message must be first"):
        ChatTemplate("{{ raise_exception('system message must be first') }}").render(MESSAGES)


@pytest.mark.parametrize(
    "source",
    [
        "{{ raise_exception('x' * 4000000) }}",
        "{{ messages[0]['x' * 4000000].y }}",
        "{{ " + "y" * 60000 + ".z }}",
        "{{ 1 | " + "y" * 60000 + " }}",
    ],
    ids=lambda s: s[:30],
)
def test_the_errors_of_a_template_are_short(source: str) -> None:
    with pytest.raises((RequestError, FormatError)) as caught:
        ChatTemplate(source).render(MESSAGES)
    assert len(str(caught.value)) < 600


def test_the_date_is_available() -> None:
    assert len(ChatTemplate("{{ strftime_now('%Y-%m-%d') }}").render(MESSAGES)) == 10
    assert ChatTemplate("{{ strftime_now('%% 5') }}").render(MESSAGES) == "% 5"


@pytest.mark.parametrize("pattern", ["'%250Y' * 800000", "'%Y' * 2000000", "'%_0250d'", "'%%%9d'"])
def test_a_date_is_as_short_as_any_other_value(pattern: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(
            TooCostlyError, match="it formats a date with a width, or with more than"
        ):
            ChatTemplate("{{ strftime_now(" + pattern + ") }}").render(MESSAGES)
        assert tracemalloc.get_traced_memory()[1] < 32 << 20
    finally:
        tracemalloc.stop()


HOSTILE = [
    "{% for i in range(10**9) %}{% endfor %}",
    "{% for a in 'x' * 9999 %}{% for b in 'x' * 9999 %}{% endfor %}{% endfor %}",
    "{% macro f(n) %}{{ f(n-1) ~ f(n-1) if n > 0 else 'x' }}{% endmacro %}{{ f(40) }}",
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "{% for i in [1] recursive %}{{ loop([1]) }}{{ loop([1]) }}{% endfor %}",
    "{% set ns = namespace(s='xx') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
    "{% set ns = namespace(s=[1]) %}{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
    "{% for i in range(100000) %}{{ 'x' * 1000 }}{% endfor %}",
    "{{ 'x' * 10**9 }}",
    "{{ 10**9 * 'x' }}",
    "{{ (1,) * 10**9 }}",
    "{{ 2 ** (10**9) }}",
    "{{ 'x' | center(10**9) }}",
    "{{ 'x' | indent(10**9) }}",
    "{{ 'x'.ljust(10**9) }}",
    "{{ 'x'.zfill(10**9) }}",
    "{{ '%1000000000d' % 3 }}",
    "{{ '%1000000000d' | format(3) }}",
    "{{ ('x' * 9999).replace('x', 'y' * 9999) }}",
    "{{ ('x' * 9999) | replace('x', 'y' * 9999) }}",
    "{{ ('y' * 9999).join('x' * 9999) }}",
    "{{ range(99999) | map('string') | map('replace', '0', 'x' * 99999) | list | length }}",
    "{{ ('x' * 4000000) | list | sort | length }}",
    "{{ messages | tojson(indent=10**9) }}",
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ cycler.__init__.__globals__ }}",
    "{{ messages.append(1) }}",
    "{{ messages[0].update({'role': 'x'}) }}",
    "{{ lipsum(1000) }}",
    "{% include '/etc/passwd' %}",
    "{% import 'os' as os %}",
    "{{ undefined.attribute.chain }}",
    "{% extends 'x' %}",
    "{{ self.__init__.__globals__ }}",
    "{{ joiner.__init__.__globals__ }}",
    "{{ messages[0].__getattribute__('items') }}",
    "{{ (messages | attr('append'))(1) }}",
    "{{ raise_exception.__globals__.os }}",
    "{{ '{0.__class__.__mro__}'.format('') }}",
    "{{ '{:>1000000000}'.format(1) }}",
    "{{ '{0:{1}}'.format(1, 10**9) }}",
    "{{ ('{0}' * 999).format('x' * 99999) }}",
    "{{ 'x'.encode() * 10**9 }}",
    "{{ (1).to_bytes(10**9, 'big') }}",
    "{{ 1.5 | round(10**9, 'ceil') }}",
    "{{ 1" + "0" * 5000 + " }}",
    "{% set ns = namespace(n=2**64) %}{% for i in range(60) %}{% set ns.n = ns.n * ns.n %}{% endfor %}",
    "{{ [[[1] * 9999] * 9999] * 9999 }}",
    "{{ [messages | tojson * 9999] * 99999 }}",
    "{% set n = namespace(s=[]) %}{% for i in range(60) %}{% set n.s = [n.s, n.s] %}{% endfor %}",
    "{% set ns = namespace(s={}) %}{% for i in range(60) %}{% set ns.s = {1: ns.s, 2: ns.s} %}{% endfor %}",
    "{% set n = namespace() %}{% for i in range(60) %}{% set n.s = dict(a=n.s, b=n.s) %}{% endfor %}",
    "{% set a = namespace() %}{% set a.a = a %}{% set a.b = a %}{{ a }}",
    "{{ range(99999) | select('in', [0] * 99999) | list }}",
    "{{ ([[1] * 300] * 300) | sum(start=[]) }}",
    "{{ ('<!--x-->' * 400000) | striptags }}",
    "{% set _tick = range %}{% for i in range(99999) %}{% for i in range(99999) %}{% endfor %}{% endfor %}",
    "{% macro a() %}{{ b() ~ b() }}{% endmacro %}{% macro b() %}{{ a() ~ a() }}{% endmacro %}{{ a() }}",
    "".join(f"{{% macro m{i}() %}}{{{{ m{i + 1}() ~ m{i + 1}() }}}}{{% endmacro %}}" for i in range(40))
    + "{% macro m40() %}x{% endmacro %}{{ m0() }}",
    "{% for a in 'x' %}" * 25 + "{% endfor %}" * 25,
    "{{ " + "(" * 2000 + "1" + ")" * 2000 + " }}",
    "{{ " + "-" * 20000 + "1 }}",
    "{{ cycler() }}",
    "x" * (1 << 20),
]  # fmt: skip


@pytest.mark.timeout(60)  # without a bound they take minutes, days or all memory
@pytest.mark.parametrize("source", HOSTILE, ids=lambda s: s[:60])
def test_hostile_templates_are_refused(source: str) -> None:
    with pytest.raises((RequestError, FormatError)):
        ChatTemplate(source).render(MESSAGES)


def test_a_template_ends_when_its_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = count(step=bounds.MAX_SECONDS / 100)
    clock = SimpleNamespace(monotonic=lambda: next(readings))
    monkeypatch.setattr(bounds, "time", clock)
    assert ChatTemplate("{% for i in range(30) %}x{% endfor %}").render(MESSAGES) == "x" * 30
    with pytest.raises(RequestError, match="it takes more than 1 s"):
        ChatTemplate("{% for i in range(300) %}x{% endfor %}").render(MESSAGES)


@pytest.mark.parametrize(
    "source",
    ["{{ '{0.__class__}'.format('') }}", "{{ messages.__class__ }}", "{{ range.__globals__ }}"],
)
def test_templates_reach_no_internals(source: str) -> None:
    assert ChatTemplate(source).render(MESSAGES) == ""


@pytest.mark.parametrize("source", TEMPLATES)
def test_a_conversation_of_a_million_characters_is_no_attack(source: str) -> None:
    long = [{"role": "user", "content": "word " * 100}] * 2000
    assert len(ChatTemplate(source).render(long)) > 1_000_000


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{{ '{:02d}|{}|{a!r}'.format(7, 'x', a='y') }}", "07|x|'y'"),
        ("{{ [3, 1, 2] | sort | join('-') }} {{ [1, 2] | sum }} {{ 2.567 | round(1) }}", "1-2-3 3 2.6"),
        ("{{ 'a\nb' | indent(2, true) }}", "  a\n  b"),
        ("{% for k, v in {'b': 1, 'a': [k0]} | dictsort %}{{ k }}{{ v }}{% endfor %}", "a['z']b1"),
        ("{{ 'aXb'.split('X')[::-1] | map('upper') | list }}", "['B', 'A']"),
    ],
)  # fmt: skip
def test_what_templates_compute_is_what_jinja_computes(source: str, text: str) -> None:
    assert ChatTemplate(source).render([], variables={"k0": "z"}) == text


@pytest.mark.parametrize("name", ["bos_token", "raise_exception", "range", "lipsum"])
def test_variables_of_the_template_cannot_be_overridden(name: str) -> None:
    with pytest.raises(RequestError, match=f"may not be called {name}"):
        ChatTemplate("{{ messages }}").render(MESSAGES, **{name: ""})


def test_sources_are_bounded_and_checked() -> None:
    with pytest.raises(FormatError, match="characters, more than"):
        ChatTemplate("x" * (MAX_SOURCE + 1))
    with pytest.raises(FormatError, match="no valid Jinja"):
        ChatTemplate("{% for %}").render(MESSAGES)


def test_variables_of_a_request_reach_the_template_and_replace_nothing() -> None:
    template = ChatTemplate(
        "{{ style }}{% for d in documents %}[{{ d.title }}]{% endfor %}{{ enable_thinking }}"
    )
    documents = [{"title": "A"}, {"title": "B"}]
    text = template.render(
        [], variables={"style": "s", "enable_thinking": True}, documents=documents
    )
    assert text == "s[A][B]True"
    for name in ("messages", "tools", "add_generation_prompt", "bos_token", "raise_exception"):
        with pytest.raises(RequestError, match=name):
            template.render([], variables={name: []})
    with pytest.raises(RequestError, match="enable_thinking is there twice"):
        template.render([], enable_thinking=False, variables={"enable_thinking": True})
