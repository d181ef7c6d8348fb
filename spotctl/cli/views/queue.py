"""Shows queues to people and programs: the plan, the jobs, the end, and the list of policies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from bidbrain.cluster.lease import Lease
from bidbrain.cluster.policies.registry import MENU
from bidbrain.performance.throughput_completion import Source, ThroughputEstimate
from pricing_data.model.units import format_instant, format_micros
from spotctl.cli.format import event_text
from spotctl.cli.views import job_size
from spotctl.job.choices import WorldKind
from spotctl.queue.lifecycle.planning import QueuePlan
from spotctl.queue.lifecycle.status import JobStatus, QueueStatus, RunningState
from spotctl.queue.spec import QueueSettings


def _describe_reproduction(found: QueuePlan, settings: QueueSettings) -> str:
    """Returns how to repeat a start that follows from the clock; empty if the user named it."""
    named = settings.options.prices.start is not None
    return "" if named else f"; reproduce with --trace-start {format_instant(found.start)}"


def too_fast(found: QueuePlan, settings: QueueSettings) -> list[str]:
    """Warns of jobs whose bills will be too high, since this computer is too slow for the prices' speed."""
    if settings.options.world is not WorldKind.LOCAL:
        return []
    # A replay computes nothing, so it is never too slow.
    jobs = {name: times for name, times in found.slower.items() if times > job_size.SLOWER}
    if not jobs:
        return []
    speed, most = settings.options.speed, max(jobs.values())
    # Rounded down, for the slowest job; no speed below 1 exists.
    remedy = f"use --speed {int(speed / most)}" if speed >= most else "--speed 1 comes closest"
    return [
        f"{', '.join(jobs)}: this computer is up to {most:,.3g} times too slow for --speed {speed:g},",
        "  with all machines that a job may have: runs take longer than planned, and cost more;",
        f"  {remedy}, or simulate larger jobs with local.core_seconds_per_clock",
    ]


def draw_plan(found: QueuePlan, settings: QueueSettings) -> RenderableType:
    """Draws the promised deadlines and the leases of the first round."""
    spec = settings.spec
    budget = "none" if spec.budget is None else event_text.format_money(spec.budget)
    head = Text(f"{spec.name}  prices: {found.prices}, {spec.policy.name}", style="bold")
    # Most jobs share one uncertainty, so each distinct one is named once.
    sure = {f"{rate.error:.0%}" for of in found.rates.values() for rate in of.values()}
    about = [
        f"starts {format_instant(found.start)} in the prices' time{_describe_reproduction(found, settings)}",
        f"a round every {event_text.format_span(spec.round_s)}; budget {budget}",
        f"quotas: {_describe_quotas(found, settings)}",
        f"speeds by type: from the catalogue ± {' or '.join(sorted(sure))}, until each job measures its own",
    ]
    about += too_fast(found, settings)
    if found.unused:
        about.append(f"No job of this queue may use {', '.join(found.unused)}: the quota has no effect.")
    about += [
        f"All {count} x {pool} are reserved for promised deadlines: no job can lease one until a promised "
        "job ends, and a promised job starts on demand when it must."
        for pool, count in settings.spec.quotas.items()
        if found.leasable[pool] <= 0
    ]
    table = _make_table("job", "first lease", "share of time", "deadline", "reserved $")
    for name in found.admission.judged:
        table.add_row(
            name,
            _first_lease(found, name),
            _format_share(found.first.shares.get(name)),
            _describe_deadline(found, name),
            "-"
            if (amount := found.admission.allowances.get(name)) is None
            else event_text.format_money(amount),
        )
    for name in found.waiting:
        table.add_row(name, "waits", "-", f"after {', '.join(found.members[name].after)}", "-")
    return Group(head, *(Text(line) for line in about), Text(), table)


def _describe_quotas(found: QueuePlan, settings: QueueSettings) -> str:
    """Describes each quota, and how much of it leases can use if promises reserve the rest."""
    told = []
    for pool, count in settings.spec.quotas.items():
        left = max(found.leasable[pool], 0)
        told.append(f"{count} x {pool}" + ("" if left == count else f" ({left} to lease, the rest reserved)"))
    return ", ".join(told) or "no quotas"


