"""How fast a job is on each instance type: T[j, p] of the policies, before it is multiplied out. Pure.

Before a job has run, a type is as fast as its cores (the catalogue's nu). While it runs, its own progress
says more (``bidbrain.performance.speed_fit``): of the types it was on directly, and of the others as far as
they move together. A queue looks at that whether or not the job's own decisions do (``scaling: {measure:
true}``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from bidbrain.model import Observation
from bidbrain.performance.speed_fit import SURE
from bidbrain.performance.throughput_completion import Estimate, Source
from spotctl.control.bidding import market_of
from spotctl.control.estimation import unmeasured
from spotctl.control.state import State


def rates(state: State) -> Mapping[str, Estimate]:
    """Core-seconds per second of one machine working alone, by instance type, with standard errors."""
    known = state.measured or unmeasured(state.terms)
    seen = known.seen_on()
    return {
        kind: Estimate(
            speed.value,
            (speed.high - speed.low) / (2 * SURE * speed.value),
            Source.MEASURED if kind in seen else Source.CATALOGUE,
        )
        for kind, speed in known.fitted().items()
    }


def market_at(state: State) -> Observation:
    """The whole market as the job sees it, each type as fast as ``rates`` have it."""
    seen, found = market_of(state), rates(state)
    offers = (replace(o, cores=found[o.market.instance_type].steps_per_s) for o in seen.offers)
    return replace(seen, offers=tuple(offers))
