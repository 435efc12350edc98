"""``AutoTokenizer`` on folders with a tokenizer and no model, side by side with transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from oxibonsai import AutoTokenizer, FormatError, RequestError, SourceError
from tokenizer_folders import FOLDERS

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.hf

PAIR = "Hello world, the tea"
OTHER = "isn't cafe\u0301!"
CALLS: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "pair": ((PAIR, OTHER), {"return_offsets_mapping": True, "return_token_type_ids": True}),
    "pairs": (([PAIR, "the"], [OTHER, "a"]), {"return_token_type_ids": True}),
    "plain": ((PAIR,), {"add_special_tokens": False}),
    "offsets": (([PAIR, OTHER],), {"return_offsets_mapping": True}),
    "special-mask": ((PAIR, OTHER), {"return_special_tokens_mask": True}),
    "cut": (([PAIR, OTHER],), {"truncation": True, "max_length": 7}),
    "cut-pair": ((PAIR, OTHER), {"truncation": True, "max_length": 11}),
}
PADDED: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "padded": (([PAIR, "the"],), {"padding": True}),
    "padded-left": (([PAIR, "the"],), {"padding": True, "padding_side": "left"}),
    "padded-and-cut": (
        ([PAIR, "a"],),
        {"padding": "max_length", "max_length": 8, "truncation": True},
    ),
    "padded-pairs": (
        ([PAIR, "the"], [OTHER, "a"]),
        {"padding": True, "return_token_type_ids": True},
    ),
}
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m.content }}{{ eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
MESSAGES = [{"role": "user", "content": "the tea"}, {"role": "assistant", "content": "is hot"}]


def both(folder: Path) -> tuple[Any, Any]:
    ours = AutoTokenizer.from_pretrained(folder)
    return ours, transformers.PreTrainedTokenizerFast.from_pretrained(folder)


@pytest.mark.parametrize("name", FOLDERS)
def test_encodings_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    ours, theirs = both(FOLDERS[name].write(tmp_path))
    calls = CALLS if theirs.pad_token is None else CALLS | PADDED
    for call, (args, options) in calls.items():
        assert dict(ours(*args, **options)) == dict(theirs(*args, **options)), call
    for text in FOLDERS[name].texts():
        encoded = ours(text, return_offsets_mapping=True)
        assert dict(encoded) == dict(theirs(text, return_offsets_mapping=True)), text
        assert encoded.sequence_ids() == theirs(text).sequence_ids()


@pytest.mark.parametrize("name", FOLDERS)
def test_texts_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    ours, theirs = both(FOLDERS[name].write(tmp_path))
    for text in FOLDERS[name].texts():
        ids = theirs(text).input_ids
        for skip in (False, True):
            assert ours.decode(ids, skip) == theirs.decode(ids, skip_special_tokens=skip), text
            plain = ours.decode(ids, skip, clean_up_tokenization_spaces=False)
            assert plain == theirs.decode(
                ids, skip_special_tokens=skip, clean_up_tokenization_spaces=False
            )


@pytest.mark.parametrize("name", FOLDERS)
def test_names_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    ours, theirs = both(FOLDERS[name].write(tmp_path))
    assert ours.special_tokens_map == theirs.special_tokens_map
    for kind in ("bos", "eos", "pad", "unk", "cls", "sep", "mask"):
        for suffix in ("token", "token_id"):
            found = getattr(theirs, f"{kind}_{suffix}")
            assert getattr(ours, f"{kind}_{suffix}") == found
    assert ours.get_vocab() == theirs.get_vocab()
    assert ours.get_added_vocab() == theirs.get_added_vocab()
    assert len(ours) == len(theirs)
    assert set(theirs.all_special_ids) <= set(ours.all_special_ids)
    assert ours.model_max_length == theirs.model_max_length
    assert ours.padding_side == theirs.padding_side
    assert ours.truncation_side == theirs.truncation_side
    assert ours.model_input_names == theirs.model_input_names
    for pair in (False, True):
        assert ours.num_special_tokens_to_add(pair) == theirs.num_special_tokens_to_add(pair)


@pytest.mark.parametrize("name", ["qwen2", "llama3", "gemma", "mistral"])
def test_conversations_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    folder = FOLDERS[name].write(tmp_path)
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    ours, theirs = both(folder)
    for options in ({}, {"add_generation_prompt": True}, {"tokenize": False}):
        found = ours.apply_chat_template(MESSAGES, **options)
        expected = theirs.apply_chat_template(MESSAGES, **options)
        assert found == (expected if isinstance(expected, str) else dict(expected))


def test_a_template_is_chosen_by_its_name(tmp_path: Path) -> None:
    folder = FOLDERS["qwen2"].write(tmp_path)
    (folder / "chat_template.jinja").write_text("default {{ messages[0].content }}")
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "tool_use.jinja").write_text("tools")
    ours, theirs = both(folder)
    assert ours.chat_template == theirs.chat_template
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    for options in ({}, {"chat_template": "tool_use"}, {"tools": tools}):
        found = ours.apply_chat_template(MESSAGES, tokenize=False, **options)
        assert found == theirs.apply_chat_template(MESSAGES, tokenize=False, **options)


@pytest.mark.parametrize(
    "templates",
    [TEMPLATE, [{"name": "default", "template": TEMPLATE}, {"name": "rag", "template": "x"}]],
    ids=["one", "several"],
)
def test_a_template_in_the_configuration(templates: Any, tmp_path: Path) -> None:
    folder = FOLDERS["llama3"].write(tmp_path)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(config | {"chat_template": templates}))
    ours, theirs = both(folder)
    found = ours.apply_chat_template(MESSAGES, tokenize=False)
    assert found == theirs.apply_chat_template(MESSAGES, tokenize=False)


def test_tokens_of_the_other_files_are_added(tmp_path: Path) -> None:
    """Those of ``added_tokens.json``, and named special tokens that the vocabulary lacks."""
    folder = FOLDERS["gpt2"].write(tmp_path)
    size = FOLDERS["gpt2"].make().get_vocab_size()
    (folder / "added_tokens.json").write_text(json.dumps({"<new>": size, "<pad>": size + 1}))
    special = {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>", "pad_token": "<pad>"}
    (folder / "special_tokens_map.json").write_text(json.dumps(special | {"unk_token": "<other>"}))
    (folder / "tokenizer_config.json").write_text("{}")
    ours, theirs = both(folder)
    assert ours.get_vocab() == theirs.get_vocab()
    for text in ("a <new> b<pad><other>", "<NEW>the<|endoftext|>"):
        assert ours(text).input_ids == theirs(text).input_ids
        assert ours.decode(ours(text).input_ids, True) == theirs.decode(
            theirs(text).input_ids, True
        )


def test_a_saved_tokenizer_is_the_same(tmp_path: Path) -> None:
    folder = FOLDERS["roberta"].write(tmp_path / "a")
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    ours = AutoTokenizer.from_pretrained(folder)
    ours.save_pretrained(tmp_path / "b")
    again = AutoTokenizer.from_pretrained(tmp_path / "b")
    view = ours.transformers_tokenizer
    for text in FOLDERS["roberta"].texts():
        assert again(text).input_ids == ours(text).input_ids == view(text).input_ids
    assert again.chat_template == ours.chat_template == TEMPLATE


def test_what_is_no_tokenizer_is_named(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="nor config"):
        AutoTokenizer.from_pretrained(tmp_path)
    folder = FOLDERS["gpt2"].write(tmp_path / "t")
    ours = AutoTokenizer.from_pretrained(folder)
    with pytest.raises(RequestError, match="no chat template"):
        ours.apply_chat_template(MESSAGES)
    config = folder / "tokenizer_config.json"
    for key, value in {
        "padding_side": "up", "model_max_length": "long", "bos_token": 5, "model_input_names": "ids",
        "added_tokens_decoder": {"x": {"content": "y"}}, "extra_special_tokens": "z",
    }.items():  # fmt: skip
        config.write_text(json.dumps({key: value}))
        with pytest.raises(
            FormatError, match=rf"t: {key.split('_')[0]}|{key}|id of an added token"
        ):
            AutoTokenizer.from_pretrained(folder)
