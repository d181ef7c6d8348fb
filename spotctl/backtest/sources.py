"""Finds a backtest's prices: in files, where the job says, in the price store, or in the bundled market.

The store serves if it holds over a month of the job's markets: today's prices alone are no history.
"""

from __future__ import annotations

from pathlib import Path

from pricing_data.catalogue import Catalogue
from pricing_data.errors import NoSuchMarket, TraceError
from pricing_data.formats.traces import Recording
from spotctl.job.price_sources import (
    BundledMarket,
    StoredPrices,
    TraceFiles,
    open_source,
    prices_root,
    report_errors,
)
from spotctl.job.resolve import HISTORY_BEFORE_START_S, MarketFilter
from spotctl.job.spec import JobSpec


def read_prices(spec: JobSpec, traces: tuple[Path, ...], markets: tuple[str, ...]) -> Recording:
    """Returns every price of markets that the job may use. Raises UsageError for a file that cannot be
    read.
    """
    wanted = MarketFilter(spec, markets, Catalogue.bundled())
    with report_errors():
        try:
            if traces:
                return TraceFiles(traces).read_prices(wanted)
            if spec.prices is not None:
                return open_source(spec.prices).read_prices(wanted)
            return _read_long_store(wanted) or BundledMarket().read_prices(wanted)
        except NoSuchMarket as error:
            raise wanted.explain_refusal(error) from error


def _read_long_store(wanted: MarketFilter) -> Recording | None:
    """Returns what the store has of them; None where that is too little to begin with."""
    try:
        found = StoredPrices(prices_root()).read_prices(wanted)
    except TraceError:
        return None
    return found if found.last - found.first > HISTORY_BEFORE_START_S else None
