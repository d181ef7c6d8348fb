"""Promises: who has one, what the policy is asked for, who may not wait."""

from __future__ import annotations

import numpy as np
import pytest

from bidbrain.promised import Moment, Pace, Promises

ROUND_S, SWITCH_S = 100.0, 5.0
WORKERS = np.array([4.0, 3.0])
RATES = np.array([[1.0, 4.0], [1.0, 4.0], [1.0, 4.0]])


class Policy:
    """Remembers what it was asked for; says that those in ``short`` fall short of it."""

    def __init__(self, short: frozenset[int] = frozenset()) -> None:
        self.short = short
        self.asked: list[tuple[list[float], list[float]]] = []

    def __call__(self, slo_s: np.ndarray, taken: np.ndarray) -> frozenset[int]:
        self.asked.append((slo_s.tolist(), taken.tolist()))
        return self.short


def of(due_s: list[float], scale: list[int]) -> Promises:
    return Promises(Pace(np.array(due_s), np.array(scale), RATES), WORKERS, ROUND_S, SWITCH_S)


def moment(now: float, steps: list[float]) -> Moment:
    return Moment(now, np.arange(3), np.array(steps))


def test_a_newcomer_has_to_be_worth_the_whole_reserve_and_spends_it_later() -> None:
    """1000 s from now, 900 s of work: two rounds and 5 % for restarts are more than there is to spare."""
    promises, policy = of([1000.0, np.inf, np.inf], [1, 1, 1]), Policy()
    promises.settle(moment(0.0, [3600.0, 1.0, 1.0]), np.arange(3), policy)
    assert policy.asked[0][0] == [pytest.approx(750.0), np.inf, np.inf]
    assert policy.asked[-1][0] == [pytest.approx(900.0), np.inf, np.inf]
    assert promises.given.tolist() == [True, False, False]


def test_who_falls_short_has_no_promise_and_reserves_shrink_before_promises() -> None:
    promises, policy = of([1000.0, 2000.0, np.inf], [1, 1, 1]), Policy()
    promises.settle(moment(0.0, [400.0, 400.0, 1.0]), np.array([0]), policy)
    policy.short = frozenset([1])
    promises.settle(moment(0.0, [400.0, 400.0, 1.0]), np.array([1, 2]), policy)
    assert promises.given.tolist() == [True, False, False]
    policy.short = frozenset([0])
    policy.asked.clear()
    promises.settle(moment(0.0, [400.0, 400.0, 1.0]), np.array([], np.int64), policy)
    assert [slo[0] for slo, _ in policy.asked] == pytest.approx([750.0, 875.0, 1000.0])


def test_large_jobs_are_promised_only_workers_that_nobody_else_has() -> None:
    """Two of two workers each, on three, both for the last 250 s before 1000 s; a third one later."""
    promises, policy = of([1000.0, 1000.0, 2000.0], [2, 2, 2]), Policy()
    promises.settle(moment(0.0, [1000.0, 1000.0, 1000.0]), np.arange(3), policy)
    assert promises.given.tolist() == [True, False, True]
    assert [0.0, 2.0] in [taken for _, taken in policy.asked]


def test_who_has_less_than_two_rounds_to_spare_is_pressed() -> None:
    promises, policy = of([1000.0, 1000.0, np.inf], [1, 2, 1]), Policy()
    promises.settle(moment(0.0, [400.0, 400.0, 400.0]), np.arange(3), policy)
    assert not promises.pressed(moment(600.0, [400.0, 400.0, 400.0])).any()
    where = promises.pressed(moment(700.0, [400.0, 400.0, 400.0]))
    assert where.tolist() == [[False, True], [False, True], [False, False]]
    assert not promises.pressed(moment(950.0, [400.0, 400.0, 400.0])).any()
