"""Computes the two baselines for a run, or a plan: the same work on demand (decision 34). Pure.

    as fast     the cheapest footprint on demand that is done in no more time than the run took
    cheapest    the cheapest one of all, within the job's deadline where it has one

Both are of one type, in any count that the job allows, by the run's own rules. Savings are relative to the
cheaper of the two.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from bidbrain.bidding.on_demand_cost import MachineType, Rental, Workload, cheapest_rental
from bidbrain.model import ScalingModel
from pricing_data.model.market import Refund
from spotctl.control.run_spec import RunSpec
from spotctl.control.state import State
from spotctl.report.summary import AS_FAST, CHEAPEST


@dataclass(frozen=True, slots=True)
class Baselines:
    """Holds both ways to have done the same work on demand."""

    as_fast: Rental | None
    """None where no machines on demand that the job allows are as fast."""
    cheapest: Rental
    deadline_s: float
    """Seconds from the request; infinite where there is none."""
    pace: float
    """Work done per work that the run's machines would have done at nominal speed."""

    def keeps_deadline(self, rental: Rental) -> bool:
        """Tells whether a way meets the deadline; if ``cheapest`` does not, no machines on demand do."""
        return rental.finish_s <= self.deadline_s

    @property
    def headline(self) -> str:
        """Returns the name of the cheaper one, to which savings are relative."""
        dearer = self.as_fast is None or self.cheapest.cost <= self.as_fast.cost
        return CHEAPEST if dearer else AS_FAST

    @property
    def rental(self) -> Rental:
        """Returns the cheaper one."""
        return self.by_name[self.headline]

    @property
    def by_name(self) -> Mapping[str, Rental]:
        """Returns those that there are, by name."""
        found = {} if self.as_fast is None else {AS_FAST: self.as_fast}
        return {**found, CHEAPEST: self.cheapest}


def run_baselines(state: State) -> Baselines | None:
    """Returns the baselines of a run's work so far; None before any work is done.

    Machines on demand are as fast as nominal, or as the run's own machines where those were faster.
    """
    started, terms = state.training.training_started_at, state.terms
    over = state.training.training_over_at or state.now
    lasted = 0 if started is None else over - started
    if state.work_done <= 0 or lasted <= 0 or not state.training.worked:
        return None
    speeds = state.machine_speeds()
    scaling = (
        terms.work.scaling
        if state.trusted_measurements is None
        else state.trusted_measurements.fit_scaling(terms.work.scaling)
    )
    # The mean number of working machines, by which the job's scaling is judged.
    machines = max(1.0, sum(state.training.worked.values()) / lasted)
    alone = sum(seconds * speeds[kind] for kind, seconds in state.training.worked.items())
    pace = state.work_done / (alone * scaling.efficiency(machines))
    # Faster machines than nominal are assumed on demand too; slower ones are not, as that would flatter us.
    work = state.work_done / max(1.0, pace)
    return find_baselines(terms, speeds, scaling, work, over - terms.start, pace=pace)


def find_baselines(
    terms: RunSpec,
    speeds: Mapping[str, float],
    scaling: ScalingModel,
    core_seconds: float,
    took_s: float,
    *,
    whole: bool = True,
    pace: float = 1.0,
) -> Baselines | None:
    """Returns both baselines for ``core_seconds`` of work that takes ``took_s`` from the start of the job.

    ``speeds``: work per second of one machine, by type. ``whole``: whether that is all of the job, so that
    billing steps are paid to their end; parts of a job pay for parts of steps. None where nothing would be
    done.
    """
    types = _machine_types(terms, speeds, whole=whole)
    work = Workload(core_seconds, scaling, terms.start_s, terms.most_machines)
    deadline_s = math.inf if terms.objective.deadline_s is None else float(terms.objective.deadline_s)
    # Where no machines on demand meet the deadline, the cheapest ones stand in, and are marked as late.
    in_time = cheapest_rental(types, work, deadline_s)
    cheapest = cheapest_rental(types, work) if in_time is None else in_time
    if cheapest is None:
        return None
    return Baselines(cheapest_rental(types, work, took_s), cheapest, deadline_s, pace)


def _machine_types(terms: RunSpec, speeds: Mapping[str, float], *, whole: bool) -> tuple[MachineType, ...]:
    """Returns each type that the job may use, in the market where it is cheapest on demand."""
    found: dict[tuple[str, str], MachineType] = {}
    for tradable in (*terms.spot, terms.reliable):
        market, rules = tradable.market, tradable.rules or terms.rules
        if not whole:
            # A part of a job would otherwise be billed a whole hour, once for each part.
            rules = replace(rules, quantum_s=1, minimum_s=0, refund=Refund.NOTHING)
        offered = MachineType(market, tradable.on_demand, speeds[market.instance_type], rules)
        key = (market.cloud, market.instance_type)
        if offered.speed > 0 and (key not in found or _price_order(offered) < _price_order(found[key])):
            found[key] = offered
    return tuple(found.values())


def _price_order(offered: MachineType) -> tuple[float, object]:
    return offered.price, offered.market
