"""Decides when a lease moves, weighing the time and money that the move costs. Pure.

    s    move_s   seconds that a job's machines do nothing when its lease moves: the new ones start
                  (``start_s``) and join (sigma), and giving up the old ones costs lambda
    h             seconds since the hold began
    H             seconds for which a better pool would be used: the work left, an hour at most
    T, T'         work per second here and there;  e, e' dollars per unit of work

Shares say how much time jobs get, and rounds which job has it now (``bidbrain.cluster.rounds``). A round that
moves a lease for fairness alone advances no job: the same work is done, s later. So a hold lasts until

    s <= PART h

and waiting jobs rise in priority meanwhile (Narayanan 5.5). After that the order of priorities decides,
and no job with a share waits longer than the holds before it. A job that would be done within a hold ends
first; for that it may stay one hold more. A move to a pool that is better for the job itself waits for no
hold to end, where

    T' (H - s) > T H  and  e' <= e,   or   e' H < e (H - s)  and  T' >= T

and is not made before, unless others are due here. Where nothing is held a lease moves for nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from bidbrain.bidding.market_outlook import MarketOutlook
from pricing_data.model.units import HOUR_S, Seconds
from spotctl.control.bidding import observe_whole_market
from spotctl.control.state import State

PART: Final = 0.1
"""Fraction of a hold that its move may take."""


@dataclass(frozen=True, slots=True)
class MinHold:
    """Describes a job that holds machines by a lease of ``pool``, and the least time it should hold them.

    ``chosen``: the pool that the round chose for it, None for none; ``entitled``: whether it has any share;
    ``best``: the outlook of each pool for it.
    """

    pool: str
    held_s: float
    move_s: Seconds
    left_s: float
    """Seconds until its work is done where it is."""
    chosen: str | None
    entitled: bool
    best: Mapping[str, MarketOutlook]

    @property
    def least_s(self) -> float:
        """Returns how long the hold lasts at least."""
        return min_hold_s(self.move_s)


def min_hold_s(cost_s: float) -> float:
    """Returns how long a hold lasts at least if its move takes ``cost_s``."""
    return cost_s / PART


def move_s(state: State) -> Seconds:
    """Returns s, as configured or as the job has shown it."""
    scaling = observe_whole_market(state).scaling
    return Seconds(state.terms.start_s + scaling.sigma_s + scaling.lambda_s)


def keeps_lease(turn: MinHold, contested: Collection[str]) -> bool:
    """Tells whether the lease stays where it is; ``contested``: pools that the round chose for other jobs."""
    if turn.chosen == turn.pool:
        return True
    if turn.chosen is not None and _repays_move(turn, turn.chosen):
        return False
    # Not even a job of higher priority ends a hold early: the same work would be done, s later.
    if turn.held_s < turn.least_s:
        return True
    if not turn.entitled:
        return False
    # Nearly done: ending saves a later move. One hold at most, or a wrong estimate would block the others.
    ends = turn.left_s <= turn.least_s and turn.held_s < 2 * turn.least_s
    return ends or turn.pool not in contested


def _repays_move(turn: MinHold, pool: str) -> bool:
    """Tells whether ``pool`` is so much better for the job that the move pays for itself."""
    here, there = turn.best.get(turn.pool), turn.best[pool]
    # No outlook: the pool is gone for this job, so any other is better.
    if here is None:
        return True
    # Prices change within hours, so no advantage is assumed to last longer than one.
    whole = min(HOUR_S, turn.left_s)
    rest = max(whole - turn.move_s, 0.0)
    dear, cheap = here.cost_per_work, there.cost_per_work
    faster = there.rate * rest > here.rate * whole and cheap <= dear
    cheaper = cheap * whole < dear * rest and there.rate >= here.rate
    return faster or cheaper