def plan_object(found: QueuePlan, settings: QueueSettings) -> dict[str, Any]:
    """Builds the object for programs: ``spotctl.queue-plan/1``."""
    return {
        "schema": "spotctl.queue-plan/1",
        "queue": settings.spec.name,
        "policy": settings.spec.policy.name,
        "starts": format_instant(found.start),
        "prices": found.prices,
        "jobs": [
            {
                "job": name,
                "promised": one.is_promised,
                "why_not_promised": one.why or None,
                "reserved": dict(one.reserved or {}),
                "put_aside": None
                if (kept := found.admission.allowances.get(name)) is None
                else format_micros(kept),
                "shares": dict(found.first.shares.get(name, {})),
                "first_lease": None if (lease := found.first.leases.get(name)) is None else lease.count,
                "markets": [] if lease is None else [str(market) for market in lease.markets],
                "rates": _rate_fields(found.rates[name]),
                "slower_here": found.slower.get(name),
            }
            for name, one in found.admission.judged.items()
        ],
        "waiting": list(found.waiting),
        "leasable": dict(found.leasable),
        "unused_quotas": list(found.unused),
        "never": dict(found.admission.never),
    }


def _first_lease(found: QueuePlan, name: str) -> str:
    lease = found.first.leases.get(name)
    return "nothing" if lease is None else _format_lease(lease)


def _format_share(shares: Mapping[str, float] | None) -> str:
    return f"{sum(shares.values()):.0%}" if shares else "-"


def _describe_deadline(found: QueuePlan, name: str) -> str:
    one = found.admission.judged[name]
    if one.terms.objective.deadline_s is None:
        return "none"
    limit = event_text.format_span(one.terms.objective.deadline_s)
    if one.is_promised:
        kept = ", ".join(f"{count} x {pool}" for pool, count in (one.reserved or {}).items())
        return f"{limit} is promised: {kept} on demand reserved"
    return f"{limit} CANNOT BE PROMISED: {one.why}"


# ---- while and after it runs ---------------------------------------------------------------------


def list_table(found: QueueStatus) -> RenderableType:
    """Draws a row for each job, then failed jobs, the queue's state, and measured speeds."""
    table = _make_table("job", "state", "ran", "due", "machines", "done", "cost", "deadline", "finish")
    for row in found.rows:
        served = row.served
        table.add_row(
            row.job,
            f"waits for {', '.join(row.after)}" if row.after else row.state,
            f"{served.got / served.whole:.0%}" if served.whole else "-",
            f"{served.due / served.whole:.0%}" if served.whole else "-",
            "-"
            if row.lease is None
            else f"{_format_lease(row.lease)} until {format_instant(row.lease.until)}",
            "-" if row.done is None else f"{row.done:.0%}",
            "?" if row.cost is None else event_text.format_money(row.cost),
            _in_time(row),
            "-" if row.finish is None else format_instant(row.finish),
        )
    wrong = [f"{row.job}: {row.why}" for row in found.rows if row.exit_code]
    shown = [
        f"{row.job} on {kind}: {rate.steps_per_s:.3g} core-seconds per second, ± {rate.error:.0%}"
        for row in found.rows
        for kind, rate in row.rates.items()
        if rate.source is Source.MEASURED
    ]
    of = "" if found.budget is None else f" of {event_text.format_money(found.budget)}"
    cost = f"{event_text.format_money(found.cost)}{of}"
    foot = Text(f"{found.queue}, {found.policy}: {_STATUS[found.status]}; {cost}", style="bold")
    jobs = table if found.rows else Text("no jobs")
    return Group(jobs, *map(Text, wrong), foot, *(Text(line, style="dim") for line in shown))


_STATUS: Final = {
    RunningState.NOT_BEGUN: "not started",
    RunningState.RUNNING: "running",
    RunningState.STOPPED: "stopped; `spotctl queue run` resumes it",
    RunningState.ENDED: "ended",
}


def _in_time(row: JobStatus) -> str:
    """Describes whether the deadline was promised, and whether it was kept."""
    deadline = row.deadline
    if deadline.kept is not None:
        return "kept" if deadline.kept else "missed"
    if deadline.at is None or row.exit_code is not None:
        return "-"
    word = "promised" if deadline.promised else "not promised"
    return f"{word}, {format_instant(deadline.at)}"


def list_document(found: QueueStatus) -> dict[str, Any]:
    """Builds the object for programs: ``spotctl.queue-list/1``."""
    return {
        "schema": "spotctl.queue-list/1",
        "queue": found.queue,
        "run": None if found.run is None else found.run.id,
        "running": found.status is RunningState.RUNNING,
        "status": found.status.value,
        "policy": found.policy,
        "rounds": found.rounds,
        "budget": None if found.budget is None else format_micros(found.budget),
        "cost": format_micros(found.cost),
        "jobs": [_job_fields(row) for row in found.rows],
    }


