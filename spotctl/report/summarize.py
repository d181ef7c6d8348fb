"""Builds a run's summary from the fold of its ledger. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pricing_data.model.market import Market
from spotctl.control.billing import InstanceBill
from spotctl.control.state import State
from spotctl.report.fold import build_account, list_evictions
from spotctl.report.status import describe_progress
from spotctl.report.summary import MarketSums, RunSummary


def summarize(state: State, began: float, status: Mapping[str, Any]) -> RunSummary:
    """Returns what is shown of a run that began at ``began``, by the wall clock.

    ``status``: its object of ``status --json``, which knows more than the ledger while the run goes on.
    """
    money = build_account(state)
    found = money.baselines
    return RunSummary(
        job=state.terms.job,
        run=state.terms.origin.run,
        began=began,
        outcome=None if state.ending.closed is None else state.ending.closed.outcome.value,
        markets=tuple(_sum_by_market(state, money.bills)),
        as_fast=None if found is None or found.as_fast is None else found.as_fast.cost,
        cheapest=None if found is None else found.cheapest.cost,
        no_savings_reason=money.no_savings_reason,
        clocks_redone=state.training.clocks_redone,
        seconds_redone=state.programs.seconds_redone,
        progress=describe_progress(state),
        status=status,
    )


def _sum_by_market(state: State, bills: tuple[InstanceBill, ...]) -> Iterator[MarketSums]:
    """Yields one entry for each market in which anything was paid for or taken away."""
    rows: dict[Market, dict[str, int]] = {}

    def add(market: Market, **amounts: int) -> None:
        row = rows.setdefault(market, dict.fromkeys(_AMOUNTS, 0))
        for name, amount in amounts.items():
            row[name] += amount

    for bill in bills:
        until = bill.instance.ended_at or state.now
        for charge in bill.charges:
            # A charge covers whole billing steps; only the seconds that the machine lived are counted.
            seconds = max(0, min(charge.end, until) - charge.start)
            # Refunds exist for spot machines only.
            if bill.on_demand:
                add(bill.market, on_demand_s=seconds, on_demand=charge.amount)
            else:
                held = "free_s" if charge.refunded else "paid_s"
                add(bill.market, spot=charge.amount, refunded=charge.refunded, **{held: seconds})
    for fetched in state.programs.fetched:
        add(fetched.here, egress=fetched.owed)
    for eviction in list_evictions(state):
        add(eviction.market, evictions=1, evicted=eviction.machines)
    for market, row in rows.items():
        yield MarketSums(str(market), market.cloud, **row)


_AMOUNTS = (
    *("paid_s", "free_s", "on_demand_s", "spot", "on_demand", "refunded", "egress"),
    *("evictions", "evicted"),
)
