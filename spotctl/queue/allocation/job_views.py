"""Builds the two views of a job's state that allocation needs: machines in use, and demand. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from pricing_data.model.units import Instant, seconds_after
from spotctl.control.state import State
from spotctl.control.state_values import Phase
from spotctl.queue.allocation.lease_changes import LeaseHolder
from spotctl.queue.allocation.quotas import Pools, machines_in_use
from spotctl.queue.allocation.round_inputs import SchedulableJob
from spotctl.queue.spec import Member

_WANTS_MACHINES: Final = (Phase.STARTING, Phase.TRAINING, Phase.RESTARTING)


def is_promised(state: State) -> bool:
    """Tells whether the job runs under the promise that its deadline is kept."""
    queued = state.terms.queued
    return queued is not None and queued.promised


def lease_holder(state: State, pools: Pools, reserved: Mapping[str, int]) -> LeaseHolder:
    """Returns the job as a holder of leases; ``reserved``: on-demand machines kept for it, by pool."""
    terms, held = state.terms, machines_in_use(state, pools)
    made, reliable = is_promised(state), Counter[str]()
    if terms.reliable_count:
        reliable[pools.pool_of(terms.reliable.market)] = terms.reliable_count
    # Promised jobs have their reliable machines in ``reserved`` from the start.
    begins = Counter[str]() if state.allocations or made else reliable
    kept = Counter(reserved if made else held.rented)
    # A lost reliable machine is replaced, so its room stays taken meanwhile.
    if state.allocations:
        kept |= reliable
    return LeaseHolder(terms.job, held, state.share.lease, kept, begins, elastic=terms.reliable_count > 0)


def schedulable_job(
    state: State,
    member: Member,
    pools: Pools,
    reserved: Mapping[str, int],
    received: Mapping[str, float],
    since: Instant | None,
) -> SchedulableJob | None:
    """Returns the job as a round sees it; None if it can use no machines any more.

    ``received``: seconds of machine time that it got lately, by pool; ``since``: when its hold began.
    """
    if state.phase not in _WANTS_MACHINES or state.ending.asked is not None:
        return None
    deadline = state.terms.objective.deadline_s
    due = None if deadline is None else seconds_after(state.terms.start, deadline)
    seat = lease_holder(state, pools, reserved)
    return SchedulableJob(state, seat, member.weight, member.entity, due, received, since)
