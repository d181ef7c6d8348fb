"""Explains why a run differs from its plan. Pure: a state and its account give sentences."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pricing_data.model.billing import MICROS_PER_USD
from pricing_data.model.units import HOUR_S
from spotctl.control.run_spec import Expectation
from spotctl.control.state import State
from spotctl.report.fold import RunAccount, ended_at

_NOTEWORTHY: Final = 0.1
"""Share by which a figure may differ from the plan without an explanation."""


def took_s(state: State) -> int:
    """Returns seconds from the start to the end of the work; if it was never done, to the machines' end."""
    over = ended_at(state) if state.training.training_over_at is None else state.training.training_over_at
    return over - state.terms.start


def why_it_differs(state: State, money: RunAccount) -> list[str]:
    """Returns what made cost or finish differ from the plan, in plain words; empty where they hardly do."""
    plan = state.terms.origin.expected
    if plan is None:
        return []
    share = _relative_gap(money.spending.total, plan.cost), _relative_gap(took_s(state), plan.seconds)
    if max(share) <= _NOTEWORTHY:
        return []
    found = [
        *_explain_evictions(state, plan),
        *_explain_refunds(money, plan),
        *_explain_prices(state, money),
        *_explain_pace(money),
        *_explain_refusals(state),
        *_explain_redone_work(state),
        *_explain_machines(state, plan),
        *_explain_downtime(state),
    ]
    return found or ["nothing stands out: prices, pace, machines and evictions were each near the plan's"]


def _relative_gap(actual: float, planned: float) -> float:
    return abs(actual / planned - 1) if planned else float(actual > 0)


def _explain_evictions(state: State, plan: Expectation) -> Iterator[str]:
    actual, planned = state.recovery.evicted_allocations, plan.evictions
    if abs(actual - planned) >= 1:
        more = "more" if actual > planned else "fewer"
        yield f"{actual} {'eviction' if actual == 1 else 'evictions'}, {more} than the {planned:.1f} expected"


def _explain_refunds(money: RunAccount, plan: Expectation) -> Iterator[str]:
    refunded = money.spending.refunded
    if refunded > _NOTEWORTHY * plan.cost:
        yield f"${refunded / 1e6:.2f} refunded"


def _explain_prices(state: State, money: RunAccount) -> Iterator[str]:
    """Compares what spot machines were charged with the same seconds at the prices of the start."""
    charged = at_start = 0.0
    for bill in money.bills:
        if bill.on_demand:
            continue
        price = state.history.price(bill.market, state.terms.start)
        for charge in bill.charges if price is not None else ():
            assert price is not None
            charged += charge.amount + charge.refunded
            at_start += price * MICROS_PER_USD * (charge.end - charge.start) / HOUR_S
    if at_start and _relative_gap(charged, at_start) > _NOTEWORTHY:
        moved = charged / at_start - 1
        yield f"spot prices were {abs(moved):.0%} {'higher' if moved > 0 else 'lower'} than at the start"


def _explain_pace(money: RunAccount) -> Iterator[str]:
    pace = None if money.baselines is None else money.baselines.pace
    if pace is not None and pace > 1 + _NOTEWORTHY:
        yield f"training went {pace:.1f} times as fast as nominal"
    elif pace is not None and pace < 1 - _NOTEWORTHY:
        yield f"training went at {pace:.0%} of nominal speed"


def _explain_refusals(state: State) -> Iterator[str]:
    refused = sum(allocation.refused is not None for allocation in state.allocations.values())
    if refused:
        yield f"{refused} request{'s' if refused > 1 else ''} for machines refused"


def _explain_redone_work(state: State) -> Iterator[str]:
    if state.training.clocks_redone:
        steps = state.terms.engine.unit
        yield (
            f"{state.training.clocks_redone} {steps}{'s' if state.training.clocks_redone > 1 else ''} "
            "computed twice"
        )
    if state.programs.seconds_redone:
        yield f"its program lost {state.programs.seconds_redone / 60:.0f} minutes of work and restarted"


def _explain_machines(state: State, plan: Expectation) -> Iterator[str]:
    started = state.training.training_started_at
    lasted = 0 if started is None else (state.training.training_over_at or state.now) - started
    mean = sum(state.training.worked.values()) / lasted if lasted else 0.0
    if lasted and abs(mean - plan.machines) >= 1 and _relative_gap(mean, plan.machines) > _NOTEWORTHY:
        yield f"{mean:.1f} machines worked on average, not {plan.machines}"


def _explain_downtime(state: State) -> Iterator[str]:
    if state.interruptions.away is not None:
        yield "spotctl was away for a while"
