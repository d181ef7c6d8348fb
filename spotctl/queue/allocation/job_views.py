"""How a job stands, as the dealer and as a round see it: before it begins and while it runs. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from pricing_data.model.units import Instant, later
from spotctl.control.state import Phase, State
from spotctl.queue.allocation.lease_changes import Holder
from spotctl.queue.allocation.quotas import Pools, use
from spotctl.queue.allocation.round_inputs import Wanting
from spotctl.queue.spec import Member

_WANTS_MACHINES: Final = (Phase.STARTING, Phase.TRAINING, Phase.RESTARTING)


def is_promised(state: State) -> bool:
    """Whether the job runs under the promise that its deadline is kept."""
    queued = state.terms.queued
    return queued is not None and queued.promised


def holder(state: State, pools: Pools, reserved: Mapping[str, int]) -> Holder:
    """As the dealer sees it. ``reserved``: machines on demand, by pool, that its promise keeps for it."""
    terms, held = state.terms, use(state, pools)
    made, reliable = is_promised(state), Counter[str]()
    if terms.reliable_count:
        reliable[pools.of(terms.reliable.market)] = terms.reliable_count
    begins = Counter[str]() if state.allocations or made else reliable
    kept = Counter(reserved if made else held.rented)
    if state.allocations:  # a reliable machine that is lost is replaced
        kept |= reliable
    return Holder(terms.job, held, state.lease, kept, begins, elastic=terms.reliable_count > 0)


def wanting(
    state: State,
    member: Member,
    pools: Pools,
    reserved: Mapping[str, int],
    received: Mapping[str, float],
    since: Instant | None,
) -> Wanting | None:
    """As a round sees it; None where machines are no use to it any more.

    ``received``: seconds that it has had lately, by pool; ``since``: when its turn began.
    """
    if state.phase not in _WANTS_MACHINES or state.asked is not None:
        return None
    deadline = state.terms.deadline_s
    due = None if deadline is None else later(state.terms.start, deadline)
    seat = holder(state, pools, reserved)
    return Wanting(state, seat, member.weight, member.entity, due, received, since)
