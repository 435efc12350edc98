"""RWKV's vocabularies: a text file with a token a line, as a literal of Python's."""

from __future__ import annotations

import ast
from pathlib import Path

from oxibonsai.errors import FormatError
from oxibonsai.tokenizer.files.tokens import Keys, placed_tokens, read_text
from oxibonsai.tokenizer.vocabulary import CONTROL, NORMAL, Vocabulary

FILE = "rwkv_vocab_v20230424.txt"
_FIRST = "<s>"  # token 0, before those of the file: where texts begin and end
_TURN = "\\n\\n"  # with GGUF's escapes; ends a turn
# Of models whose folders have none: what they are trained on.
_TEMPLATE = """\
{{- bos_token -}}
{%- set system = messages | selectattr('role', 'equalto', 'system') | map(attribute='content') | list -%}
{%- if system and system[-1] %}{{ 'System: ' ~ system[-1] ~ '\\n\\n' }}{% endif -%}
{%- for message in messages -%}
{%- if message.role == 'user' %}{{ 'User: ' ~ message.content | trim ~ '\\n\\n' }}
{%- elif message.role == 'assistant' and message.content is not none -%}
{{ 'Assistant: ' ~ message.content.split('</think>')[-1] | trim ~ '\\n\\n' }}
{%- elif message.role == 'tool' %}{{ raise_exception('it has no form for results of tools') }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt is not defined or add_generation_prompt -%}
{{ 'Assistant:' }}
{%- if enable_thinking is defined %}{{ ' <think>' ~ ('' if enable_thinking else '\\n</think>') }}{% endif %}
{%- endif -%}
"""


def rwkv_keys(folder: Path, vocab_size: int) -> Keys:
    """Return the tokenizer's keys.

    Args:
        folder: Has ``rwkv_vocab_v20230424.txt``: a line is an id from 1 on, a literal of a text or of
            bytes, and its length in bytes.
        vocab_size: Rows of the model's table; ids without a text are filled up.

    Raises:
        FormatError: A line is none of these.
    """
    path = folder / FILE
    lines = read_text(path).removesuffix("\n").split("\n")
    entries = [(_FIRST, 0, CONTROL)]
    for number, line in enumerate(lines, 1):
        token = _token(line, number)
        if token is None:
            raise FormatError(f"{path}, line {number}: {line[:80]!r} is no id, token and length")
        entries.append((repr(token)[2:-1], number, NORMAL))
    texts, types = placed_tokens(str(path), entries, vocab_size)
    keys: Keys = {
        "tokenizer.ggml.model": ("rwkv", "str"),
        "tokenizer.ggml.tokens": (texts, "arr[str]"),
        "tokenizer.ggml.token_type": (types, "arr[i32]"),
        "tokenizer.ggml.bos_token_id": (0, "u32"),
        "tokenizer.ggml.eos_token_id": (0, "u32"),
        "tokenizer.chat_template": (_TEMPLATE, "str"),
    }
    if _TURN in texts:
        keys["tokenizer.ggml.eot_token_id"] = (texts.index(_TURN), "u32")
    return keys


def _token(line: str, number: int) -> bytes | None:
    """Return the bytes of a line's token; None where the line is damaged."""
    index, _, rest = line.partition(" ")
    literal, _, length = rest.rpartition(" ")
    try:
        token = ast.literal_eval(literal)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    if isinstance(token, str):
        token = token.encode("utf-8", "surrogatepass")
    if not isinstance(token, bytes) or index != str(number) or length != str(len(token)):
        return None
    return token


def rwkv_file(vocabulary: Vocabulary) -> str:
    """Return RWKV's own file: an id, a literal of bytes and their number a line."""
    kinds = zip(vocabulary.texts, vocabulary.types, strict=True)
    tokens = [(i, _bytes_of(text)) for i, (text, kind) in enumerate(kinds) if kind == NORMAL]
    return "".join(f"{i} {token!r} {len(token)}\n" for i, token in tokens)


def _bytes_of(text: str) -> bytes:
    """Return the bytes whose repr, without its quotes, a token's text is."""
    for quote in ("'", '"'):  # repr takes the one that need not be escaped
        try:
            token: bytes = ast.literal_eval(f"b{quote}{text}{quote}")
        except SyntaxError:
            continue
        return token
    raise FormatError(f"the token {text!r} is no text with Python's escapes")
