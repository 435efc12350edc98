"""Vocabularies that RWKV and PLaMo 2 have in files of their own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import tiny_model
from oxibonsai.chat_template import compiled_template
from oxibonsai.checkpoint import Checkpoint
from oxibonsai.checkpoint.folder import ModelFolder
from oxibonsai.convert.text_tokenizer import tokenizer_keys
from oxibonsai.errors import FormatError, RequestError
from oxibonsai.tokenizer import Tokenizer

BYTE, CONTROL, NORMAL, UNKNOWN, UNUSED = 6, 3, 1, 2, 5
# Tokens that are no text are bytes; RWKV's file has either as a literal of Python's.
WORDS: list[str | bytes] = ["\n\n", "ab", 'it\'s "q"', "\\x", "\u2028y", "\u4f60", b"\xe4\xbd"]
SINGLES: list[str | bytes] = [bytes([b]) for b in range(256)]


def write_folder(folder: Path, name: str, content: str, vocab_size: int, **config: Any) -> Path:
    (folder / "config.json").write_text(json.dumps({"vocab_size": vocab_size}))
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / name).write_bytes(content.encode())
    return folder


def rwkv_folder(folder: Path, vocab_size: int = 266, **config: Any) -> Path:
    lines = []
    for i, token in enumerate(SINGLES + WORDS, 1):
        data = token.encode() if isinstance(token, str) else token
        lines.append(f"{i} {token!r} {len(data)}\n")
    return write_folder(folder, "rwkv_vocab_v20230424.txt", "".join(lines), vocab_size, **config)


ROWS: list[list[Any]] = [
    ["<|plamo:unk|>", 0.0, "UNKNOWN"], ["<|plamo:bos|>", 0.0, "CONTROL"], ["<|plamo:op|>", 0, "NORMAL"],
    *([f"<0x{b:02X}>", 0.0, "BYTE"] for b in range(256)),
    ["hello", -1.5, "NORMAL", "x", 1, 2, 3], ["\u4f60", -2.25], ["\u2028", -3, "NORMAL"],
]  # fmt: skip


def plamo_folder(folder: Path, vocab_size: int = 264) -> Path:
    content = "\n".join(json.dumps(row, ensure_ascii=False) for row in ROWS) + "\n\n"
    named = {"bos_token": "<|plamo:bos|>", "unk_token": "<|plamo:unk|>", "eos_token": None}
    return write_folder(folder, "tokenizer.jsonl", content, vocab_size, add_bos_token=True, **named)


def read(folder: Path) -> dict[str, Any]:
    return {
        k.removeprefix("tokenizer.ggml."): v
        for k, (v, _) in tokenizer_keys(ModelFolder(folder)).items()
    }


def tokenizer_of(folder: Path) -> Tokenizer:
    tiny_model.write(folder / "tiny.gguf", changes=tokenizer_keys(ModelFolder(folder)), tensors={})
    return Tokenizer.from_gguf(Checkpoint(folder / "tiny.gguf").file)


def test_rwkvs_tokens_get_the_escapes_of_gguf(tmp_path: Path) -> None:
    keys = read(rwkv_folder(tmp_path))
    tokens = keys["tokens"]
    assert (tokens[0], tokens[1], tokens[ord("a") + 1]) == ("<s>", "\\x00", "a")
    assert tokens[257:] == [
        "\\n\\n", "ab", 'it\\\'s "q"', "\\\\x", "\\xe2\\x80\\xa8y", "\\xe4\\xbd\\xa0", "\\xe4\\xbd",
        "[PAD264]", "[PAD265]",
    ]  # fmt: skip
    assert keys["token_type"] == [CONTROL, *[NORMAL] * 263, UNUSED, UNUSED]
    assert (keys["bos_token_id"], keys["eos_token_id"], keys["eot_token_id"]) == (0, 0, 257)


def test_rwkvs_texts_become_the_longest_tokens(tmp_path: Path) -> None:
    tokenizer = tokenizer_of(rwkv_folder(tmp_path))
    text = 'abab\n\n\n \u4f60a\\xit\'s "q"'
    ids = [258, 258, 257, 0x0B, 0x21, 262, 0x62, 260, 259]
    assert tokenizer.encode(text) == ids
    assert tokenizer.decode(ids) == text


@pytest.mark.parametrize(
    ("messages", "options", "wanted"),
    [
        ([("user", " Hi ")], {}, "<s>User: Hi\n\nAssistant:"),
        (
            [("system", "Be brief."), ("user", "A"), ("assistant", "<think>x</think> B "), ("user", "C")],
            {"enable_thinking": True},
            "<s>System: Be brief.\n\nUser: A\n\nAssistant: B\n\nUser: C\n\nAssistant: <think>",
        ),
        ([("user", "A")], {"enable_thinking": False}, "<s>User: A\n\nAssistant: <think>\n</think>"),
        (
            [("user", "A"), ("assistant", "B")],
            {"add_generation_prompt": False},
            "<s>User: A\n\nAssistant: B\n\n",
        ),
    ],
)  # fmt: skip
def test_rwkvs_folders_without_a_template_get_that_of_its_training(
    messages: list[tuple[str, str]], options: dict[str, Any], wanted: str, tmp_path: Path
) -> None:
    source = tokenizer_keys(ModelFolder(rwkv_folder(tmp_path)))["tokenizer.chat_template"][0]
    template = compiled_template(source, "<s>", "<s>")
    given = [{"role": role, "content": content} for role, content in messages]
    assert template.render(given, **options) == wanted


def test_rwkvs_template_refuses_what_it_would_leave_out(tmp_path: Path) -> None:
    source = tokenizer_keys(ModelFolder(rwkv_folder(tmp_path)))["tokenizer.chat_template"][0]
    given = [{"role": "user", "content": "A"}, {"role": "tool", "content": "21 degrees"}]
    with pytest.raises(RequestError, match="no form for results of tools"):
        compiled_template(source, "<s>", "<s>").render(given)


def test_a_template_of_the_folder_comes_first(tmp_path: Path) -> None:
    keys = tokenizer_keys(ModelFolder(rwkv_folder(tmp_path, chat_template="own")))
    assert keys["tokenizer.chat_template"] == ("own", "str")


def test_plamos_tokens_keep_scores_and_kinds(tmp_path: Path) -> None:
    keys = read(plamo_folder(tmp_path))
    assert keys["tokens"][:3] == [row[0] for row in ROWS[:3]]
    assert keys["tokens"][259:] == ["hello", "\u4f60", "\u2028", "[PAD1]", "[PAD2]"]
    assert keys["scores"][259:] == [-1.5, -2.25, -3.0, -1000.0, -1000.0]
    kinds = [UNKNOWN, CONTROL, CONTROL, *[BYTE] * 256, *[NORMAL] * 3, UNUSED, UNUSED]
    assert keys["token_type"] == kinds
    assert (keys["bos_token_id"], keys["unknown_token_id"], keys["eot_token_id"]) == (1, 0, 2)
    assert keys["add_bos_token"] is True
    assert tokenizer_of(tmp_path).encode("hello\u4f60!") == [1, 259, 260, 3 + ord("!")]


@pytest.mark.parametrize(
    "line",
    ["", "1", "1 'a'", "2 'a' 1", "1 'a' 2", "1 a 1", "1 3 1", "1 'a 1", "1 f'a' 1", "1 ['a'] 1",
     "1 " + "(" * 500 + " 1"],
)  # fmt: skip
def test_damaged_lines_of_rwkv_are_named(line: str, tmp_path: Path) -> None:
    write_folder(tmp_path, "rwkv_vocab_v20230424.txt", line, 4)
    with pytest.raises(FormatError, match="line 1"):
        read(tmp_path)


@pytest.mark.parametrize(
    "line",
    ["x", "3", "{}", "[]", '["a"]', "[1, 2]", '["a", "b"]', '["a", true]', '["a", NaN]', '["a", 1e999]',
     '["a", 1, "NONE"]', '["a", 1, []]', "[" * 5000],
)  # fmt: skip
def test_damaged_lines_of_plamo_are_named(line: str, tmp_path: Path) -> None:
    write_folder(tmp_path, "tokenizer.jsonl", f'["a", 1.0]\n{line}', 4)
    with pytest.raises(FormatError, match="line 2"):
        read(tmp_path)


@pytest.mark.parametrize("name", ["rwkv_vocab_v20230424.txt", "tokenizer.jsonl"])
def test_no_file_has_more_tokens_than_the_table_rows(name: str, tmp_path: Path) -> None:
    (rwkv_folder if "rwkv" in name else plamo_folder)(tmp_path, 200)
    with pytest.raises(FormatError, match="outside the vocabulary of 200"):
        read(tmp_path)
    (tmp_path / name).write_bytes(b"\xff\n")
    with pytest.raises(FormatError, match=name):
        read(tmp_path)
