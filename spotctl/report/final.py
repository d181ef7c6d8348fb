"""Builds the final object of ``launch --json`` (schema ``spotctl.launch/1``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bidbrain.performance.scaling_fit import MeasuredScaling
from pricing_data.model.units import HOUR_S, format_instant, format_micros, seconds_after
from spotctl.control.entries import RunOutcome
from spotctl.control.state import State
from spotctl.report.baselines import Baselines
from spotctl.report.fold import RunAccount, build_account, ended_at, list_evictions, saved_share
from spotctl.report.outcome import took_s, why_it_differs
from spotctl.report.summary import MEANINGS, MONEY

SCHEMA = "spotctl.launch/1"


@dataclass(frozen=True, slots=True)
class Score:
    """Holds the model's quality beside a trusted solver's on the same data, where the application has one."""

    metric: str
    value: float
    reference: float | None
    reference_name: str | None
    reference_note: str | None = None
    """Why there is no reference, or only one that had not converged."""


@dataclass(frozen=True, slots=True)
class Unscored:
    """Says why the quality of a saved model is unknown: its input is gone, say."""

    why: str


def final_object(
    state: State,
    ledger: Path,
    wall_s: float,
    left: int,
    died_of: str | None = None,
) -> dict[str, Any]:
    """Returns what scripts read of a finished run. ``left``: instances that still run, as counted after the
    end.

    ``died_of``: why processes of its machines died over and over, which matters where the job failed.
    """
    closed = state.ending.closed
    if closed is None:
        raise ValueError("a run has a final object only once it is closed")
    money = build_account(state)
    # Not when the run was closed: that is later if no process was there.
    ended = ended_at(state)
    return {
        "schema": SCHEMA,
        "job": state.terms.job,
        "run": state.terms.origin.run,
        "state": closed.outcome.value,
        "why": closed.why,
        "died_of": died_of if closed.outcome is RunOutcome.FAILED else None,
        "exit_code": closed.exit_code,
        "prices": state.terms.origin.prices,
        "money": MONEY,
        "rules": state.terms.rules.name,
        "seed": state.terms.origin.seed,
        "started": format_instant(state.terms.start),
        "ended": format_instant(ended),
        "ended_at_latest": state.end_time_unknown,
        "work_done": round(state.work_done, 3),
        "engine": state.terms.engine.kind,
        "clocks": state.training.clock,
        "resumed_from": state.recovery.resumed_from,
        "checkpoint": checkpoint_document(state),
        # Filled in by ``with_score``: the bill is printed before the model is scored.
        "objective": None,
        "not_scored": None,
        "last_reported": state.training.objective,
        "wall_seconds": round(wall_s, 3),
        "sim_seconds": ended - state.terms.start,
        "held_seconds": round(sum(state.interruptions.held.values()), 3),
        "cost": cost_document(money),
        "baseline": _headline_document(money),
        "baselines": baselines_document(money.baselines, money),
        "savings_fraction": None if money.savings is None else round(money.savings, 6),
        "no_savings_reason": money.no_savings_reason,
        "not_comparable": money.not_comparable,
        "plan": expectation_document(state),
        "outcome": {"cost": format_micros(money.spending.total), "seconds": took_s(state)},
        "why_not_as_planned": why_it_differs(state, money),
        # Refused requests have no machines and do not count.
        "allocations": sum(1 for a in state.allocations.values() if not a.reliable and a.instances),
        "evictions": state.recovery.evicted_allocations,
        "instances_evicted": sum(eviction.machines for eviction in list_evictions(state)),
        "failures": state.recovery.failures,
        "clocks_redone": state.training.clocks_redone,
        "seconds_redone": seconds_redone(state),
        "restarts": state.recovery.restarts,
        "stage_transitions": state.training.stage_transitions,
        "decisions": state.deciding.decisions,
        "measured": None
        if state.trusted_measurements is None
        else _measured_document(state, state.trusted_measurements),
        "instances_left": left,
        "model": state.ending.model,
        "ledger": str(ledger),
    }


def with_score(final: Mapping[str, Any], score: Score | Unscored) -> dict[str, Any]:
    """Returns the final object with the result of scoring its model."""
    if isinstance(score, Unscored):
        return {**final, "not_scored": score.why}
    return {**final, "objective": asdict(score)}


def cost_document(money: RunAccount) -> dict[str, Any]:
    """Returns what was paid. ``on_demand_baseline``: the cheaper baseline, of which ``savings_fraction`` is a
    share.
    """
    spending = money.spending
    return {
        "total": format_micros(spending.total),
        "spot": format_micros(spending.spot),
        "on_demand": format_micros(spending.on_demand),
        "egress": format_micros(spending.egress),
        "refunded": format_micros(spending.refunded),
        "on_demand_baseline": None if money.baseline is None else format_micros(money.baseline.cost),
    }


def _headline_document(money: RunAccount) -> dict[str, Any] | None:
    """Returns the cheaper baseline. ``pace``: how fast the run's own machines were beside nominal speed."""
    if money.baselines is None:
        return None
    name = money.baselines.headline
    return {**_rental_document(money.baselines, name, money), "pace": round(money.baselines.pace, 3)}


