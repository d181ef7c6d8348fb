"""Shows the progress of a fetch, as bars or lines, and its result."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Final, Protocol, Self

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from pricing_data.errors import FeedError
from pricing_data.feeds.base import FeedPart
from pricing_data.feeds.fetch import FetchReport, PartReport
from spotctl.cli.format import output
from spotctl.timesource import stopwatch

_LINE_EVERY_S: Final = 10.0


class FetchWatcher(Protocol):
    """Receives the list of parts, then the progress of each."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def expect_parts(self, parts: Sequence[FeedPart]) -> None: ...
    def report_part(self, report: PartReport) -> None: ...


def make_watcher() -> FetchWatcher:
    """Returns bars for people, lines for others; both on standard error."""
    return FetchBars() if output.for_people() else FetchLines()


class FetchLines:
    """Writes one line per finished part, and one every ten seconds of a long one."""

    def __init__(self) -> None:
        self._spoke = stopwatch()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Does nothing: nothing is open."""

    def expect_parts(self, parts: Sequence[FeedPart]) -> None:
        """Does nothing: each part is reported when it is done."""

    def report_part(self, report: PartReport) -> None:
        if report.done or report.failure is not None or stopwatch() - self._spoke > _LINE_EVERY_S:
            self._spoke = stopwatch()
            output.write_note(describe_part(report))


class FetchBars:
    """Draws one bar for each kind of each cloud: parts done, rows, rows per second, position."""

    def __init__(self) -> None:
        self._bars = Progress(
            TextColumn("{task.description:<24}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rows]:>12,} rows {task.fields[rate]:>10,.0f}/s  {task.fields[now]}"),
            console=output.stderr_console(),
        )
        self._tasks: dict[str, TaskID] = {}
        self._reports: dict[FeedPart, PartReport] = {}
        self._began = stopwatch()

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bars.stop()

    def expect_parts(self, parts: Sequence[FeedPart]) -> None:
        for part in parts:
            bar = _bar_name(part)
            if bar not in self._tasks:
                self._tasks[bar] = self._bars.add_task(bar, total=0, rows=0, rate=0.0, now="")
            task = self._tasks[bar]
            self._bars.update(task, total=(self._bars.tasks[task].total or 0) + 1)

    def report_part(self, report: PartReport) -> None:
        self._reports[report.part] = report
        bar = _bar_name(report.part)
        mine = [other for part, other in self._reports.items() if _bar_name(part) == bar]
        rows = sum(other.rows for other in mine)
        self._bars.update(
            self._tasks[bar],
            completed=sum(other.done or other.failure is not None for other in mine),
            rows=rows,
            rate=rows / max(stopwatch() - self._began, 0.1),
            now=f"{report.part.name} {_one_line(report.waiting) if report.waiting else report.cursor}"[:60],
        )


def _bar_name(part: FeedPart) -> str:
    return f"{part.cloud} {part.kind}"


def describe_part(report: PartReport) -> str:
    """Describes the state of one part."""
    rate = report.rows / report.seconds if report.seconds > 0.05 else 0.0
    said = f"{report.part}: {report.rows:,} rows, {report.new:,} new"
    said += f", {report.quarantined:,} in quarantine" if report.quarantined else ""
    said += f", {report.seconds:.1f} s" + (f" ({rate:,.0f} rows/s)" if rate else "")
    if report.failure is not None:
        return f"{said}; incomplete, see below"
    if report.waiting is not None:
        return f"{said}; waiting: {_one_line(report.waiting)}"
    return said if report.done else f"{said} so far{', ' + report.cursor if report.cursor else ''}"


def summarize_fetch(report: FetchReport) -> list[str]:
    """Summarizes the result; parts that failed are listed with the reason."""
    rows, new = sum(part.rows for part in report.parts), sum(part.new for part in report.parts)
    quarantined = sum(part.quarantined for part in report.parts)
    lines = [f"{rows:,} rows fetched in {report.seconds:.1f} s: {new:,} new, {quarantined:,} in quarantine"]
    lines += [f"not fetched: {name}: {_one_line(error)}" for name, error in report.unavailable]
    lines += [f"incomplete: {_describe_failure(part)}" for part in report.parts if part.failure is not None]
    lines += [f"left out: {part.part}: {part.left_out}" for part in report.parts if part.left_out]
    if report.interrupted:
        lines.append("interrupted: all fetched rows are stored; run the same command again to continue")
    return lines


def _describe_failure(report: PartReport) -> str:
    said = _one_line(report.failure)
    return said if str(report.part) in said else f"{report.part}: {said}"


def _one_line(error: FeedError | None) -> str:
    """Puts an error on one line; those of SDKs span many."""
    return " ".join(str(error).split())


def fetch_document(report: FetchReport, exit_code: int) -> dict[str, Any]:
    """Builds the object for programs: ``spotctl.prices.fetch/1``."""
    return {
        "schema": "spotctl.prices.fetch/1",
        "exit_code": exit_code,
        "complete": report.is_complete,
        "interrupted": report.interrupted,
        "seconds": round(report.seconds, 3),
        "parts": [_part_fields(part) for part in report.parts],
        "unavailable": [{"feed": name, "why": _one_line(error)} for name, error in report.unavailable],
    }


def _part_fields(report: PartReport) -> dict[str, Any]:
    return {
        "cloud": report.part.cloud,
        "kind": str(report.part.kind),
        "part": report.part.name,
        "source": report.part.source,
        "rows": report.rows,
        "new": report.new,
        "known": report.known,
        "quarantined": report.quarantined,
        "retries": report.retries,
        "seconds": round(report.seconds, 3),
        "done": report.done,
        "left_out": report.left_out,
        "failure": None if report.failure is None else _one_line(report.failure),
    }
