"""Reads recorded price files into price steps per market.

Parses only: which columns mean what. ``quality.py`` decides which rows can be believed, and nothing here
knows what a price is used for. The header tells the layout (``layouts.py``), never the file's name; CSV in
UTF-8, plain or gzipped. Times without a zone are UTC.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np

from pricing_data.errors import NoSuchMarket, TraceError
from pricing_data.formats import quality
from pricing_data.formats.csv_columns import CsvTable
from pricing_data.formats.large_csv import ColumnType, read_table
from pricing_data.formats.layouts import LAYOUTS, Layout, Semantics, recognise_layout
from pricing_data.formats.quality import Flaw, FlawFinding, Mask
from pricing_data.formats.source_priority import SILENCE_S
from pricing_data.model.market import Market, PriceHistory, Prices, Series, Times
from pricing_data.model.units import Instant

Filter = Callable[[Market], bool]

NO_MARKET: Final = -1
_AWS_PRODUCTS: Final = frozenset({"Linux/UNIX", "Linux/UNIX (Amazon VPC)"})
COLUMN_TYPES: Final = {
    "product": ColumnType.NAME,
    "time_quality": ColumnType.NAME,
    **{name: ColumnType.NAME for layout in LAYOUTS for name in layout.identity},
    **{layout.time: ColumnType.TIME for layout in LAYOUTS},
    **{layout.price: ColumnType.PRICE for layout in LAYOUTS},
}
"""The columns of price files that are read here."""


@dataclass(frozen=True, slots=True)
class Recording:
    """Holds prices of many markets from one source, and how much of the source could be used.

    ``rows_read = rows_used + rows_heartbeat + rows_duplicate + rows_unlisted + rows_quarantined +
    rows_left_out``. Heartbeats repeat their market's price, duplicates repeat a row, unlisted rows say that
    the market had no price, rows left out belong to markets (or products) that were not requested.
    """

    label: str
    semantics: Semantics
    generated: bool
    series: Mapping[Market, Series]
    delisted: Mapping[Market, Times]
    """Times at which a market with a price was seen without one (often none); its series does not show it."""
    findings: tuple[FlawFinding, ...]
    rows_read: int
    rows_used: int
    rows_heartbeat: int
    rows_duplicate: int
    rows_unlisted: int
    rows_quarantined: int
    rows_left_out: int
    first: Instant
    last: Instant
    """The last row that was understood, heartbeats included: knowledge ends here."""

    @property
    def history(self) -> PriceHistory:
        return PriceHistory.from_series(self.series)


@dataclass(frozen=True, slots=True, eq=False)
class SortedFile:
    """Holds a sorted price file: any choice of its markets is a Recording, without reading it again.

    ``times`` and ``prices`` hold the steps of one market after the other, until ``ends`` of each; so does
    ``delisted`` until ``delisted_ends``. Arrays but these three are of shape (m,), by position in
    ``markets``.
    """

    label: str
    semantics: Semantics
    markets: tuple[Market, ...]
    times: Times
    prices: Prices
    ends: quality.Ints
    delisted: Times
    delisted_ends: quality.Ints
    taken: quality.Ints
    """Rows that are not about another product, readable or not."""
    used: quality.Ints
    heartbeats: quality.Ints
    duplicates: quality.Ints
    unlisted: quality.Ints
    first: Times
    """Times of believed rows; ``quality.NO_FIRST`` and ``NO_LAST`` where a market has none."""
    last: Times
    flaws: Mapping[Flaw, Mapping[int, FlawFinding]]
    """Keys are positions in ``markets``; ``NO_MARKET`` for lines that name none."""
    rows_read: int

    def pick_markets(self, only: Filter | None, *, generated: bool = False) -> Recording:
        """Returns the recording of the markets that ``only`` picks; None picks all.

        Raises TraceError where these have no price, NoSuchMarket where the file has no row of them.
        """
        places = [place for place, found in enumerate(self.markets) if only is None or only(found)]
        findings = self._merge_findings(places)
        where = np.array(places, np.int64)
        misshapen = sum(found.count for found in self.flaws.get(Flaw.FIELDS, {}).values())
        taken = int(self.taken[where].sum())
        ends, delisted_ends = [0, *self.ends.tolist()], [0, *self.delisted_ends.tolist()]
        # Markets without a believed price have no series to return.
        stepping = [place for place in places if ends[place] < ends[place + 1]]
        if not stepping:
            raise _unusable_error(self.label, findings, self.markets, taken)
        return Recording(
            label=self.label,
            semantics=self.semantics,
            generated=generated,
            series={
                self.markets[place]: Series(
                    self.times[ends[place] : ends[place + 1]], self.prices[ends[place] : ends[place + 1]]
                )
                for place in stepping
            },
            delisted={
                self.markets[place]: self.delisted[delisted_ends[place] : delisted_ends[place + 1]]
                for place in stepping
            },
            findings=findings,
            rows_read=self.rows_read,
            rows_used=int(self.used[where].sum()),
            rows_heartbeat=int(self.heartbeats[where].sum()),
            rows_duplicate=int(self.duplicates[where].sum()),
            rows_unlisted=int(self.unlisted[where].sum()),
            rows_quarantined=sum(found.count for found in findings if found.kind.is_quarantining),
            rows_left_out=self.rows_read - misshapen - taken,
            first=Instant(int(self.first[where].min())),
            last=Instant(int(self.last[where].max())),
        )

    def _merge_findings(self, places: Sequence[int]) -> tuple[FlawFinding, ...]:
        """Returns findings of these markets together, and of lines that name none."""
        found = []
        for flaw, by_market in self.flaws.items():
            parts = [by_market[place] for place in (NO_MARKET, *places) if place in by_market]
            if parts:
                examples = sorted((one for part in parts for one in part.examples), key=lambda one: one.line)
                count = sum(part.count for part in parts)
                found.append(FlawFinding(flaw, count, tuple(examples[: quality.EXAMPLES_KEPT])))
        return tuple(found)


@dataclass(frozen=True, slots=True, eq=False)
class RawRows:
    """Holds all rows of a price file as they are, before any is judged or dropped as a repetition.

    ``rows_read = len(rows.lines) + unreadable lines + rows_left_out``.
    """

    label: str
    layout: Layout
    markets: tuple[Market, ...]
    rows: quality.ParsedRows
    """The rows that say a market, a time and a price (or that there is none)."""
    approximate: Mask
    """Rows whose time is approximate, as they say."""
    unreadable: Mapping[Flaw, quality.Ints]
    """Other lines, by what is wrong with them."""
    lines: Sequence[str]
    """The file; its line n is ``lines[n - 1]``."""
    rows_read: int
    rows_left_out: int
    """Rows of markets that were not requested, or of products other than Linux."""
    taken_lines: quality.Ints
    """The other lines, readable or not, ascending."""
    taken_codes: quality.Ints
    """Their markets, as positions in ``markets``."""

    @property
    def semantics(self) -> Semantics:
        return self.layout.semantics


def read_trace(
    path: Path | str, *, only: Filter | None = None, label: str | None = None, generated: bool = False
) -> Recording:
    """Reads a recorded price file; ``only`` picks markets, ``label`` is the name shown to users.

    Bad rows are quarantined and reported as findings. Raises TraceError where the file cannot be read as a
    price file at all, or holds no usable row.
    """
    return sort_markets(read_rows(path, only=only, label=label)).pick_markets(only, generated=generated)


def sort_markets(raw: RawRows) -> SortedFile:
    """Judges and orders all rows of a file, market by market."""
    silence_s = SILENCE_S if raw.semantics is Semantics.EVENT_STREAM else None
    result = quality.sort_rows(raw.rows, silence_s=silence_s)
    flawed = {**raw.unreadable, **result.flaws, Flaw.APPROXIMATE: raw.rows.lines[raw.approximate]}
    count = len(raw.markets)

    def by_market(values: quality.Ints, missing: int = 0) -> quality.Ints:
        return np.append(values, np.full(count - len(values), missing, np.int64))

    nothing = np.empty(0, np.int64)
    delisted = [steps.delisted if (steps := result.steps.get(code)) else nothing for code in range(count)]
    series = [result.steps[code].series for code in sorted(result.steps)]
    lengths = [len(steps.series) if (steps := result.steps.get(code)) else 0 for code in range(count)]
    return SortedFile(
        label=raw.label,
        semantics=raw.semantics,
        markets=raw.markets,
        times=np.concatenate([nothing, *(steps.times for steps in series)]),
        prices=np.concatenate([np.empty(0), *(steps.prices for steps in series)]),
        ends=np.cumsum(lengths, dtype=np.int64),
        delisted=np.concatenate([nothing, *delisted]),
        delisted_ends=np.cumsum([len(times) for times in delisted], dtype=np.int64),
        taken=by_market(np.bincount(raw.taken_codes).astype(np.int64)),
        used=by_market(result.used),
        heartbeats=by_market(result.heartbeats),
        duplicates=by_market(result.duplicates),
        unlisted=by_market(result.unlisted),
        first=by_market(result.first, quality.NO_FIRST),
        last=by_market(result.last, quality.NO_LAST),
        flaws={flaw: _flaws_by_market(raw, flaw, where) for flaw, where in flawed.items() if len(where)},
        rows_read=raw.rows_read,
    )


def _flaws_by_market(raw: RawRows, flaw: Flaw, where: quality.Ints) -> dict[int, FlawFinding]:
    """Finds the lines ``where`` with a flaw, by the position of their market.

    ``NO_MARKET`` where none is named.
    """

    def text_of(line: int) -> str:
        return raw.lines[line - 1]

    if flaw is Flaw.FIELDS:
        return {NO_MARKET: quality.make_finding(flaw, where.tolist(), text_of)}
    # Lines ascend, so a search finds each flawed line's market.
    codes = raw.taken_codes[np.searchsorted(raw.taken_lines, where)]
    order = np.lexsort((where, codes))
    codes, where = codes[order], where[order]
    borders = np.flatnonzero(np.diff(codes, prepend=-1)).tolist()
    return {
        int(codes[begin]): quality.make_finding(flaw, where[begin:end].tolist(), text_of)
        for begin, end in pairwise([*borders, len(codes)])
    }


def read_rows(path: Path | str, *, only: Filter | None = None, label: str | None = None) -> RawRows:
    """Reads a recorded price file without judging its rows. Raises TraceError where it is no price file."""
    name = str(path)
    return price_rows(read_table(Path(path), name, COLUMN_TYPES), name, only=only, label=label)


def price_rows(
    table: CsvTable, name: str, *, only: Filter | None = None, label: str | None = None
) -> RawRows:
    """Reads the same from a file called ``name`` that is in memory."""
    layout = recognise_layout(table.header)
    if layout is None:
        known = "; or ".join(",".join(layout.columns) for layout in LAYOUTS)
        found = f"the columns {','.join(table.header)[:120]!r}"
        raise TraceError(name, 1, found, f"those of a price file: {known}", "Rename its columns.")
    markets, codes = _list_markets(table, layout)
    wanted = np.array([only is None or only(market) for market in markets], dtype=np.bool_)
    taken = wanted[codes] & _is_linux(table, layout)
    unreadable, rows = _parse_rows(table, layout, codes, taken)
    return RawRows(
        label=label or name,
        layout=layout,
        markets=tuple(markets),
        rows=rows,
        approximate=np.isin(rows.lines, _approximate_lines(table, taken)),
        unreadable=unreadable,
        lines=table.lines,
        rows_read=table.row_count,
        rows_left_out=int(np.count_nonzero(~taken)),
        taken_lines=table.numbers[taken],
        taken_codes=codes[taken],
    )


def _list_markets(table: CsvTable, layout: Layout) -> tuple[list[Market], quality.Ints]:
    """Returns the markets of the file, and each row's position in that list."""
    codes = np.zeros(len(table.numbers), np.int64)
    columns = [table.encode_column(name) for name in layout.identity]
    for texts, places in columns:
        if len(texts) > 1:
            # A mixed-radix number: one integer per combination of names.
            codes = codes * len(texts) + places
    _, first, codes = np.unique(codes, return_index=True, return_inverse=True)
    return [layout.market(*(texts[places[row]] for texts, places in columns)) for row in first], codes


