"""Estimates how fast a job runs on each instance type: T[j, p] of the policies for one machine. Pure.

Before a job has run, a type is as fast as its cores (the catalogue's nu). While it runs, its own progress
says more (``bidbrain.performance.speed_fit``): directly about the types it used, and about the others as far
as they move together. A queue uses that whether or not the job's own decisions do
(``scaling: {measure: true}`` in its file).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from bidbrain.model import Observation
from bidbrain.performance.speed_fit import STANDARD_ERRORS_95
from bidbrain.performance.throughput_completion import Source, ThroughputEstimate
from spotctl.control.bidding import observe_whole_market
from spotctl.control.estimation import prior_scaling
from spotctl.control.state import State


def estimate_throughputs(state: State) -> Mapping[str, ThroughputEstimate]:
    """Returns core-seconds per second of one machine working alone, by instance type, with errors."""
    known = state.knowledge.measured or prior_scaling(state.terms)
    seen = known.types_seen()
    return {
        kind: ThroughputEstimate(
            speed.value,
            (speed.high - speed.low) / (2 * STANDARD_ERRORS_95 * speed.value),
            Source.MEASURED if kind in seen else Source.CATALOGUE,
        )
        for kind, speed in known.fit_speeds().items()
    }


def market_with_throughputs(state: State) -> Observation:
    """Returns the whole market as the job sees it, with the estimated speed of each type."""
    seen, found = observe_whole_market(state), estimate_throughputs(state)
    offers = (replace(o, cores=found[o.market.instance_type].steps_per_s) for o in seen.offers)
    return replace(seen, offers=tuple(offers))