def baselines_document(found: Baselines | None, money: RunAccount | None) -> dict[str, Any]:
    """Returns both baselines by name; None for a missing one. ``money``: what was paid beside them, if it
    was.
    """
    return {
        name: _rental_document(found, name, money) if found is not None and name in found.by_name else None
        for name in MEANINGS
    }


def _rental_document(found: Baselines, name: str, money: RunAccount | None) -> dict[str, Any]:
    rental = found.by_name[name]
    compared = money is not None and money.no_savings_reason is None
    share = saved_share(money.spending.total, rental.cost) if money is not None and compared else None
    return {
        "name": name,
        "means": MEANINGS[name],
        "instances": rental.machines,
        "instance_type": rental.market.instance_type,
        "region": rental.market.region,
        "seconds": rental.seconds,
        "hours": round(rental.seconds / HOUR_S, 3),
        "finish_seconds": rental.finish_s,
        "keeps_deadline": found.keeps_deadline(rental),
        "cost": format_micros(rental.cost),
        "savings_fraction": None if share is None else round(share, 6),
    }


def expectation_document(state: State) -> dict[str, Any] | None:
    """Returns the launch plan's forecast, beside which the outcome is shown."""
    plan = state.terms.origin.expected
    if plan is None:
        return None
    return {
        "cost": format_micros(plan.cost),
        "seconds": round(plan.seconds, 3),
        "finish": format_instant(seconds_after(state.terms.start, plan.seconds)),
        "evictions": plan.evictions,
        "machines": plan.machines,
    }


def _measured_document(state: State, measured: MeasuredScaling) -> dict[str, Any]:
    """Returns what the job's progress showed; speeds are nominal core-seconds per second of one machine."""
    found, nominal = measured.fit_scaling(state.terms.work.scaling), dict(measured.speeds.nominal)
    tradables = (*state.terms.spot, state.terms.reliable)
    cores = {t.market.instance_type: t.cores for t in tradables}
    return {
        "phi": round(found.phi, 6),
        "sigma_seconds": round(found.sigma_s, 3),
        "lambda_seconds": round(found.lambda_s, 3),
        "speeds": {
            name: {
                "cores": cores[name],
                "nominal": nominal[name],
                "value": round(speed.value, 4),
                "low": round(speed.low, 4),
                "high": round(speed.high, 4),
            }
            for name, speed in measured.fit_speeds().items()
        },
    }


def seconds_redone(state: State) -> int | None:
    """Returns how long a program ran in vain; None for an elastic job, which counts clocks instead."""
    return state.programs.seconds_redone if state.terms.engine.relies_on_checkpoints else None


def checkpoint_document(state: State) -> dict[str, Any] | None:
    """Returns the newest state that an elastic job has stored; None where there is none."""
    if state.recovery.checkpoint is None:
        return None
    clock, folder = state.recovery.checkpoint
    return {"clock": clock, "folder": folder}
