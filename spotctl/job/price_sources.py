"""Opens the prices that a job names: recorded files, the price store, or the bundled market.

A launch reads its source once, and records what it read with the run: whoever resumes it sees the same
prices, whatever has become of the source. Importing this module loads nothing heavy: job files are read with
it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from pricing_data.errors import (
    ExportRefused,
    FeedError,
    NoSuchMarket,
    StoreDamaged,
    StoreUnwritable,
    TraceError,
)
from spotctl.errors import SpotctlError, UsageError
from spotctl.home import default_root

if TYPE_CHECKING:
    from pricing_data.formats.traces import Filter, Recording

STORE: Final = "store"
"""The name of the price store in job files, and of the bundled market below."""
BUNDLED: Final = "bundled"
_STORE_LABEL: Final = "the price store"
_NAMED: Final = 8
"""Markets that an error lists at most."""


class PriceSource(Protocol):
    """Provides recorded prices, as ``tests/conformance/test_price_sources.py`` holds of every implementation.

    What is returned is a value: it does not change when the source does. Each market's series is the same
    whichever others are picked, its times strictly increase, and its steps until any moment do not depend on
    later ones, so that ``history.as_of(now)`` is what was known then.
    """

    def read_prices(self, only: Filter) -> Recording:
        """Returns every price of the markets that ``only`` picks.

        Raises NoSuchMarket where it has none of them, another TraceError where it has no price at all.
        """
        ...


@dataclass(frozen=True, slots=True)
class TraceFiles:
    """Reads recorded files, at least one; where several give one market and moment, the first is believed."""

    paths: tuple[Path, ...]

    def read_prices(self, only: Filter) -> Recording:
        """Returns the prices of all files together. Raises UsageError where they are of different kinds."""
        from spotctl.records.trace_cache import read_trace_once

        found: list[Recording] = []
        lacking: list[NoSuchMarket] = []
        for path in self.paths:
            try:
                found.append(read_trace_once(path, only))
            except NoSuchMarket as error:  # the other files may have them
                lacking.append(error)
        if not found:
            raise NoSuchMarket(lacking[0].path, "; ".join(error.offered for error in lacking))
        return merge_recordings(found)


@dataclass(frozen=True, slots=True)
class BundledMarket:
    """Reads the generated market that ships with the program."""

    def read_prices(self, only: Filter) -> Recording:
        from spotctl.records.trace_cache import read_bundled_once

        return read_bundled_once(only)


@dataclass(frozen=True, slots=True)
class StoredPrices:
    """Reads the price store in the folder ``root``, as it is at that moment."""

    root: Path

    def read_prices(self, only: Filter) -> Recording:
        from pricing_data.formats.layouts import Semantics
        from pricing_data.formats.traces import Recording
        from pricing_data.store.store import PriceStore  # loads DuckDB: only who asks for the store needs it

        if not self.root.is_dir():
            raise self._nothing_stored()
        store = PriceStore(self.root)
        summaries = store.markets()
        if not summaries:
            raise self._nothing_stored()
        picked = [summary.market for summary in summaries if only(summary.market)]
        if not picked:
            known, more = [str(summary.market) for summary in summaries[:_NAMED]], len(summaries) - _NAMED
            raise NoSuchMarket(_STORE_LABEL, ", ".join(known) + (f" and {more} more" if more > 0 else ""))
        history = store.history(picked)
        series = {market: steps for market in picked if len(steps := history.series(market))}
        if not series:
            raise self._nothing_stored()
        used = [summary for summary in summaries if summary.market in series]
        rows = sum(summary.rows for summary in used)
        return Recording(
            label=_STORE_LABEL,
            semantics=Semantics.EVENT_STREAM,
            generated=False,
            series=series,
            delisted={},
            findings=(),
            rows_read=rows,
            rows_used=rows,
            rows_heartbeat=0,
            rows_duplicate=0,
            rows_unlisted=0,
            rows_quarantined=0,
            rows_left_out=0,
            first=min(summary.first for summary in used),
            last=max(summary.last for summary in used),
        )

    def _nothing_stored(self) -> TraceError:
        advice = "`spotctl prices fetch` or `import` brings some."
        return TraceError(_STORE_LABEL, None, f"no price in {self.root}", "at least one", advice)


PRICE_SOURCES: Final[dict[str, Callable[[], PriceSource]]] = {
    STORE: lambda: StoredPrices(prices_root()),
    BUNDLED: BundledMarket,
}
"""Opens the sources that have a name; any other name in a job file is that of a recorded file."""


def register_price_source(name: str, make: Callable[[], PriceSource]) -> None:
    """Adds a source that job files may name. Raises ValueError for a name that is taken."""
    if name in PRICE_SOURCES:
        raise ValueError(f"there are prices called {name!r} already")
    PRICE_SOURCES[name] = make


def open_source(name: str) -> PriceSource:
    """Returns the source of that name, else the recorded file at that path."""
    make = PRICE_SOURCES.get(name)
    return TraceFiles((Path(name),)) if make is None else make()


def prices_root() -> Path:
    """Returns the folder of this user's price store."""
    return default_root() / "prices"


def merge_recordings(recordings: Sequence[Recording]) -> Recording:
    """Merges recordings; where two give one market and moment, the first is believed.

    Raises UsageError where files of different kinds would be mixed.
    """
    import numpy as np

    from pricing_data.model.market import Series

    first, *others = recordings
    if not others:
        return first
    if mixed := [other.label for other in others if other.semantics is not first.semantics]:
        raise UsageError(f"--trace {mixed[0]}: prices there are another kind than in {first.label}; use one")
    series = {}
    for market in sorted({market for recording in recordings for market in recording.series}):
        found = [recording.series[market] for recording in recordings if market in recording.series]
        # ``unique`` keeps the first of equal times, so the first recording is believed.
        times, kept = np.unique(np.concatenate([steps.times for steps in found]), return_index=True)
        series[market] = Series(times, np.concatenate([steps.prices for steps in found])[kept])
    return replace(
        first,
        label=", ".join(recording.label for recording in recordings),
        series=series,
        first=min(recording.first for recording in recordings),
        last=max(recording.last for recording in recordings),
    )


@contextmanager
def report_errors() -> Iterator[None]:
    """Turns errors of a store, a file or a feed into our own: a line and an exit code."""
    try:
        yield
    except (TraceError, ExportRefused) as error:
        raise UsageError(str(error)) from error
    except (StoreDamaged, StoreUnwritable, FeedError) as error:
        raise SpotctlError(str(error)) from error
