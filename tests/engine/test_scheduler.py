"""Who runs next: every text that grows, then prompts within a budget, first come first."""

from __future__ import annotations

import pytest

from oxibonsai import SamplingParams
from oxibonsai.engine.scheduler import PromptBudget, schedule
from oxibonsai.engine.sequence import Options, Sequence


def sequence(tokens: int, computed: int, draft: list[int] | None = None) -> Sequence:
    s = Sequence(list(range(tokens)), SamplingParams(), Options())
    s.num_computed = computed
    s.draft = draft or []
    return s


def rows(running: list[Sequence], max_rows: int = 256, prompt_rows: int = 256) -> list[tuple]:
    chunks = schedule(running, max_rows, prompt_rows)
    return [(running.index(c.sequence), c.first, c.count, c.reaches_end) for c in chunks]


def test_growing_texts_run_always_and_prompts_share_the_rest_in_the_order_of_arrival() -> None:
    running = [sequence(300, 0), sequence(10, 9), sequence(50, 0), sequence(5, 4)]
    assert rows(running) == [(1, 9, 1, True), (3, 4, 1, True), (0, 0, 254, False)]
    running[0].num_computed = 254
    assert rows(running)[2:] == [(0, 254, 46, True), (2, 0, 50, True)]


def test_prompts_hold_back_only_beside_growing_texts() -> None:
    assert rows([sequence(300, 0)], prompt_rows=8) == [(0, 0, 256, False)]
    assert rows([sequence(300, 0), sequence(4, 3)], prompt_rows=8)[1] == (0, 0, 8, False)


def test_proposed_tokens_count_as_rows() -> None:
    running = [sequence(10, 9, draft=[1, 2, 3]), sequence(100, 0)]
    chunks = schedule(running, 20, 20)
    assert [c.rows for c in chunks] == [4, 16]
    assert [c.outputs for c in chunks] == [4, 0]


def steps(budget: PromptBudget, cost: float, count: int) -> list[int]:
    """Rows of prompts in steps of a machine where one takes 10 units and each such row more."""
    budget.observe(4, 0, 10.0)
    found = []
    for _ in range(count):
        found.append(budget.rows)
        budget.observe(4, found[-1], 10.0 + cost * found[-1])
    return found


@pytest.mark.parametrize("cost", [0.1, 1.0, 2.5])
def test_the_budget_for_prompts_settles_where_a_step_takes_the_allowed_time(cost: float) -> None:
    found = [n for n in steps(PromptBudget(allowed=1.8, most=256), cost, 200)[50:] if n > 0]
    assert set(found) <= {int(8.0 / cost), int(8.0 / cost) + 1}
    assert sum(found) / len(found) == pytest.approx(8.0 / cost, rel=0.05)


@pytest.mark.parametrize(("cost", "share"), [(10.0, 0.8), (20.0, 0.4), (1e4, 0.125)])
def test_where_one_row_takes_longer_only_some_steps_have_one(cost: float, share: float) -> None:
    found = steps(PromptBudget(allowed=1.8), cost, 300)[100:]
    assert set(found) == {0, 1}
    assert sum(found) / len(found) == pytest.approx(share, abs=0.1)


def test_one_slow_step_changes_nothing() -> None:
    budget = PromptBudget()
    before = max(steps(budget, 1.0, 50)[-3:])
    budget.observe(4, before, 1000.0)
    budget.observe(4, 0, 1000.0)
    assert abs(budget.rows - before) <= 1


def test_a_step_without_prompts_comes_now_and_then_to_see_how_long_one_takes() -> None:
    assert 0 in steps(PromptBudget(), 1.0, 20)


def test_one_row_of_a_prompt_is_no_next_token() -> None:
    reading, growing = schedule([sequence(9, 3), sequence(5, 4)], 256, 1)[::-1]
    assert (reading.rows, reading.reads_prompt) == (1, True)
    assert (growing.rows, growing.reads_prompt) == (1, False)


def test_a_step_of_prompts_alone_teaches_nothing() -> None:
    budget = PromptBudget()
    before = budget.rows
    budget.observe(0, 256, 100.0)
    assert budget.rows == before
