"""Finds a backtest's prices: in files, else in the price store, else in the bundled market.

The store serves if it holds over a month of the job's markets: today's prices alone are no history.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from pricing_data.catalogue import Catalogue
from pricing_data.errors import NoSuchMarket
from pricing_data.formats.layouts import Semantics
from pricing_data.formats.traces import Filter, Recording, read_trace
from pricing_data.model.market import Market, Series
from pricing_data.snapshots import bundled_market
from pricing_data.store.store import PriceStore
from spotctl.errors import UsageError
from spotctl.job.resolve import HISTORY_BEFORE_START_S, MarketFilter
from spotctl.job.spec import JobSpec
from spotctl.prices.location import prices_root, report_errors


def read_prices(spec: JobSpec, traces: Sequence[Path], markets: tuple[str, ...]) -> Recording:
    """Returns every price of markets that the job may use. Raises UsageError for a file that cannot be
    read.
    """
    wanted = MarketFilter(spec, markets, Catalogue.bundled())
    with report_errors():
        try:
            if traces:
                return merge_recordings([read_trace(path, only=wanted) for path in traces])
            return _read_store(wanted) or bundled_market(only=wanted)
        except NoSuchMarket as error:
            raise wanted.explain_refusal(error) from error


def merge_recordings(recordings: Sequence[Recording]) -> Recording:
    """Merges recordings; where two give one market and moment, the first is believed.

    Raises UsageError where files of different kinds would be mixed.
    """
    first, *others = recordings
    if mixed := [other.label for other in others if other.semantics is not first.semantics]:
        raise UsageError(f"--trace {mixed[0]}: prices there are another kind than in {first.label}; use one")
    return replace(
        first,
        label=", ".join(recording.label for recording in recordings),
        series={market: _join_series(recordings, market) for market in _all_markets(recordings)},
        first=min(recording.first for recording in recordings),
        last=max(recording.last for recording in recordings),
    )


def _all_markets(recordings: Iterable[Recording]) -> list[Market]:
    return sorted({market for recording in recordings for market in recording.series})


def _join_series(recordings: Iterable[Recording], market: Market) -> Series:
    found = [recording.series[market] for recording in recordings if market in recording.series]
    # ``unique`` keeps the first of equal times, so the first recording is believed.
    times, first = np.unique(np.concatenate([series.times for series in found]), return_index=True)
    return Series(times, np.concatenate([series.prices for series in found])[first])


def _read_store(wanted: Filter) -> Recording | None:
    """Returns what the store has of them; None where that is too little to begin with."""
    root = prices_root()
    if not root.is_dir():
        return None
    store = PriceStore(root)
    known = [summary for summary in store.markets() if wanted(summary.market)]
    if not known:
        return None
    first, last = min(summary.first for summary in known), max(summary.last for summary in known)
    if last - first <= HISTORY_BEFORE_START_S:
        return None
    history = store.history([summary.market for summary in known])
    rows = sum(summary.rows for summary in known)
    return Recording(
        label="the price store",
        semantics=Semantics.EVENT_STREAM,
        generated=False,
        series={market: history.series(market) for market in history.markets},
        delisted={},
        findings=(),
        rows_read=rows,
        rows_used=rows,
        rows_heartbeat=0,
        rows_duplicate=0,
        rows_unlisted=0,
        rows_quarantined=0,
        rows_left_out=0,
        first=first,
        last=last,
    )
