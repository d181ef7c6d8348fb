"""Chooses when a replay of recorded prices starts by default: at a moment derived from the wall clock.

A job that is launched every night then sees other prices every night, while ``plan`` and the launch after it
within the same hour see the same. Weekday and hour (UTC) are those of now where the prices span weeks.
"""

from __future__ import annotations

from typing import Final

from pricing_data.model.units import HOUR_S, Instant

DAY_S: Final = 24 * HOUR_S
WEEK_S: Final = 7 * DAY_S
ROOM_S: Final = DAY_S
"""Seconds of prices that are left after a start, at least, where there are enough."""
HISTORY_S: Final = 14 * DAY_S
"""Seconds of prices known before the earliest start: enough to estimate evictions."""
_MONDAY: Final = 4 * DAY_S
"""The first Monday after the epoch, which was a Thursday."""


def start_like_now(earliest: Instant, last: Instant, now: float, seed: int) -> Instant:
    """Returns the start that ``now`` (seconds since the epoch) stands for, on the hour, in [earliest, last).

    Weeks of now follow each other in the weeks of the prices and begin again after the last; ``seed`` shifts
    them. Prices of less than a week have their days, and those of less than a day their hours.

    >>> start_like_now(Instant(0), Instant(60 * DAY_S), 100 * DAY_S + 7 * HOUR_S + 5, 0) % DAY_S // HOUR_S
    7
    """
    end = last - ROOM_S if last - ROOM_S > earliest else last
    for period in (WEEK_S, DAY_S, HOUR_S):
        first = _next_period(earliest, period)
        count = (end - first) // period
        if count > 0:
            number, within = divmod(int(now) - _MONDAY, period)
            return Instant(first + (number + seed) % count * period + within // HOUR_S * HOUR_S)
    return earliest


def _next_period(moment: int, period: int) -> int:
    """Returns the first beginning of a ``period`` at or after ``moment``; weeks begin on Mondays."""
    return moment + (_MONDAY - moment) % period
