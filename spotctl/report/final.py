"""The final object of ``launch --json`` (schema ``spotctl.launch/1``)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bidbrain.measure import Measured
from pricing_data.units import format_instant, format_micros
from spotctl.control.events import Outcome
from spotctl.control.state import State
from spotctl.report.fold import Baseline, account, ended_at, evictions

SCHEMA = "spotctl.launch/1"
MONEY = "nominal"
"""Machines of this version are this computer's: what they cost is what the trace's would have cost."""


@dataclass(frozen=True, slots=True)
class Score:
    """The model's quality beside a trusted solver's on the same data, where the application has one."""

    metric: str
    value: float
    reference: float | None
    reference_name: str | None


@dataclass(frozen=True, slots=True)
class Unscored:
    """Why the quality of a model that was saved cannot be said: its input is gone, say."""

    why: str


def final_object(
    state: State,
    ledger: Path,
    wall_s: float,
    left: int,
    score: Score | Unscored | None,
    died_of: str | None = None,
) -> dict[str, Any]:
    """What scripts read of a finished run. ``left``: instances that still run, as counted after the end.

    ``died_of``: what processes of its machines died of over and over, which matters where the job failed.
    """
    closed = state.closed
    if closed is None:
        raise ValueError("a run has a final object only once it is closed")
    money = account(state)
    spending, compared, ended = money.spending, money.baseline, ended_at(state)
    return {
        "schema": SCHEMA,
        "job": state.terms.job,
        "run": state.terms.run,
        "state": closed.outcome.value,
        "why": closed.why,
        "died_of": died_of if closed.outcome is Outcome.FAILED else None,
        "exit_code": closed.exit_code,
        "prices": state.terms.prices,
        "money": MONEY,
        "rules": state.terms.rules.name,
        "seed": state.terms.seed,
        "started": format_instant(state.terms.start),
        "ended": format_instant(ended),
        "ended_at_latest": state.over_unseen,
        "work_done": round(state.work_done, 3),
        "engine": "agileml" if state.terms.checkpoints is None else "command",
        "clocks": state.clock,
        "resumed_from": state.resumed_from,
        "checkpoint": kept(state),
        "objective": _score(score) if isinstance(score, Score) else None,
        "not_scored": score.why if isinstance(score, Unscored) else None,
        "last_reported": state.objective,
        "wall_seconds": round(wall_s, 3),
        "sim_seconds": ended - state.terms.start,
        "held_seconds": round(sum(state.held.values()), 3),
        "cost": {
            "total": format_micros(spending.total),
            "spot": format_micros(spending.spot),
            "on_demand": format_micros(spending.on_demand),
            "egress": format_micros(spending.egress),
            "refunded": format_micros(spending.refunded),
            "on_demand_baseline": None if compared is None else format_micros(compared.cost),
        },
        "baseline": None if compared is None else _baseline(compared),
        "savings_fraction": None if money.savings is None else round(money.savings, 6),
        "allocations": sum(1 for a in state.allocations.values() if not a.reliable and a.instances),
        "evictions": state.evicted_allocations,
        "instances_evicted": sum(eviction.machines for eviction in evictions(state)),
        "failures": state.failures,
        "clocks_redone": state.clocks_redone,
        "seconds_redone": seconds_redone(state),
        "restarts": state.restarts,
        "stage_transitions": state.stage_transitions,
        "decisions": state.decisions,
        "measured": None if state.believed is None else _measured(state, state.believed),
        "instances_left": left,
        "model": state.model,
        "ledger": str(ledger),
    }


def _baseline(compared: Baseline) -> dict[str, Any]:
    """The on-demand machines that ``cost.on_demand_baseline`` is the cost of, at nominal rate.

    ``pace``: how fast the run's own machines were beside that; far from 1 the comparison limps.
    """
    return {
        "instances": compared.machines,
        "instance_type": compared.instance_type,
        "region": compared.region,
        "seconds": compared.seconds,
        "pace": round(compared.pace, 3),
    }


def _measured(state: State, measured: Measured) -> dict[str, Any]:
    """What the job's progress showed; speeds are nominal core-seconds per second of one machine."""
    found, nominal = measured.scaling(state.terms.scaling), dict(measured.speeds.nominal)
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
            for name, speed in measured.fitted().items()
        },
    }


def seconds_redone(state: State) -> int | None:
    """For how long a program ran for nothing; None of an elastic job, whose clocks say it."""
    return None if state.terms.checkpoints is None else state.seconds_redone


def kept(state: State) -> dict[str, Any] | None:
    """The newest state that an elastic job has kept; None where there is none."""
    if state.checkpoint is None:
        return None
    clock, folder = state.checkpoint
    return {"clock": clock, "folder": folder}


def _score(score: Score) -> dict[str, Any]:
    return {
        "metric": score.metric,
        "value": score.value,
        "reference": score.reference,
        "reference_name": score.reference_name,
    }
