"""Describes a job's size in a plan: its data, its model, the work of a clock, and their sources."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from spotctl.cli.format import event_text
from spotctl.job.clock_work import ESTIMATES_WITHIN, WorkSource
from spotctl.job.input_survey import InputSize
from spotctl.job.model_size import BYTES_PER_VALUE
from spotctl.job.settings import DEFAULT_SPEED, LaunchOptions
from spotctl.session.launch_plan import JobPlan

if TYPE_CHECKING:
    from agileml.api import Counts

SLOWER: Final = 1.5
"""Factor by which this computer may be too slow before a warning."""
_NOTICEABLE_S: Final = 120.0
"""Nominal seconds by which a run must take longer before a warning."""
_TO_MEASURE: Final = "`spotctl plan --measure` measures it"


def describe_size(plan: JobPlan) -> list[str]:
    """Describes what is known of the size of the job, for people."""
    return [*_describe_data(plan.size), *_describe_work(plan), *_describe_gains(plan)]


def real_time(plan: JobPlan, speed: float) -> list[str]:
    """Describes the real duration of a launch; nothing for a program, which runs at its own pace."""
    if plan.work.source is WorkSource.RECORDED or not plan.terms.reliable_count:
        return []
    return [
        f"real time        {event_text.format_span(plan.ahead.expected_s / speed)} "
        f"at --speed {speed:g}, plus a few seconds"
    ]


def size_fields(plan: JobPlan) -> dict[str, Any]:
    """Returns the same for programs."""
    size, work = plan.size, plan.work
    return {
        "work_assumed": work.source is WorkSource.ASSUMED,
        "work_source": work.source.value,
        "work_range": None if work.range is None else list(work.range),
        "measured_core_seconds": None if work.measured is None else work.measured.core_seconds,
        "input": None if size is None else _input_fields(size),
    }


def told_of_speed(plan: JobPlan, options: LaunchOptions) -> list[str]:
    """Warns if this computer computes more slowly than prices pass, which raises the bill."""
    ahead, speed = plan.ahead, options.speed
    told = [] if options.speed_named or speed == DEFAULT_SPEED else [_explain_speed(plan, speed)]
    slower = plan.work.slower_here(ahead.work / ahead.expected_s, speed) if ahead.expected_s > 0 else None
    if slower is None or slower < SLOWER or (slower - 1) * ahead.expected_s < _NOTICEABLE_S:
        return told
    larger = plan.work.core_seconds * slower
    remedy = f"use --speed {int(speed / slower)}" if speed / slower >= 1 else ""
    larger_job = f"set local: {{core_seconds_per_clock: {larger:.3g}}} to simulate a job of a size it can"
    return [
        *told,
        f"{plan.terms.job}: this computer is about {slower:,.3g} times too slow for --speed {speed:g}:",
        "  the run takes that much longer than planned, and costs more;",
        f"  {remedy or larger_job}",
    ]


def _explain_speed(plan: JobPlan, speed: float) -> str:
    """Explains a speed that is not the default, if the user named none."""
    began = plan.work.source is WorkSource.RECORDED
    why = "the speed at which its run began" if began else "the fastest that this computer keeps up with"
    return f"{plan.terms.job}: --speed {speed:g}, {why}"


def _describe_data(size: InputSize | None) -> list[str]:
    if size is None:
        return []
    counts, files = size.counts, f" in {size.counts.files} files" if size.counts.files > 1 else ""
    kinds = ", ".join(f"{number:,} {name}s" for name, number in counts.distinct.items())
    part = "" if counts.rows_read == counts.rows else f" in the first {counts.rows_read:,}"
    told = f" ({kinds}{part})" if kinds else ""
    model = event_text.format_size(size.model_values * BYTES_PER_VALUE)
    most = "" if size.model_exact else "at most "
    size_told = f"{event_text.format_size(counts.size_bytes)}{files}; the model has {most}{model}"
    return [f"data             {_describe_rows(counts)}{told}, {size_told}"]


def _describe_rows(counts: Counts) -> str:
    """Formats the number of rows, to three digits where it is estimated."""
    if counts.exact:
        return f"{counts.rows:,} rows"
    return f"about {round(counts.rows, 3 - len(str(counts.rows))):,} rows"


def _describe_work(plan: JobPlan) -> list[str]:
    """Describes the work of a clock; nothing if it is only in the job file."""
    work, unit = plan.work, event_text.progress_unit(plan.terms)
    figure = f"{work.core_seconds:.3g} core-seconds"
    match work.source:
        case WorkSource.SAID if work.measured is not None:
            took = f"{work.measured.core_seconds:.3g} core-seconds of this computer ({_describe_range(plan)})"
            told = [f"a {unit} takes {took};", f"the job file has {work.core_seconds:g}"]
        case WorkSource.MEASURED:
            keep = f"local: {{core_seconds_per_clock: {work.core_seconds:.3g}}}"
            took = f"a {unit} takes {figure} ({_describe_range(plan)}), measured here;"
            told = [took, f"to keep this figure, set {keep}"]
        case WorkSource.ESTIMATED:
            within = f"correct within a factor of {ESTIMATES_WITHIN:g}"
            told = [f"a {unit} is estimated at {figure}, {within};", _TO_MEASURE]
        case WorkSource.ASSUMED:
            key = "work" if plan.size is None else "local.core_seconds_per_clock"
            assumed = (
                f"a {unit} is assumed to take {work.core_seconds:g} core-seconds, since {key} is not set"
            )
            told = [assumed, *([] if plan.size is None else [_TO_MEASURE])]
        case _:
            told = []
    return [f"{'' if number else 'work':17}{line}" for number, line in enumerate(told)]


def _describe_range(plan: JobPlan) -> str:
    measured = plan.work.measured
    return "" if measured is None else f"{measured.low:.3g} to {measured.high:.3g}"


def _describe_gains(plan: JobPlan) -> list[str]:
    """Names machine types with more cores than the program is assumed to use."""
    less = {t.market.instance_type: t for t in plan.terms.spot if t.nu < t.cores}
    if not less or plan.terms.work.measure:
        return []
    named = ", ".join(f"{t.nu:.3g} of {t.cores} on {kind}" for kind, t in sorted(less.items()))
    return [
        f"cores counted    {named}; if the program gains from more, set scaling: {{cores, phi or measure}}"
    ]


def _input_fields(size: InputSize) -> dict[str, Any]:
    counts = size.counts
    return {
        "files": counts.files,
        "bytes": counts.size_bytes,
        "columns": list(counts.columns),
        "rows": counts.rows,
        "rows_exact": counts.exact,
        "rows_read": counts.rows_read,
        "distinct_in_rows_read": dict(counts.distinct),
        "model_bytes": size.model_values * BYTES_PER_VALUE,
        "model_exact": size.model_exact,
    }
