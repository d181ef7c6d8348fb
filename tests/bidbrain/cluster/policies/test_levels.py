"""Tests that levels at any event are those of rising step by step, whoever shares with whom."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from bidbrain.cluster.policies.levels import LevelCourse, LevelState, Sharing


def step_by_step(sharing: Sharing, state: LevelState, cap: np.ndarray) -> list[LevelState]:
    """One cap after the other: everybody's speed now, then who gets there first."""
    states = []
    while state.rising.any():
        part = np.zeros(len(cap))
        for entity, whole in enumerate(sharing.whole):
            mine = np.flatnonzero(state.rising & (sharing.entity == entity))
            if sharing.fifo[entity]:
                part[mine[:1]] = whole
            elif len(mine):
                part[mine] = whole * sharing.weight[mine] / sharing.weight[mine].sum()
        speed = part / sharing.scale
        moves = speed > 0
        time = np.full(len(cap), np.inf)
        time[moves] = (cap - state.level)[moves] / speed[moves]
        there = time <= time.min() * (1 + 1e-9)
        level = np.where(there, cap, state.level + time.min() * speed)
        state = LevelState(level, state.rising & ~there).without_capped(cap)
        states.append(state)
    return states


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), fifo=st.lists(st.booleans(), min_size=1, max_size=4))
def test_every_event_is_as_if_step_by_step(seed: int, fifo: list[bool]) -> None:
    chance = np.random.default_rng(seed)
    count = int(chance.integers(1, 25))
    sharing = Sharing(
        chance.integers(0, len(fifo), count),
        chance.choice([1.0, 2.0, 3.5], count),
        chance.choice([1, 2, 4], count),
        chance.uniform(0.5, 3, len(fifo)),
        np.array(fifo),
    )
    cap = chance.choice([0.5, 1.0, 1.7], count) * chance.choice([1.0, 1.25], count)
    start = LevelState(cap * chance.choice([0.0, 0.3], count), chance.random(count) < 0.8).without_capped(cap)
    if not start.rising.any():
        return
    course, states = LevelCourse(sharing, start, cap), step_by_step(sharing, start, cap)
    assert len(course.times) == len(states)
    assert course.step.max() == 1.0
    for event, state in enumerate(states):
        at = course.state_at(event)
        np.testing.assert_allclose(at.level, state.level, rtol=1e-9, atol=1e-12)
        np.testing.assert_array_equal(at.rising, state.rising)
    first = start.level + course.times[0] * course.step
    np.testing.assert_allclose(first, states[0].level, rtol=1e-9)


def test_without_caps_there_is_no_event() -> None:
    sharing = Sharing(
        np.zeros(2, np.int64), np.array([1.0, 2.0]), np.array([1, 1]), np.ones(1), np.zeros(1, np.bool_)
    )
    course = LevelCourse(sharing, LevelState(np.zeros(2), np.ones(2, np.bool_)), np.full(2, np.inf))
    assert len(course.times) == 0
    np.testing.assert_allclose(course.step, [0.5, 1.0])