def _is_linux(table: CsvTable, layout: Layout) -> Mask:
    """Returns Linux rows: AWS prices several operating systems in one stream."""
    if "product" not in table.header or layout.semantics is Semantics.POLLED:
        return np.ones(len(table.numbers), np.bool_)
    return table.is_in("product", _AWS_PRODUCTS)


def _approximate_lines(table: CsvTable, taken: Mask) -> quality.Ints:
    if "time_quality" not in table.header:
        return np.empty(0, np.int64)
    return table.numbers[taken & table.is_in("time_quality", ("approx",))]


def _parse_rows(
    table: CsvTable, layout: Layout, codes: quality.Ints, taken: Mask
) -> tuple[dict[Flaw, quality.Ints], quality.ParsedRows]:
    """Returns the lines that do not parse, and the taken rows that do."""
    polled = layout.semantics is Semantics.POLLED
    times, time_known = table.read_times(layout.time, taken)
    prices, price_known, listed = table.read_prices(layout.price, taken, may_be_empty=polled)
    numbers, codes = table.numbers[taken], codes[taken]
    flaws = {
        Flaw.FIELDS: table.misshapen,
        Flaw.TIME: numbers[~time_known],
        Flaw.PRICE: numbers[time_known & ~price_known],
    }
    # Rows without a listed price stay: they say that the market was gone.
    good = np.flatnonzero(time_known & price_known)
    return flaws, quality.ParsedRows(numbers[good], codes[good], times[good], prices[good], listed[good])


def _unusable_error(
    name: str, findings: Sequence[FlawFinding], markets: Sequence[Market], taken: int
) -> TraceError:
    if markets and not taken:
        some, more = sorted(map(str, markets))[:8], len(markets) - 8
        return NoSuchMarket(name, ", ".join(some) + (f" and {more} more" if more > 0 else ""))
    worst = max(findings, key=lambda finding: finding.count, default=None)
    if worst is None:
        return TraceError(name, None, "no row with a price", "at least one", "Fetch the file again.")
    example = worst.examples[0]
    found = f"no usable row ({worst.kind}: {worst.count} rows, such as {example.text[:80]!r})"
    return TraceError(name, example.line, found, "rows with a time and a price", "Check how it was written.")
