"""Rounds set aside: as late as can be, in time whatever else happens, never more than there is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bidbrain.cluster.round_reservation import Reservation, RoundClock, reserve_rounds

ROUNDS = RoundClock(100.0, 5.0)
RATES = np.array([1.0, 4.0])


def test_the_latest_rounds_that_do_the_work_and_their_restart() -> None:
    """10 rounds, 4 steps a second: 780 steps are two rounds less a restart, one step more is a third."""
    free = np.full((10, 2), 1)
    found = reserve_rounds(free, 7, 779.0, RATES, 1, ROUNDS)
    assert found is not None
    assert (found.first, found.place.tolist()) == (15, [1, 1])
    assert found.sure.tolist() == [780.0, 380.0, 0.0]
    longer = reserve_rounds(free, 7, 781.0, RATES, 1, ROUNDS)
    assert longer is not None
    assert longer.first == 14


def test_rounds_without_room_are_passed_over_at_the_price_of_a_restart() -> None:
    free = np.array([[2, 2], [2, 2], [1, 1], [2, 1], [2, 2]])
    found = reserve_rounds(free, 0, 1000.0, RATES, 2, ROUNDS)
    assert found is not None
    assert (found.first, found.place.tolist()) == (0, [1, 1, -1, 0, 1])
    assert found.sure.tolist() == [780.0 + 95.0 + 380.0, 380.0 + 95.0 + 380.0, 475.0, 475.0, 380.0, 0.0]


@pytest.mark.parametrize("free", [np.zeros((0, 2)), np.full((10, 2), 1)])
def test_no_rounds_no_reservation(free: np.ndarray) -> None:
    """A deadline that has passed, and workers too few for a job of two."""
    assert reserve_rounds(free.astype(np.int64), 0, 1.0, RATES, 2, ROUNDS) is None


def test_who_is_ahead_may_wait_and_gives_its_first_rounds_back() -> None:
    found = reserve_rounds(np.full((10, 2), 1), 0, 1100.0, RATES, 1, ROUNDS)
    assert found is not None
    assert found.sure.tolist() == [1180.0, 780.0, 380.0, 0.0]
    assert [found.required_type(number, 1100.0) for number in (6, 7)] == [-1, 1]
    assert [found.required_type(7, left) for left in (780.0, 780.1)] == [-1, 1]
    free = np.full((12, 2), 1)
    found.take_from(free, 0, 781.0)
    assert np.flatnonzero(free[:, 1] == 0).tolist() == [7, 8, 9]
    free = np.full((12, 2), 1)
    found.take_from(free, 0, 780.0)
    assert np.flatnonzero(free[:, 1] == 0).tolist() == [8, 9]
    assert (free[:, 0] == 1).all()


@dataclass
class Job:
    due: int
    scale: int
    left: float
    rates: np.ndarray
    reserved: Reservation
    on: int = -1


@given(seed=st.integers(0, 2**32 - 1))
def test_who_runs_whenever_it_has_to_is_in_time(seed: int) -> None:
    """Jobs come and ask, and chance runs them besides, or moves them; nothing else is known to be done."""
    chance = np.random.default_rng(seed)
    rounds = RoundClock(100.0, float(chance.choice([0.0, 5.0, 60.0, 150.0])))
    workers = chance.integers(1, 5, 3)
    jobs: list[Job] = []
    for number in range(60):
        if number < 30 and chance.random() < 0.6:
            jobs += draw_jobs(chance, jobs, workers, number, rounds)
        free = workers.copy()
        runs = {id(job): job.reserved.required_type(number, job.left) for job in jobs}
        for job in jobs:
            if runs[id(job)] >= 0:
                free[runs[id(job)]] -= job.scale
        assert (free >= 0).all()
        for job in jobs:
            on = runs[id(job)]
            other = int(chance.integers(3))
            if on < 0 and chance.random() < 0.3 and free[other] >= job.scale and job.rates[other] > 0:
                on = other
                free[on] -= job.scale
            if on >= 0:
                lost = 0.0 if on == job.on else rounds.switch_s
                job.left -= job.rates[on] * max(rounds.length_s - lost, 0.0)
            job.on = on
        jobs = [job for job in jobs if job.left > 0]
        assert all(job.due > number + 1 for job in jobs)
    assert not jobs


def draw_jobs(
    chance: np.random.Generator, jobs: list[Job], workers: np.ndarray, number: int, rounds: RoundClock
) -> list[Job]:
    """A random job whose rounds can be set aside beside those of ``jobs``, if there are any."""
    due = number + int(chance.integers(1, 25))
    free = np.tile(workers, (due - number, 1))
    for job in jobs:
        job.reserved.take_from(free, number, job.left)
    rates = np.round(chance.uniform(-1, 4, 3).clip(0.0), 2)
    scale, steps = int(chance.integers(1, 4)), float(chance.uniform(1, 4000))
    found = reserve_rounds(free, number, steps, rates, scale, rounds)
    return [] if found is None else [Job(due, scale, steps, rates, found)]
