"""Recorded price files -> price steps per market.

Parsing only: which columns mean what. Which rows can be believed is ``quality.py``'s business, and what a
price does to anybody is nobody's here. The layout is told by the header (``layouts.py``), never by the
file's name; CSV in UTF-8, plain or gzipped. Times without a zone are UTC.
"""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from pricing_data import quality
from pricing_data.errors import TraceError
from pricing_data.layouts import LAYOUTS, Layout, Semantics, recognised
from pricing_data.market import Market, PriceHistory, Prices, Series, Times
from pricing_data.quality import Finding, Flaw, Mask
from pricing_data.units import HOUR_S, Instant, parse_instant

Filter = Callable[[Market], bool]

_WHOLE_SECONDS: Final = "0000-00-00T00:00:00Z"
"""What times nearly always look like. Numpy reads these fast, and guesses (with a warning) at others."""
_DIGITS: Final = str.maketrans("123456789", "0" * 9)
_AWS_PRODUCTS: Final = frozenset({"Linux/UNIX", "Linux/UNIX (Amazon VPC)"})
_SILENCE_S: Final = 48 * HOUR_S
"""AWS repeats a price about daily; where two days go by without a row, the record has a hole."""


@dataclass(frozen=True, slots=True)
class Recording:
    """Prices of many markets from one source, and how much of the source could be used.

    ``rows_read = rows_used + rows_heartbeat + rows_duplicate + rows_unlisted + rows_quarantined +
    rows_left_out``. Heartbeats repeat their market's price, duplicates repeat a row, unlisted rows say
    that the market had no price, rows left out belong to markets (or products) nobody asked for.
    """

    label: str
    semantics: Semantics
    generated: bool
    series: Mapping[Market, Series]
    delisted: Mapping[Market, Times]
    """When a market that had a price was seen without one (often never); its series does not show it."""
    findings: tuple[Finding, ...]
    rows_read: int
    rows_used: int
    rows_heartbeat: int
    rows_duplicate: int
    rows_unlisted: int
    rows_quarantined: int
    rows_left_out: int
    first: Instant
    last: Instant
    """The last row that was understood, heartbeats included: what is known reaches until here."""

    @property
    def history(self) -> PriceHistory:
        return PriceHistory.of(self.series)


@dataclass(frozen=True, slots=True, eq=False)
class RawRows:
    """All rows of a price file as they stand, before anything is judged or left out for being a repetition.

    ``rows_read = len(rows.lines) + unreadable lines + rows_left_out``.
    """

    label: str
    semantics: Semantics
    markets: tuple[Market, ...]
    rows: quality.Rows
    """The rows that say a market, a time and a price (or that there is none)."""
    approximate: Mask
    """Which of these say that their time is approximate."""
    unreadable: Mapping[Flaw, quality.Ints]
    """The lines that do not, by what is wrong with them."""
    lines: Sequence[str]
    """The file; line n of it is ``lines[n - 1]``."""
    rows_read: int
    rows_left_out: int
    """Of markets nobody asked for, or of products other than Linux."""


@dataclass(frozen=True, slots=True)
class _Table:
    """The well-formed rows of a file, and where the others are."""

    layout: Layout
    columns: Mapping[str, Sequence[str]]
    lines: quality.Ints
    misshapen: quality.Ints
    """Lines with more or fewer fields than the header."""

    @classmethod
    def parse(cls, name: str, lines: Sequence[str]) -> _Table:
        if not lines:
            raise TraceError(name, None, "an empty file", "a header and rows", "Fetch the file again.")
        header = tuple(field.strip() for field in next(_csv(name, lines[:1], before=0), ()))
        layout = recognised(header)
        if layout is None:
            known = "; or ".join(",".join(layout.columns) for layout in LAYOUTS)
            found = f"the columns {','.join(header)[:120]!r}"
            raise TraceError(name, 1, found, f"those of a price file: {known}", "Rename its columns.")
        return cls(layout, *_rows(name, header, lines))

    def is_in(self, name: str, values: Collection[str]) -> Mask:
        """For each row, whether its ``name`` is one of ``values``."""
        return np.fromiter((text in values for text in self.columns[name]), np.bool_, len(self.lines))


_Rows = tuple[Mapping[str, Sequence[str]], quality.Ints, quality.Ints]
"""Columns, the lines they are from, and the lines that have another number of fields."""


