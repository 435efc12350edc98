"""Chat completions with ``store: true``, as OpenAI's client uses them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from model_app import close_model_app, make_model_app
from official import openai_client

from oxibonsai.server.server import Server


@pytest.fixture(scope="module")
def app(tiny_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    made = make_model_app(tiny_path, tmp_path_factory.mktemp("state"), api_key=["key", "other"])
    yield made
    close_model_app(made)


@pytest.fixture
def client(app: Server) -> Any:
    return openai_client(app)


def complete(client: Any, **fields: Any) -> Any:
    given = {
        "model": "tiny", "max_completion_tokens": 3, "temperature": 0, "store": True,
        "messages": [{"role": "user", "content": "hi"}], **fields,
    }  # fmt: skip
    return client.chat.completions.create(**given)


def test_a_completion_is_kept_as_it_was_given(client: Any) -> None:
    answer = complete(client, metadata={"topic": "a"}, n=2)
    kept = client.chat.completions.retrieve(answer.id)
    assert kept.choices == answer.choices
    assert kept.usage == answer.usage
    assert kept.metadata == {"topic": "a"}


def test_a_stream_is_kept_as_its_whole(client: Any) -> None:
    chunks = list(complete(client, stream=True))
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    kept = client.chat.completions.retrieve(chunks[0].id)
    assert kept.choices[0].message.content == text
    assert kept.choices[0].finish_reason == "length"


@pytest.mark.parametrize("store", [None, False])
def test_what_is_not_stored_is_not_found(client: Any, store: bool | None) -> None:
    import openai

    answer = complete(client, store=store)
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.retrieve(answer.id)


def test_completions_are_listed_by_metadata_the_oldest_first(app: Server, client: Any) -> None:
    pair = [complete(client, metadata={"list": "mine", "n": str(n)}).id for n in range(2)]
    complete(client, metadata={"list": "another"})
    found = client.chat.completions.list(metadata={"list": "mine"})
    assert [c.id for c in found] == pair
    newest = client.chat.completions.list(metadata={"list": "mine"}, order="desc", limit=1)
    assert [c.id for c in newest.data] == pair[1:]
    assert newest.has_more
    assert list(client.chat.completions.list(metadata={"list": "mine"}, model="else")) == []
    assert list(openai_client(app, "other").chat.completions.list()) == []


def test_metadata_is_changed_and_a_completion_is_deleted(client: Any) -> None:
    import openai

    answer = complete(client, metadata={"a": "b"})
    changed = client.chat.completions.update(answer.id, metadata={"c": "d"})
    assert changed.metadata == {"c": "d"}
    assert client.chat.completions.retrieve(answer.id).metadata == {"c": "d"}
    assert client.chat.completions.delete(answer.id).deleted
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.update(answer.id, metadata={})


def test_a_key_can_store_so_much_and_no_more(tiny_path: Path, tmp_path: Path) -> None:
    import openai

    app = make_model_app(tiny_path, tmp_path, api_key=["key", "other"], max_files_mb=0.002)
    try:
        full = openai_client(app, "key")
        message = {"role": "user", "content": "x" * 150}
        kept = [complete(full, messages=[message], metadata={"a": "b" * 500}) for _ in range(2)]
        stores = (
            lambda: complete(full),
            lambda: complete(full, stream=True),
            lambda: full.responses.create(model="tiny", input="hi", max_output_tokens=3),
            # Longer than the context: the room is looked at before the prompt is made.
            lambda: full.responses.create(model="tiny", input="long " * 10_000),
            lambda: full.conversations.create(),
        )
        for store in stores:
            with pytest.raises(
                openai.APIStatusError, match=r"--max-files-mb.*delete some"
            ) as refused:
                store()
            assert refused.value.status_code == 413
        for path, body in (
            ("/v1/assistants", {"model": "tiny"}),
            ("/v1/threads", {}),
            ("/v1/threads/thread_1/messages", {"role": "user", "content": "hi"}),
            ("/v1/threads/thread_1/runs", {"assistant_id": "asst_1"}),
            ("/v1/threads/runs", {"assistant_id": "asst_1"}),
            ("/v1/conversations/conv_1/items", {"items": []}),
            ("/v1/batches", {"input_file_id": "file-1"}),
            ("/v1/messages/batches", {"requests": []}),
        ):
            answer = app.test_client().post(path, json=body, headers={"X-Api-Key": "key"})
            assert (path, answer.status_code) == (path, 413)
        complete(full, store=False)
        complete(openai_client(app, "other"))
        full.chat.completions.delete(kept[0].id)
        complete(full)
    finally:
        close_model_app(app)


def test_messages_are_those_of_the_request(client: Any) -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": parts}]
    answer = complete(client, messages=messages)
    found = list(client.chat.completions.messages.list(answer.id))
    assert [m.id for m in found] == [f"{answer.id}-0", f"{answer.id}-1"]
    assert [m.content for m in found] == ["Be brief.", "one\ntwo"]
    assert found[0].content_parts is None
    assert [p.text for p in found[1].content_parts] == ["one", "two"]
    second = client.chat.completions.messages.list(answer.id, after=found[0].id)
    assert [m.id for m in second.data] == [found[1].id]
