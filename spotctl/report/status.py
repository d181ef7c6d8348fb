"""Builds a run's object of ``status --json`` (in ``spotctl.status/1``)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pricing_data.model.units import Instant, format_instant
from spotctl.control.run_spec import RunSpec
from spotctl.control.state import State
from spotctl.report.final import checkpoint_document, cost_document, expectation_document, seconds_redone
from spotctl.report.fold import build_account, list_evictions


def status_document(
    state: State,
    ledger: Path,
    standing: str,
    died_of: str | None = None,
    waits: Sequence[dict[str, Any]] = (),
) -> dict[str, Any]:
    """Builds the object. ``standing``: what the run is doing, in a word; ``waits``: what takes its processes
    long.
    """
    money = build_account(state)
    return {
        "job": state.terms.job,
        "run": state.terms.origin.run,
        "state": standing,
        "exit_code": None if state.ending.closed is None else state.ending.closed.exit_code,
        "died_of": died_of,
        "as_of": format_instant(state.now),
        "stage": state.training.stage,
        "clock": state.training.clock,
        "clocks": state.terms.work.stop.clocks,
        "resumed_from": state.recovery.resumed_from,
        "checkpoint": checkpoint_document(state),
        "objective": state.training.objective,
        "footprint": [
            _allocation_document(state, name) for name in state.allocations if _has_machines(state, name)
        ],
        "plan": expectation_document(state),
        "cost": cost_document(money),
        "savings_fraction": None if money.savings is None else round(money.savings, 6),
        "no_savings_reason": money.no_savings_reason,
        "not_comparable": money.not_comparable,
        "evictions": state.recovery.evicted_allocations,
        "instances_evicted": sum(eviction.machines for eviction in list_evictions(state)),
        "failures": state.recovery.failures,
        "clocks_redone": state.training.clocks_redone,
        "seconds_redone": seconds_redone(state),
        "restarts": state.recovery.restarts,
        "waits": list(waits),
        "last_decision": None if state.deciding.last_decision is None else state.deciding.last_decision.why,
        "next_decision": _format_optional(
            state.deciding.decide_from if state.ending.closed is None else None
        ),
        "ledger": str(ledger),
    }


def progress_unit(terms: RunSpec) -> str:
    """Returns the unit of its progress: a command counts as its program does."""
    return terms.engine.unit


def describe_progress(state: State) -> str:
    """Returns "clock 3 of 40"; for a command "step 3 of 40"."""
    total = state.terms.work.stop.clocks
    return f"{progress_unit(state.terms)} {state.training.clock}" + ("" if total is None else f" of {total}")


def _has_machines(state: State, name: str) -> bool:
    return any(instance.is_live for instance in state.instances_of(name))


def _allocation_document(state: State, name: str) -> dict[str, Any]:
    allocation = state.allocations[name]
    return {
        "allocation": name,
        "market": str(allocation.market),
        "bid": None if allocation.bid is None else f"{allocation.bid:.6f}",
        "beta": allocation.beta,
        "instances": {
            instance.name: instance.life.value for instance in state.instances_of(name) if instance.is_live
        },
    }


def _format_optional(at: Instant | None) -> str | None:
    return None if at is None else format_instant(at)
