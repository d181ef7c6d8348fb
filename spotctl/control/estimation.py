"""Estimates from the run itself how the job scales and how long machines are kept: part of the fold."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from bidbrain.eviction.base import LearningModel, MarketModel
from bidbrain.eviction.price.price_crossing import PriceCrossing
from bidbrain.performance.scaling_fit import FootprintChange, MeasuredScaling, Stamp
from pricing_data.model.billing import EndReason
from pricing_data.model.capacity_spells import Observations
from pricing_data.model.market import MarketRules
from pricing_data.model.units import HOUR_S, Instant
from spotctl.control.run_spec import RunSpec
from spotctl.control.state import State
from spotctl.control.state_values import Instance, Phase

REFIT_INTERVAL_S: Final = HOUR_S
"""Beta is refitted hourly (decision 13)."""


def prior_scaling(terms: RunSpec) -> MeasuredScaling:
    """Returns the scaling before anything is measured: that of the job file, at nominal speeds."""
    rates = {t.market.instance_type: t.nu for t in (*terms.spot, terms.reliable)}
    return MeasuredScaling.from_configured(terms.work.scaling, rates, {})


def select_estimator(rules: MarketRules, capacity: Observations, crossings: PriceCrossing) -> MarketModel:
    """Selects the eviction model: ``crossings`` in auctions, and where no capacity was ever observed."""
    if rules.cleared_by_bid or not capacity.markets:
        return crossings
    from bidbrain.eviction.selector import EstimatorSelector  # loads many estimators; auctions need none

    return EstimatorSelector(rules, capacity)


def update_scaling(before: State, after: State) -> State:
    """Updates the scaling estimate by the progress, or the change of machines, between two states."""
    known = after.knowledge.measured
    if known is None:
        return after
    # Redone clocks were computed too, so they count for the speed.
    done = after.training.clock + after.training.clocks_redone - after.recovery.resumed_from
    if done > before.training.clock + before.training.clocks_redone - before.recovery.resumed_from:
        work = done * after.terms.work.core_seconds_per_clock
        known = known.add_stamp(Stamp(float(after.now), work))
    machines = after.working_by_type()
    if machines != known.now.machines:
        grown = machines.total() > known.now.machine_count
        change = FootprintChange.JOINED if grown else FootprintChange.LOST
        known = known.change_footprint(float(after.now), change, machines)
    return replace(after, knowledge=replace(after.knowledge, measured=known))


def refit_evictions(state: State) -> State:
    """Refits beta where ``REFIT_INTERVAL_S`` nominal seconds have passed since the last fit."""
    hours = (state.now - state.knowledge.fitted_at) // REFIT_INTERVAL_S
    if hours == 0 or state.phase is Phase.CLOSED:
        return state
    # The fit is of the end of the last whole interval, not of ``now``: which entry happens to come first
    # after it must change nothing.
    at = Instant(state.knowledge.fitted_at + hours * REFIT_INTERVAL_S)
    estimator = state.knowledge.estimator
    if isinstance(estimator, LearningModel):
        estimator = estimator.with_observations(state.knowledge.capacity.merge_with(_own_spells(state)))
    fitted = estimator.fit(state.history.as_of(at), at)
    return replace(
        state, knowledge=replace(state.knowledge, estimator=estimator, evictions=fitted, fitted_at=at)
    )


def _own_spells(state: State) -> Observations:
    """Returns how long the run kept its own spot machines, until the first warning or their release."""
    seen_here = Observations()
    for allocation in state.allocations.values():
        machines = state.instances_of(allocation.name)
        began = [i.running_at for i in machines if i.running_at is not None]
        if allocation.on_demand or not began:
            continue
        # Machines of one market, bought together, are taken together: each as a spell would count one
        # eviction many times.
        taken = [at for i in machines if (at := _taken_at(i)) is not None]
        over = [i.ended_at for i in machines if i.ended_at is not None]
        given_up = max(over) if len(over) == len(machines) else state.now
        ends = max(min(taken, default=given_up), min(began))
        seen_here = seen_here.with_spell(allocation.market, min(began), ends, bool(taken))
    return seen_here


def _taken_at(instance: Instance) -> Instant | None:
    """Returns when the provider announced that it takes the machine; None where it did not."""
    if instance.warned_at is not None:
        return instance.warned_at
    return instance.ended_at if instance.end is EndReason.EVICTED else None
