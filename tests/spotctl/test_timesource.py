"""Nominal time: virtual time jumps; paced time runs, holds for what is not done, and gives up at its floor.

Real waits here are tenths of a second; limits on them are one-sided, as a busy machine only adds to them.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pricing_data.model.units import Instant
from spotctl.timesource import LENT_S, Effect, PacedTime, VirtualTime, sleep, stopwatch

START = Instant(1_000_000)
SPEED = 1000.0


def after(seconds: int) -> Instant:
    return Instant(START + seconds)


def quiet(seconds: float) -> bool:
    """Nothing comes from outside."""
    sleep(seconds)
    return False


def nothing() -> tuple[Effect, ...]:
    return ()


class Until:
    """An effect that is done ``real_s`` real seconds from now."""

    def __init__(self, effect: Effect, real_s: float) -> None:
        self._effect, self._done_at = effect, stopwatch() + real_s

    def __call__(self) -> tuple[Effect, ...]:
        return (self._effect,) if stopwatch() < self._done_at else ()


class Following:
    """Keeps all that it is told. ``limit``: how far it may go."""

    def __init__(self) -> None:
        self.limits: list[float] = []
        self.awaited: list[bool] = []

    @property
    def limit(self) -> float:
        return self.limits[-1]

    def release_until(self, nominal: float, real: float, limit: float, *, awaited: bool = False) -> None:
        assert nominal <= limit or limit == pytest.approx(nominal, abs=1.0)
        self.limits.append(limit)
        self.awaited.append(awaited)


def took(action: Callable[[], None]) -> float:
    began = stopwatch()
    action()
    return stopwatch() - began


# ---- virtual ---------------------------------------------------------------------------------------


def test_virtual_time_jumps_and_never_back() -> None:
    time = VirtualTime(START)
    time.advance(after(10**6), quiet, nothing)
    assert time.now == after(10**6)
    time.advance(after(5), quiet, nothing)
    assert time.now == after(10**6)
    assert time.take_pauses() == ()


def test_virtual_time_with_nothing_to_come_is_a_bug() -> None:
    with pytest.raises(RuntimeError, match="nothing is scheduled"):
        VirtualTime(START).advance(None, quiet, nothing)


# ---- paced -----------------------------------------------------------------------------------------


def test_paced_time_takes_its_time_and_stops_at_the_target() -> None:
    time = PacedTime(START, SPEED)
    assert took(lambda: time.advance(after(200), quiet, nothing)) >= 0.19
    assert time.now == after(200), "not a moment past what is due, however late it got"


def test_time_spent_elsewhere_counts_but_a_moment_is_never_passed() -> None:
    time = PacedTime(START, SPEED)
    sleep(0.3)
    time.advance(after(100), quiet, nothing)
    assert time.now == after(100)


def test_time_in_which_the_process_was_stopped_does_not_count() -> None:
    """But for half a second, for which those who follow had gone on."""
    time = PacedTime(START, SPEED)
    follower = Following()
    time.add_follower(follower)
    stopped: list[float] = []

    def stop_once(seconds: float) -> bool:
        stopped.append(follower.limit - START)
        sleep(1.5 if len(stopped) == 1 else seconds)
        return len(stopped) == 2

    time.advance(after(10**6), stop_once, nothing)
    assert 1000 * LENT_S - 5 <= stopped[0] <= 1000 * LENT_S + 50
    assert stopped[0] - 1 <= time.now - START < 1300, "those who followed were as far, and no further"


def test_those_who_follow_stand_still_while_nobody_moves_the_time() -> None:
    time = PacedTime(START, SPEED)
    follower = Following()
    time.add_follower(follower)
    assert follower.limit == START
    time.advance(after(100), quiet, nothing)
    assert follower.limit == time.now == after(100)
    time.remove_follower(follower)
    time.advance(after(200), quiet, nothing)
    assert follower.limit == after(100)


def test_those_who_follow_never_pass_what_is_scheduled() -> None:
    time = PacedTime(START, SPEED)
    follower = Following()
    time.add_follower(follower)
    time.advance(after(120), quiet, nothing)
    assert max(follower.limits) <= after(120)


@pytest.mark.parametrize("needs_work", [False, True])
def test_those_who_follow_are_told_of_a_hold_for_which_they_have_to_work(needs_work: bool) -> None:
    time = PacedTime(START, SPEED)
    follower = Following()
    time.add_follower(follower)
    effect = Effect("the training ends", after(20), floor_s=0.1, needs_work=needs_work)
    time.advance(after(30), quiet, lambda: (effect,))
    assert any(follower.awaited) == needs_work
    assert not follower.awaited[-1]


def test_news_from_outside_end_the_wait_where_the_clock_stands() -> None:
    time = PacedTime(START, SPEED)

    def news(seconds: float) -> bool:
        sleep(min(seconds, 0.03))
        return True

    time.advance(after(10**6), news, nothing)
    assert START < time.now < after(10**6)
    seen = time.now
    time.advance(None, news, nothing)
    assert time.now >= seen, "also where nothing is scheduled"


def test_time_stands_still_for_an_effect_that_is_due_and_not_done() -> None:
    time = PacedTime(START, SPEED)
    joins = Effect("s1-1 joins", after(50), floor_s=60.0)
    unfinished = Until(joins, real_s=0.3)
    stood: list[Instant] = []

    def look(seconds: float) -> bool:
        sleep(seconds)
        if unfinished():
            stood.append(time.now)
        return False

    assert took(lambda: time.advance(after(100), look, unfinished)) >= 0.3
    assert max(stood) == after(50), "nominal time does not run past it"
    assert time.now == after(100)
    (hold,) = time.take_pauses()
    assert (hold.effect, hold.done) == (joins, True)
    assert hold.real_s >= 0.15
    assert time.take_pauses() == (), "said once"


def test_after_a_hold_time_goes_on_at_its_pace() -> None:
    time = PacedTime(START, SPEED)
    unfinished = Until(Effect("s1-1 joins", after(10), floor_s=60.0), real_s=0.2)
    time.advance(after(10), quiet, unfinished)
    assert took(lambda: time.advance(after(160), quiet, unfinished)) >= 0.14


def test_it_gives_an_effect_up_when_its_floor_has_run_out() -> None:
    time = PacedTime(START, SPEED)
    never = Effect("s1-1 joins", after(20), floor_s=0.2)
    waited = took(lambda: time.advance(after(60), quiet, lambda: (never,)))
    assert waited >= 0.2
    assert time.now == after(60)
    (hold,) = time.take_pauses()
    assert (hold.effect, hold.done) == (never, False)
    assert hold.real_s >= 0.2
    time.advance(after(70), quiet, lambda: (never,))
    assert time.now == after(70)
    assert time.take_pauses() == (), "nobody waits for it again"


def test_one_that_is_given_up_does_not_end_the_wait_for_another() -> None:
    time = PacedTime(START, SPEED)
    never = Effect("s1-1 joins", after(20), floor_s=0.05)
    late = Until(Effect("s1-2 joins", after(20), floor_s=60.0), real_s=0.3)
    assert took(lambda: time.advance(after(30), quiet, lambda: (never, *late()))) >= 0.3
    assert [(hold.effect.name, hold.done) for hold in time.take_pauses()] == [
        ("s1-1 joins", False),
        ("s1-2 joins", True),
    ]


def test_an_effect_that_is_done_in_time_holds_nothing() -> None:
    time = PacedTime(START, SPEED)
    unfinished = Until(Effect("s1-1 joins", after(300), floor_s=60.0), real_s=0.05)
    time.advance(after(400), quiet, unfinished)
    assert time.now == after(400)
    assert time.take_pauses() == ()