def _job_fields(row: JobStatus) -> dict[str, Any]:
    whole, deadline = row.served.whole, row.deadline
    return {
        "job": row.job,
        "run": row.run,
        "state": row.state,
        "after": list(row.after),
        "share": row.share,
        "share_received": round(row.served.got / whole, 6) if whole else None,
        "share_due": round(row.served.due / whole, 6) if whole else None,
        "machines": None if row.lease is None else _format_lease(row.lease),
        "lease": None if row.lease is None else _lease_object(row.lease),
        "done": row.done,
        "cost": None if row.cost is None else format_micros(row.cost),
        "promised": deadline.promised,
        "why_not_promised": deadline.why_not or None,
        "deadline": None if deadline.at is None else format_instant(deadline.at),
        "deadline_kept": deadline.kept,
        "finish": None if row.finish is None else format_instant(row.finish),
        "exit_code": row.exit_code,
        "why": row.why or None,
        "rates": _rate_fields(row.rates),
    }


def _format_lease(lease: Lease) -> str:
    return f"{lease.count} x {' or '.join(sorted({market.instance_type for market in lease.markets}))}"


def _lease_object(lease: Lease) -> dict[str, Any]:
    markets = [str(market) for market in lease.markets]
    return {"count": lease.count, "markets": markets, "until": format_instant(lease.until)}


def _rate_fields(found: Mapping[str, ThroughputEstimate]) -> dict[str, Any]:
    """Returns, by instance type, the speed of one machine, its relative error and its source."""
    return {
        kind: {
            "core_seconds_per_second": round(rate.steps_per_s, 4),
            "relative_error": round(rate.error, 4),
            "source": rate.source.value,
        }
        for kind, rate in found.items()
    }


def draw_end(final: Mapping[str, Any]) -> RenderableType:
    """Draws the table at the end of a queue."""
    table = _make_table("job", "ended", "took", "cost", "on demand", "evictions", "deadline")
    for job in final["jobs"]:
        if job["run"] is None:
            table.add_row(job["job"], job["why"], "-", "-", "-", "-", "-")
            continue
        baseline = None if job["savings_fraction"] is None else job["cost"]["on_demand_baseline"]
        table.add_row(
            job["job"],
            _describe_ending(job),
            event_text.format_span(job["sim_seconds"]),
            f"${job['cost']['total']}",
            "-" if baseline is None else f"${baseline}",
            str(job["evictions"]),
            _ended_in_time(job),
        )
    cost = final["cost"]
    saved = final["savings_fraction"]
    beside = f"; the cheaper way on demand ${cost['on_demand_baseline']}"
    rest_of = f", leaving out ${final['not_compared']} of other jobs" if float(final["not_compared"]) else ""
    against = "" if saved is None else f"{beside}: {event_text.format_savings(saved)}{rest_of}"
    total = f"${cost['total']} = ${cost['spot']} spot + ${cost['on_demand']} on-demand{against}"
    held = final["held_seconds"]
    waited = f", {held:.1f} s waiting for machines to be ready" if held else ""
    took = (
        f"{event_text.format_span(final['sim_seconds'])} of the prices' time, {final['rounds']} "
        f"rounds{waited}"
    )
    left = final["instances_left"]
    rest = f"; {left} MACHINES LEFT, release them with `spotctl gc`" if left else ""
    return Group(table, Text(f"{total}  ({took}{rest})", style="bold"), Text(event_text.NOMINAL, style="dim"))


def _describe_ending(job: Mapping[str, Any]) -> str:
    told = event_text.describe_end(job["state"], job["why"])
    return (
        told if job["died_of"] is None else f"{told}; {event_text.describe_death(job['died_of'], job['job'])}"
    )


def _ended_in_time(job: Mapping[str, Any]) -> str:
    if not job["promised"] and not job["why_not_promised"]:
        return "-"
    word = "promised" if job["promised"] else "not promised"
    if job["state"] != "done":
        return word
    return f"{word}, {'missed' if job['exit_code'] else 'kept'}"


# ---- policies ------------------------------------------------------------------------------------


def menu_table() -> Table:
    table = _make_table("policy", "objective", "parameters")
    for offered in MENU.values():
        told = "; ".join(f"{name}: {meaning}" for name, meaning in offered.takes.items())
        table.add_row(offered.name, offered.does, told or "-")
    return table


def menu_document() -> dict[str, Any]:
    """Builds the object for programs: ``spotctl.policies/1``."""
    return {
        "schema": "spotctl.policies/1",
        "policies": [{"name": o.name, "does": o.does, "parameters": dict(o.takes)} for o in MENU.values()],
    }


def _make_table(*titles: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for number, title in enumerate(titles):
        table.add_column(title, no_wrap=number == 0)
    return table