def _rows(name: str, header: Sequence[str], lines: Sequence[str]) -> _Rows:
    """Without the csv reader where nothing is quoted and every line is whole: as nearly always, and fast."""
    body, commas = lines[1:], len(header) - 1
    plain = all(line.count(",") == commas and '"' not in line and ", " not in line for line in body)
    if not plain or not body:
        return _csv_rows(header, list(_csv(name, body, before=1)))
    fields = ",".join(body).split(",")
    columns = {name: fields[place :: len(header)] for place, name in enumerate(header)}
    return columns, np.arange(2, len(lines) + 1), np.empty(0, np.int64)


def _csv(name: str, lines: Sequence[str], before: int) -> Iterator[list[str]]:
    """``before``: lines of the file before these."""
    reader = csv.reader(lines, skipinitialspace=True)
    try:
        yield from reader
    except csv.Error as error:
        line = before + reader.line_num
        raise TraceError(name, line, str(error), "CSV", "Check how it was written.") from error


def _csv_rows(header: Sequence[str], rows: Sequence[Sequence[str]]) -> _Rows:
    whole = [len(row) == len(header) for row in rows]
    good = [number for number, fits in enumerate(whole, start=2) if fits]
    bad = [number for number, fits in enumerate(whole, start=2) if not fits and rows[number - 2]]
    columns = {name: [rows[number - 2][place] for number in good] for place, name in enumerate(header)}
    return columns, np.array(good, np.int64), np.array(bad, np.int64)


def text_of(path: Path, name: str, expected: str = "a price file, CSV or gzipped CSV") -> str:
    """The decoded, decompressed content of ``expected``. A file is gzip if it begins like gzip."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise TraceError(name, None, "no such file", expected, "Check the path.") from None
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise TraceError(name, None, why.lower(), expected, "Check the path and its permissions.") from error
    if content[:2] == b"\x1f\x8b":
        try:
            content = gzip.decompress(content)
        except (EOFError, OSError, zlib.error) as error:
            found = f"gzip data that cannot be unpacked ({error})"
            raise TraceError(name, None, found, "a whole gzip file", "Fetch the file again.") from error
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        found = f"bytes that are not UTF-8 text ({content[error.start : error.start + 4].hex(' ')})"
        raise TraceError(name, line, found, expected, "Convert it to UTF-8.") from error
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise TraceError(name, line, "binary data", expected, "Convert it to text in UTF-8.")
    return text


def _parsed_times(texts: Sequence[str]) -> tuple[Times, Mask]:
    """Instants, and which of them could be read."""
    known = np.ones(len(texts), np.bool_)
    if "".join(texts).translate(_DIGITS) == _WHOLE_SECONDS * len(texts):
        try:
            moments = np.array([text[:-1] for text in texts], dtype="datetime64[s]")
        except ValueError:
            pass  # at least one is no time: find out which
        else:
            return moments.astype(np.int64), known
    values = np.zeros(len(texts), np.int64)
    for index, text in enumerate(texts):
        try:
            values[index] = parse_instant(text)
        except (ValueError, OverflowError):
            known[index] = False
    return values, known


def _parsed_prices(texts: Sequence[str], may_be_empty: bool) -> tuple[Prices, Mask, Mask]:
    """Prices, which of them could be read, and which rows list a price at all."""
    known = np.ones(len(texts), np.bool_)
    listed = np.ones(len(texts), np.bool_)
    try:
        return np.array(list(map(float, texts)), np.float64), known, listed
    except ValueError:
        values = np.zeros(len(texts), np.float64)
    for index, text in enumerate(texts):
        try:
            values[index] = float(text)
        except ValueError:
            if may_be_empty and not text.strip():
                listed[index] = False
            else:
                known[index] = False
    return values, known, listed


def read_trace(
    path: Path | str, *, only: Filter | None = None, label: str | None = None, generated: bool = False
) -> Recording:
    """Read a recorded price file; ``only`` picks markets, ``label`` is what people are shown as its name.

    Bad rows are quarantined and reported as findings. Raises TraceError where the file cannot be read
    as a price file at all, or holds no usable row.
    """
    raw = read_rows(path, only=only, label=label)
    markets, event_stream = raw.markets, raw.semantics is Semantics.EVENT_STREAM
    result = quality.sort_out(raw.rows, silence_s=_SILENCE_S if event_stream else None)
    approximate = {Flaw.APPROXIMATE: raw.rows.lines[raw.approximate]}
    findings = _findings(raw.lines, raw.unreadable, result.flaws, approximate)
    if result.first is None or result.last is None or not result.steps:
        misshapen = len(raw.unreadable[Flaw.FIELDS])
        taken = raw.rows_read - raw.rows_left_out - misshapen
        raise _nothing_usable(str(path), findings, markets, taken)
    return Recording(
        label=raw.label,
        semantics=raw.semantics,
        generated=generated,
        series={markets[code]: steps.series for code, steps in result.steps.items()},
        delisted={markets[code]: steps.delisted for code, steps in result.steps.items()},
        findings=findings,
        rows_read=raw.rows_read,
        rows_used=result.used,
        rows_heartbeat=result.heartbeats,
        rows_duplicate=result.duplicates,
        rows_unlisted=result.unlisted,
        rows_quarantined=sum(found.count for found in findings if found.kind.quarantines),
        rows_left_out=raw.rows_left_out,
        first=Instant(result.first),
        last=Instant(result.last),
    )


def read_rows(path: Path | str, *, only: Filter | None = None, label: str | None = None) -> RawRows:
    """Read a recorded price file without judging its rows. Raises TraceError where it is no price file."""
    name = str(path)
    lines = text_of(Path(path), name).splitlines()
    table = _Table.parse(name, lines)
    markets, codes = _markets(table)
    wanted = np.array([only is None or only(market) for market in markets], dtype=np.bool_)
    taken = wanted[codes] & _right_product(table)
    unreadable, rows = _readable(table, codes, taken)
    return RawRows(
        label=label or name,
        semantics=table.layout.semantics,
        markets=tuple(markets),
        rows=rows,
        approximate=np.isin(rows.lines, _approximate(table, taken)),
        unreadable=unreadable,
        lines=lines,
        rows_read=len(table.lines) + len(table.misshapen),
        rows_left_out=int(np.count_nonzero(~taken)),
    )


def _markets(table: _Table) -> tuple[list[Market], quality.Ints]:
    """The markets of the file, and each row's place in that list."""
    codes = np.zeros(len(table.lines), np.int64)
    for name in table.layout.identity:
        column = table.columns[name]
        code_of = {value: code for code, value in enumerate(dict.fromkeys(column))}
        codes = codes * len(code_of) + np.fromiter(map(code_of.__getitem__, column), np.int64, len(column))
    _, first, places = np.unique(codes, return_index=True, return_inverse=True)
    identities = [[table.columns[name][row] for name in table.layout.identity] for row in first]
    return [table.layout.market(*identity) for identity in identities], places


