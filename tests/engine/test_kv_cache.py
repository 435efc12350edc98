"""The page table's rules: users counted, equal prefixes shared, nothing lost, nothing used twice."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oxibonsai.engine.kv_cache import KvCache
from oxibonsai.engine.page_table import PAGE_POSITIONS, PageTable
from oxibonsai.errors import CapacityError


@dataclass
class Pool:
    """Stands for the memory of pages; remembers what was done to it."""

    pages: int = 6
    page_bytes: int = 100
    copies: list[tuple[int, int]] = field(default_factory=list)
    released: list[int] = field(default_factory=list)

    def copy(self, source: int, target: int) -> None:
        self.copies.append((source, target))

    def release(self, page: int) -> None:
        self.released.append(page)


def cache_of(*pools: Pool, budget: int = 600, keep: bool = True) -> KvCache:
    return KvCache(list(pools), budget, keep=keep)  # type: ignore[arg-type]


TEXT = list(range(1000))


def filled(cache: KvCache, tokens: list[int]) -> PageTable:
    table = cache.find(tokens)
    cache.extend(table, len(tokens))
    cache.remember(table, tokens, len(tokens))
    return table


def test_equal_beginnings_share_full_pages() -> None:
    cache = cache_of(Pool())
    first = filled(cache, TEXT[:150])
    second = cache.find([*TEXT[:140], 7, 7])
    assert second.pages == first.pages[:2]
    cache.release(first)
    cache.release(second)
    assert cache.used_bytes == 0
    assert cache.idle_pages == 2  # the third was never full
    assert len(cache.find(TEXT[:150]).pages) == 2


def test_one_token_is_always_left_to_compute() -> None:
    cache = cache_of(Pool())
    cache.release(filled(cache, TEXT[: 2 * PAGE_POSITIONS]))
    assert len(cache.find(TEXT[: 2 * PAGE_POSITIONS]).pages) == 1
    assert len(cache.find(TEXT[: 2 * PAGE_POSITIONS + 1]).pages) == 2


def test_a_page_depends_on_all_that_comes_before_it() -> None:
    cache = cache_of(Pool())
    cache.release(filled(cache, TEXT[: 3 * PAGE_POSITIONS]))
    assert cache.find([5, *TEXT[1 : 3 * PAGE_POSITIONS]]).pages == []
    assert cache.find(TEXT[: 3 * PAGE_POSITIONS], root=b"adapter").pages == []


def test_the_least_recently_used_goes_first_and_the_end_of_a_text_before_its_beginning() -> None:
    cache = cache_of(Pool())
    old = [*TEXT[: 3 * PAGE_POSITIONS], 0]
    new = [*TEXT[500 : 500 + 2 * PAGE_POSITIONS], 0]
    cache.release(filled(cache, old))
    cache.release(filled(cache, new))
    assert cache.idle_pages == 5
    big = PageTable()
    cache.extend(big, 3 * PAGE_POSITIONS)  # one free page, then the two last of the old text
    assert len(cache.find(new).pages) == 2
    assert len(cache.find(old).pages) == 1


def test_a_shared_page_is_copied_before_it_is_written() -> None:
    pool = Pool()
    cache = cache_of(pool)
    table = filled(cache, TEXT[:100])
    child = cache.fork(table, 100)
    assert child.pages == table.pages
    cache.make_writable(child, 100, 100)
    assert pool.copies == [(table.pages[1], child.pages[1])]
    cache.make_writable(table, 100, 100)  # now alone
    assert len(pool.copies) == 1
    assert child.pages[0] == table.pages[0]


def test_a_page_that_is_known_by_its_tokens_keeps_them_when_a_text_goes_back() -> None:
    pool = Pool()
    cache = cache_of(pool)
    table = filled(cache, TEXT[:200])
    known = list(table.pages)
    assert cache.rewind(table, 150) == 150
    assert table.pages == known[:3]
    cache.make_writable(table, 150, 170)  # other tokens may follow
    assert pool.copies == [(known[2], table.pages[2])]
    cache.remember(table, [*TEXT[:150], *TEXT[500:542]], 192)
    cache.release(table)
    assert cache.find(TEXT[:200]).pages == known[:3]
    assert cache.find([*TEXT[:150], *TEXT[500:600]]).pages[:2] == known[:2]


def test_a_full_cache_says_so_and_changes_nothing() -> None:
    cache = cache_of(Pool())
    table = PageTable()
    cache.extend(table, 5 * PAGE_POSITIONS)
    before = list(table.pages)
    with pytest.raises(CapacityError, match="2 more pages of 64 positions needed, 1 free"):
        cache.extend(table, 7 * PAGE_POSITIONS)
    assert table.pages == before


def test_without_keeping_nothing_is_found() -> None:
    cache = cache_of(Pool(), keep=False)
    cache.release(filled(cache, TEXT[:150]))
    assert cache.idle_pages == 0
    assert cache.find(TEXT[:150]).pages == []


def test_types_share_one_budget_and_give_memory_back() -> None:
    large, small = Pool(pages=3, page_bytes=200), Pool(pages=6, page_bytes=100)
    cache = cache_of(large, small)
    first = PageTable(pool=0)
    cache.extend(first, 2 * PAGE_POSITIONS)
    assert cache.free_pages(1) == 2
    second = PageTable(pool=1)
    cache.extend(second, 2 * PAGE_POSITIONS)
    assert cache.free_pages(0) == cache.free_pages(1) == 0
    cache.release(first)
    assert sorted(large.released) == [0, 1]
    assert cache.free_pages(0) == 2


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 260), st.integers(0, 2)), max_size=40))
@settings(deadline=None)
def test_pages_in_use_are_never_given_to_another(actions: list[tuple[int, int, int]]) -> None:
    """Any order of texts coming, forking and going leaves every page with one writer."""
    pool = Pool(pages=12)
    cache = cache_of(pool, budget=1200)
    live: list[tuple[PageTable, list[int]]] = []
    for action, length, which in actions:
        if action == 0 or not live:
            text = TEXT[which : which + length]
            table = cache.find(text)
            try:
                cache.extend(table, length)
            except CapacityError:
                cache.release(table)
                continue
            first = len(table.keys) * PAGE_POSITIONS
            cache.make_writable(table, first, length - 1)
            cache.remember(table, text, length)
            live.append((table, text))
        elif action == 1:
            table, text = live[which % len(live)]
            live.append((cache.fork(table, len(text)), text))
        elif action == 2:
            cache.release(live.pop(which % len(live))[0])
        else:
            table, text = live[which % len(live)]
            last = len(text) - 1
            try:
                cache.make_writable(table, last, last)
            except CapacityError:
                continue
            page = table.pages[last // PAGE_POSITIONS]
            assert sum(page in t.pages for t, _ in live) == 1
        used = {p for t, _ in live for p in t.pages}
        assert cache.used_bytes == 100 * len(used)
        assert cache.used_bytes + 100 * (cache.free_pages()) == 1200
        for table, text in live:
            assert len(table.pages) == -(-len(text) // PAGE_POSITIONS)
    for table, _ in live:
        cache.release(table)
    cache.clear()
    assert cache.used_bytes == 0
    assert cache.free_pages() == 12
