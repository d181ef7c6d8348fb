"""Tests that a silent peer is told from one that was not heard because nobody listened."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agileml.node.liveness import SilenceTimer

WAIT_S = 1.0
A_NIGHT_S = 8 * 3600.0


def test_whoever_says_nothing_is_silent_for_as_long_as_one_listens() -> None:
    listening = SilenceTimer(0.0, WAIT_S, ("t1",))
    for second in range(1, 31):
        listening.wake_up(float(second))
    assert listening.silent_s("t1") == 30.0


def test_a_night_asleep_is_no_silence() -> None:
    listening = SilenceTimer(0.0, WAIT_S, ("t1",))
    listening.wake_up(1.0)
    listening.wake_up(1.0 + A_NIGHT_S)
    assert listening.silent_s("t1") <= 1.0 + WAIT_S


def test_whoever_dies_right_after_a_night_is_missed_as_soon_as_ever() -> None:
    listening = SilenceTimer(0.0, WAIT_S, ("t1",))
    listening.wake_up(A_NIGHT_S)
    listening.mark_heard("t1")
    for second in range(1, 31):
        listening.wake_up(A_NIGHT_S + second)
    assert listening.silent_s("t1") == 30.0


def test_a_grace_goes_on_after_a_night_where_it_was() -> None:
    listening = SilenceTimer(0.0, WAIT_S)
    listening.mark_heard("t1", grace_s=30.0)
    listening.wake_up(A_NIGHT_S)
    assert listening.silent_s("t1") == WAIT_S - 30.0


def test_nobody_is_silent_before_they_were_waited_for() -> None:
    listening = SilenceTimer(0.0, WAIT_S)
    listening.wake_up(1.0)
    assert listening.silent_s("t1") == 0.0
    listening.wake_up(2.0)
    assert listening.silent_s("t1") == 1.0


@given(st.lists(st.tuples(st.floats(0.0, 1e5), st.booleans()), max_size=40))
def test_silence_is_at_most_the_time_since_the_last_word_and_at_most_a_wait_a_look(
    looks: list[tuple[float, bool]],
) -> None:
    now, last, since = 0.0, 0.0, 0
    listening = SilenceTimer(now, WAIT_S, ("t1",))
    for passed_s, spoke in looks:
        now, since = now + passed_s, since + 1
        listening.wake_up(now)
        if spoke:
            listening.mark_heard("t1")
            last, since = now, 0
        assert -1e-6 <= listening.silent_s("t1") <= min(now - last, since * WAIT_S) + 1e-6
