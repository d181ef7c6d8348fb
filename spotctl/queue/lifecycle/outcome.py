"""Builds a queue's exit code and its final object, ``spotctl.queue/1`` of ``queue run --json``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any, Final

from pricing_data.model.units import format_instant, format_micros
from spotctl.queue.lifecycle.journal import JobLeft, QueueRecord
from spotctl.queue.spec import QueueSettings

SCHEMA: Final = "spotctl.queue/1"
_WORST_FIRST: Final = (1, 2, 4, 5, 6, 7, 8, 3)
"""Exit codes of jobs, the one that matters most to a user first."""


def build_outcome(
    settings: QueueSettings, run: str, record: QueueRecord, finals: Mapping[str, dict[str, Any]]
) -> dict[str, Any]:
    """Builds the final object; ``finals``: the object of ``launch --json`` of every job that began."""
    closed = record.closed
    jobs = [_job_object(left, record, finals.get(name)) for name, left in record.left.items()]
    costs = [final["cost"] for final in finals.values()]
    total = {
        key: _sum_amounts(cost[key] for cost in costs)
        for key in ("total", "spot", "on_demand", "egress", "refunded")
    }
    # Savings compare like with like: jobs without a comparison stay out of both sums.
    compared = [final["cost"] for final in finals.values() if final["savings_fraction"] is not None]
    baseline = _sum_amounts(cost["on_demand_baseline"] for cost in compared)
    paid, against = Decimal(_sum_amounts(cost["total"] for cost in compared)), Decimal(baseline)
    budget = settings.spec.budget
    return {
        "schema": SCHEMA,
        "queue": settings.spec.name,
        "run": run,
        "state": "done" if closed is None or closed.exit_code == 0 else "ended",
        "exit_code": 0 if closed is None else closed.exit_code,
        "policy": settings.spec.policy.name,
        "world": settings.options.world.value,
        "started": format_instant(record.began),
        "ended": format_instant(record.at),
        "sim_seconds": record.at - record.began,
        "held_seconds": max((final["held_seconds"] for final in finals.values()), default=0.0),
        "rounds": record.rounds,
        "budget": None if budget is None else format_micros(budget),
        "quotas": dict(settings.spec.quotas),
        "cost": {**total, "on_demand_baseline": baseline if compared else None},
        "savings_fraction": None if not against else round(1 - float(paid / against), 6),
        "not_compared": str(Decimal(total["total"]) - paid),
        "evictions": sum(final["evictions"] for final in finals.values()),
        "failures": sum(final["failures"] for final in finals.values()),
        "instances_left": sum(final["instances_left"] for final in finals.values()),
        "jobs": jobs,
    }


def exit_code(record: QueueRecord) -> int:
    """Returns the worst exit code of the jobs, 0 if all are done."""
    # A removed job ended as its user requested, whatever its own code.
    codes = {left.exit_code for left in record.left.values() if not left.removed}
    return min(codes - {0}, key=_WORST_FIRST.index, default=0)


def _job_object(left: JobLeft, record: QueueRecord, final: dict[str, Any] | None) -> dict[str, Any]:
    entered = record.entered.get(left.job)
    beside = {
        "promised": entered is not None and entered.promised,
        "why_not_promised": None if entered is None or not entered.why else entered.why,
        "removed": left.removed,
    }
    if final is not None:
        return {**final, **beside}
    return {
        "job": left.job,
        "run": None,
        "state": "never began",
        "why": left.why,
        "exit_code": left.exit_code,
        **beside,
    }


def _sum_amounts(amounts: Iterable[str]) -> str:
    # Amounts are decimal texts to the micro-dollar: floats would not add up to what the jobs show.
    return f"{sum((Decimal(amount) for amount in amounts), Decimal(0)):.6f}"