def _right_product(table: _Table) -> Mask:
    """AWS prices several operating systems in one stream; only Linux is ours."""
    if "product" not in table.layout.also:
        return np.ones(len(table.lines), np.bool_)
    return table.is_in("product", _AWS_PRODUCTS)


def _approximate(table: _Table, taken: Mask) -> quality.Ints:
    if "time_quality" not in table.columns:
        return np.empty(0, np.int64)
    return table.lines[taken & table.is_in("time_quality", ("approx",))]


def _readable(
    table: _Table, codes: quality.Ints, taken: Mask
) -> tuple[dict[Flaw, quality.Ints], quality.Rows]:
    """The lines that do not parse, and the taken rows that do."""
    polled = table.layout.semantics is Semantics.POLLED
    times, time_known = _parsed_times(table.columns[table.layout.time])
    prices, price_known, listed = _parsed_prices(table.columns[table.layout.price], may_be_empty=polled)
    flaws = {
        Flaw.FIELDS: table.misshapen,
        Flaw.TIME: table.lines[taken & ~time_known],
        Flaw.PRICE: table.lines[taken & time_known & ~price_known],
    }
    good = np.flatnonzero(taken & time_known & price_known)
    return flaws, quality.Rows(table.lines[good], codes[good], times[good], prices[good], listed[good])


def _findings(lines: Sequence[str], *flaws: Mapping[Flaw, quality.Ints]) -> tuple[Finding, ...]:
    return tuple(
        quality.finding(flaw, where.tolist(), lambda line: lines[line - 1])
        for group in flaws
        for flaw, where in group.items()
        if len(where)
    )


def _nothing_usable(
    name: str, findings: Sequence[Finding], markets: Sequence[Market], taken: int
) -> TraceError:
    if markets and not taken:
        offered = ", ".join(sorted(map(str, markets))[:8]) + (", ..." if len(markets) > 8 else "")
        advice = f"The file holds {len(markets)} markets: {offered}."
        return TraceError(name, None, "no Linux row of the markets asked for", "at least one", advice)
    worst = max(findings, key=lambda finding: finding.count, default=None)
    if worst is None:
        return TraceError(name, None, "no row with a price", "at least one", "Fetch the file again.")
    example = worst.examples[0]
    found = f"no usable row ({worst.kind}: {worst.count} rows, such as {example.text[:80]!r})"
    return TraceError(name, example.line, found, "rows with a time and a price", "Check how it was written.")
