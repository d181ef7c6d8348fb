"""Computes what a job would move to another region: its newest checkpoint, and the egress it costs."""

from __future__ import annotations

from functools import lru_cache

from bidbrain.relocation.egress import (
    BYTES_PER_GB,
    CarriedCheckpoint,
    EgressPrices,
    TransferLoad,
    egress_owed,
    leaves_region,
)
from pricing_data.model.market import Market
from pricing_data.model.units import MicroUsd, Seconds
from spotctl.control.run_spec import MovableCheckpoint, RunSpec
from spotctl.control.state import State


@lru_cache(maxsize=16)
def egress_prices(luggage: MovableCheckpoint) -> EgressPrices:
    """Returns the egress prices of ``luggage``, by the border that is crossed."""
    return EgressPrices({(tariff.cloud, tariff.to): tariff.usd_gb for tariff in luggage.tariffs})


def checkpoint_to_move(state: State) -> CarriedCheckpoint | None:
    """Returns the newest checkpoint and its egress prices; None where the job stays within one region."""
    luggage = state.terms.recovery.luggage
    if luggage is None:
        return None
    size = luggage.size_bytes if state.programs.checkpoint_bytes is None else state.programs.checkpoint_bytes
    baggage = TransferLoad(size / BYTES_PER_GB, luggage.bytes_per_s / BYTES_PER_GB, Seconds(0.0))
    return CarriedCheckpoint(baggage, egress_prices(luggage), _checkpoint_market(state))


def highest_transfer_cost(terms: RunSpec) -> MicroUsd:
    """Returns the highest egress that one move of the checkpoint may cost, between the job's markets."""
    luggage = terms.recovery.luggage
    if luggage is None:
        return MicroUsd(0)
    # Egress depends on regions alone: pairs of a thousand markets would take seconds.
    regions = {(t.market.cloud, t.market.region): t.market for t in terms.spot}.values()
    prices = {
        egress_prices(luggage).find_price(here, there)
        for here in regions
        for there in regions
        if leaves_region(here, there)
    }
    return max((egress_owed(luggage.size_bytes, price) for price in prices), default=MicroUsd(0))


def _checkpoint_market(state: State) -> Market | None:
    """Returns the market of the newest checkpoint; None before the first."""
    # A leaving machine writes one, so the next checkpoint will be where the job computes now.
    here = [state.allocations[i.allocation].market for i in state.live_instances() if i.joined and not i.safe]
    return here[-1] if here else state.programs.checkpoint_at
