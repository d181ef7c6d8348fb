"""Promises: who has one, what the policy is asked for, who has to run now."""

from __future__ import annotations

import numpy as np
import pytest

from bidbrain.cluster.deadline_admission import ActiveJobs, DeadlinePromises, TraceDemand
from bidbrain.cluster.round_reservation import RoundClock

ROUNDS = RoundClock(100.0, 5.0)
WORKERS = np.array([4.0, 3.0])
RATES = np.array([[1.0, 4.0], [1.0, 4.0], [1.0, 4.0]])


class Policy:
    """Remembers what it was asked for; says that those in ``short`` fall short of it."""

    def __init__(self, short: frozenset[int] = frozenset()) -> None:
        self.short = short
        self.asked: list[list[float]] = []

    def __call__(self, slo_s: np.ndarray) -> frozenset[int]:
        self.asked.append(slo_s.tolist())
        return self.short


def make_promises(
    due_s: list[float], scale: list[int], rounds: RoundClock | None = ROUNDS
) -> DeadlinePromises:
    return DeadlinePromises(TraceDemand(np.array(due_s), np.array(scale), RATES), WORKERS, rounds)


def moment(now: float, steps: list[float]) -> ActiveJobs:
    return ActiveJobs(now, np.arange(3), np.array(steps))


def test_speeds_are_asked_for_ahead_of_time_as_far_as_there_is_time_to_spare() -> None:
    """900 s of work until 1000 s: two rounds and 5 % for restarts are more than is to spare; 100 s: not."""
    promises, policy = make_promises([1000.0, 1000.0, np.inf], [1, 1, 1]), Policy()
    promises.admit_newcomers(moment(0.0, [3600.0, 400.0, 1.0]), np.arange(3), policy)
    assert policy.asked == [[pytest.approx(900.0), pytest.approx(750.0), np.inf]]
    assert promises.given.tolist() == [True, True, False]


def test_reserves_shrink_where_deadlines_cannot_be_kept_with_them() -> None:
    promises, policy = make_promises([1000.0, np.inf, np.inf], [1, 1, 1]), Policy(frozenset([0]))
    promises.admit_newcomers(moment(0.0, [400.0, 400.0, 1.0]), np.array([0]), policy)
    assert [slo[0] for slo in policy.asked] == pytest.approx([750.0, 875.0, 1000.0])
    assert promises.given.tolist() == [True, False, False]


def test_who_comes_when_there_is_no_room_has_no_promise() -> None:
    """Two of two workers each, on three, for 750 s before 1000 s; on the slow type they take 3000 s."""
    promises, policy = make_promises([1000.0, 1000.0, 2000.0], [2, 2, 2]), Policy()
    promises.admit_newcomers(moment(0.0, [3000.0, 3000.0, 3000.0]), np.arange(3), policy)
    assert promises.given.tolist() == [True, False, True]
    assert policy.asked == [[pytest.approx(750.0), np.inf, pytest.approx(1700.0)]]


def test_who_was_quick_makes_room() -> None:
    promises = make_promises([1000.0, 1000.0, np.inf], [2, 2, 2])
    promises.admit_newcomers(moment(0.0, [3000.0, 1.0, 1.0]), np.array([0]), Policy())
    promises.admit_newcomers(moment(200.0, [1000.0, 1500.0, 1.0]), np.array([1]), Policy())
    assert promises.given.tolist() == [True, True, False]


def test_who_has_come_to_the_rounds_set_aside_has_to_run() -> None:
    """100 s of work on the fast type and a restart: the last two rounds, one once 380 steps are left."""
    promises = make_promises([1000.0, 1000.0, np.inf], [1, 2, 1])
    promises.admit_newcomers(moment(0.0, [400.0, 400.0, 400.0]), np.arange(3), Policy())
    assert not promises.must_run_now(moment(700.0, [400.0, 400.0, 400.0])).any()
    where = promises.must_run_now(moment(800.0, [400.0, 380.0, 400.0]))
    assert where.tolist() == [[False, True], [False, False], [False, False]]
    assert promises.must_run_now(moment(900.0, [380.0, 380.0, 400.0]))[:2, 1].all()


def test_without_rounds_promises_are_speeds_that_cost_no_older_promise() -> None:
    promises, policy = make_promises([1000.0, 2000.0, np.inf], [1, 1, 1], None), Policy()
    promises.admit_newcomers(moment(0.0, [400.0, 400.0, 1.0]), np.array([0]), policy)
    policy.short = frozenset([1])
    promises.admit_newcomers(moment(0.0, [400.0, 400.0, 1.0]), np.array([1, 2]), policy)
    assert promises.given.tolist() == [True, False, False]
    assert policy.asked[-1] == [1000.0, np.inf, np.inf]
    assert not promises.must_run_now(moment(990.0, [400.0, 400.0, 1.0])).any()
