"""State beside the pools: budgets of memory and disk, files that are whole and ours, or ignored."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from oxibonsai.engine.state_store import Entry, StateFolder, StateKey, StateStore

MODEL = "a model"


def page(number: int) -> StateKey:
    return StateKey("page", "f16", bytes([number]) * 16)


def snapshot(number: int) -> StateKey:
    return StateKey("snapshot", "f16", bytes([number]) * 16)


def state(number: int) -> Entry:
    """Two parts, of 100 bytes together."""
    return Entry((bytes([number]) * 70, bytes([number]) * 30), parent=b"before", length=number)


def kept(store: StateStore, keys: list[StateKey]) -> list[bool]:
    return [store.get(key) is not None for key in keys]


@pytest.fixture
def folder(tmp_path: Path) -> Callable[..., StateFolder]:
    return lambda limit=10**6, model=MODEL: StateFolder(tmp_path, model, limit)


def test_the_least_recently_used_go_where_memory_ends() -> None:
    store = StateStore(250, 10)
    for i in (1, 2):
        store.put(snapshot(i), state(i))
    assert store.get(snapshot(1)) == state(1)
    store.put(snapshot(3), state(3))
    assert kept(store, [snapshot(1), snapshot(2), snapshot(3)]) == [True, False, True]
    assert (store.used_bytes, store.num_snapshots, store.counts.dropped) == (200, 2, 1)
    assert store.lengths("f16", b"before") == [3, 1]
    store.put(page(9), Entry((bytes(1000),)))
    assert kept(store, [page(9), snapshot(1), snapshot(3)]) == [False, True, True]


def test_snapshots_are_no_more_than_their_number_and_pages_do_not_count() -> None:
    store = StateStore(10**6, 2)
    store.put(page(1), state(1))
    for i in (1, 2, 3):
        store.put(snapshot(i), state(i))
    assert kept(store, [page(1), *map(snapshot, (1, 2, 3))]) == [True, False, True, True]


def test_what_memory_has_no_room_for_lies_on_disk_and_is_there_after_a_start(
    folder: Callable[..., StateFolder],
) -> None:
    store = StateStore(250, 10, folder())
    for i in range(1, 6):
        store.put(snapshot(i), state(i))
    assert [store.get(snapshot(i)) for i in range(1, 6)] == [state(i) for i in range(1, 6)]
    assert store.used_bytes <= 250
    store.flush()
    assert store.counts.spilled_bytes == 500
    again = StateStore(250, 10, folder())
    assert again.lengths("f16", b"before") == [5, 4, 3, 2, 1]
    assert [again.get(snapshot(i)) for i in range(1, 6)] == [state(i) for i in range(1, 6)]
    assert again.counts.restored_bytes == 500
    assert again.drop(snapshot(2))
    assert again.get(snapshot(2)) is None
    again.clear()
    assert StateStore(250, 10, folder()).lengths("f16", b"before") == []


def test_disk_has_a_limit_too(folder: Callable[..., StateFolder], tmp_path: Path) -> None:
    one = StateStore(0, 10, folder())
    one.put(snapshot(1), state(1))
    one.flush()
    (file,) = tmp_path.glob("*/*")
    size = file.stat().st_size
    store = StateStore(100, 10, folder(3 * size + 10))
    for i in range(1, 7):
        store.put(snapshot(i), state(i))
    store.flush()
    assert sum(f.stat().st_size for f in tmp_path.glob("*/*")) <= 3 * size + 10
    assert kept(store, [snapshot(1), snapshot(5), snapshot(6)]) == [False, True, True]
    assert store.lengths("f16", b"before") == [6, 5, 4]


def test_a_damaged_file_is_ignored_with_a_line_in_the_log(
    folder: Callable[..., StateFolder], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = StateStore(0, 10, folder())
    store.put(snapshot(1), state(1))
    store.flush()
    (file,) = tmp_path.glob("*/*")
    whole = file.read_bytes()
    for at in range(len(whole)):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            assert StateStore(0, 10, folder()).get(snapshot(1)) is None, at
        assert "ignored in the prefix cache" in caplog.text
    for length in range(len(whole)):
        file.write_bytes(whole[:length])
        assert StateStore(0, 10, folder()).get(snapshot(1)) is None, length


def test_a_file_of_another_model_or_name_is_ignored(
    folder: Callable[..., StateFolder], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = StateStore(0, 10, folder())
    store.put(snapshot(1), state(1))
    store.flush()
    (file,) = tmp_path.glob("*/*")
    other = StateStore(0, 10, folder(model="another"))
    assert other.get(snapshot(1)) is None
    other.put(snapshot(2), state(2))
    other.flush()
    theirs = next(f for f in tmp_path.glob("*/*") if f != file)
    theirs.rename(file.with_name(theirs.name))
    file.rename(file.with_name(snapshot(3).file_name))
    with caplog.at_level(logging.WARNING):
        store = StateStore(0, 10, folder())
    assert kept(store, [snapshot(1), snapshot(2), snapshot(3)]) == [False, False, False]
    assert caplog.text.count("another model, or under another name") == 2


def test_a_disk_that_fails_leaves_no_half_file(
    folder: Callable[..., StateFolder], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = StateStore(0, 10, folder())

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(Path, "replace", fail)
    store.put(snapshot(1), state(1))
    store.flush()
    assert store.get(snapshot(1)) is None
    assert list(tmp_path.glob("*/*")) == []
    assert (store.counts.dropped, store.counts.spilled_bytes) == (1, 0)
