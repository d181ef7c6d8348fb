"""The plan: what would be bought now, what else was weighed and why not, and what it should come to."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from bidbrain.deadline.feasibility import Promise, least_asked
from bidbrain.eviction.base import Beta
from bidbrain.model import Decision, Weighed
from pricing_data.quality import Finding
from pricing_data.traces import Recording
from pricing_data.units import (
    HOUR_S,
    Instant,
    UsdPerHour,
    format_instant,
    format_micros,
    later,
    micros,
)
from spotctl.cli import setbackview, words, workview
from spotctl.cli.jsonlines import public
from spotctl.control.deciding import ReliableAt
from spotctl.control.luggage import dearest_move
from spotctl.control.state import State
from spotctl.jobplan import JobPlan
from spotctl.report.final import baselines_document
from spotctl.report.summary import MEANINGS

_Judged: TypeAlias = tuple[Weighed, Beta | None]

_MARKETS_NAMED: Final = 5
_MARKETS_SHOWN: Final = 20
"""More alternatives than these help nobody to decide."""


def picture(plan: JobPlan, data: str | None = None) -> RenderableType:
    """For people: what would be bought, the alternatives to the first purchase, what to expect.

    ``data``: which columns of the input are read as what.
    """
    terms, first = plan.terms, plan.ahead.decisions[0]
    parts: list[RenderableType] = [
        Text.assemble(
            (terms.job, "bold"), f"  prices: {terms.prices}, {terms.rules.name} rules, {terms.strategy}"
        ),
        Text(f"starts {format_instant(terms.start)}, the prices' own time{_again(plan)}", style="dim"),
        *([] if data is None else [Text(f"reads {data}", style="dim")]),
        *(Text(line, style="yellow") for line in (*set_aside(plan), *_unknowns(plan))),
        *(Text(line, style="yellow") for line in setbackview.warnings(plan)),
        Text(""),
    ]
    parts.append(_steps(plan))
    if first.weighed:
        best = _best(first)
        judged = _judged(plan.state, best[:_MARKETS_SHOWN])
        weighed = f"alternatives considered for the first step ({first.considered})"
        parts += [
            Text(""),
            Text(weighed, "bold"),
            _candidates(plan.state, judged),
            *_further(best),
            *_evidence(plan.state, judged),
        ]
    parts += [Text(""), *_expected(plan)]
    return Group(*parts)


def _steps(plan: JobPlan) -> Table:
    """What would be done, one thing after the other; long lines go on below their beginning."""
    steps = Table.grid(padding=(0, 3))
    steps.add_column(no_wrap=True)
    steps.add_column(overflow="fold")
    for number, said in enumerate((*_reliable(plan), *(one.why for one in plan.ahead.decisions))):
        steps.add_row("then" if number else "first", Text(said))
    return steps


def _reliable(plan: JobPlan) -> list[str]:
    """What is had before anything is decided; nothing where checkpoints take the place of it."""
    terms, at = plan.terms, plan.reliable
    if not terms.reliable_count:
        return []
    if at is None:
        return ["wait for a market that has a machine to keep the model: on demand it would cost more"]
    machines = words.machines(terms.reliable_count, at.market)
    if at.bid is None:
        return [f"{machines}, on-demand at {_rate(at.price)}"]
    return [
        f"{machines}, on spot at {_rate(at.price)} (on demand ${words.price(terms.reliable.on_demand)}), to "
        f"keep the model. {_reliable_risk(at)}"
    ]


def _reliable_risk(at: ReliableAt) -> str:
    """What is risked by keeping the model on a machine that may be taken."""
    if at.losses_per_hour < 0.001:
        often = "Hardly ever taken; if it is"
    else:
        often = f"Taken about once in {1 / at.losses_per_hour:.0f} hours; then"
    return (
        f"{often}, all machines end and the job begins again from its newest checkpoint, which costs about "
        f"${at.loss:.2f} each time."
    )


def document(plan: JobPlan) -> dict[str, Any]:
    """For programs: ``spotctl.plan/1``."""
    terms, ahead = plan.terms, plan.ahead
    return {
        "schema": "spotctl.plan/1",
        "job": terms.job,
        "prices": terms.prices,
        "rules": terms.rules.name,
        "start": format_instant(terms.start),
        "reliable": {"count": terms.reliable_count, **public(terms.reliable), **_reliable_at(plan)},
        "work": ahead.work,
        "core_seconds_per_clock": terms.core_seconds_per_clock,
        **workview.fields(plan),
        "expected_cost": words.estimate(ahead.expected_cost),
        "expected_seconds": words.finite(ahead.expected_s),
        "expected_finish": format_instant(_finish(plan)) if math.isfinite(ahead.expected_s) else None,
        "expected_evictions": words.finite(ahead.expected_evictions),
        "on_demand_cost": None if plan.baselines is None else format_micros(plan.baselines.rental.cost),
        "baselines": baselines_document(plan.baselines, None),
        "reproduce": _reproduce(plan),
        "deadline_seconds": terms.deadline_s,
        "promise": None if plan.promise is None else _promise(plan.promise),
        "move": _move(plan),
        "setbacks": setbackview.fields(plan.setbacks),
        "budget": None if terms.budget is None else format_micros(terms.budget),
        "price_rows": {"read": plan.recording.rows_read, "quarantined": plan.recording.rows_quarantined},
        "markets_left_out": _left_out(plan),
        "beta_covers": _beta_covers(plan),
        "betas": _betas(plan),
        "price_findings": public(plan.recording.findings, tuple[Finding, ...]),
        "decisions": [public(decision) for decision in ahead.decisions],
    }


def _reliable_at(plan: JobPlan) -> dict[str, Any]:
    """Where reliable machines would run; ``bid`` is null on demand, ``runs_at`` where none can be had."""
    at = plan.reliable
    if at is None:
        return {"runs_at": None, "bid": None, "losses_per_hour": 0.0, "loss": None}
    return {
        "runs_at": str(at.market),
        "bid": at.bid,
        "losses_per_hour": at.losses_per_hour,
        "loss": words.estimate(at.loss) if at.bid is not None else None,
    }


def _promise(promise: Promise) -> dict[str, Any]:
    return {
        "holds": promise.holds,
        "least_deadline_seconds": promise.least_deadline_s,
        "least_budget": format_micros(least_asked(promise.least_budget, step=1)),
    }


def _move(plan: JobPlan) -> dict[str, Any] | None:
    """What carrying the checkpoint to another region takes, at most; None for a job that stays within one."""
    luggage = plan.terms.luggage
    if luggage is None:
        return None
    return {
        "checkpoint_bytes": luggage.size_bytes,
        "seconds": luggage.size_bytes / luggage.bytes_per_s,
        "egress": format_micros(dearest_move(plan.terms)),
    }


def set_aside(plan: JobPlan) -> list[str]:
    """What of the prices is not used: nothing of a flawless file, a line for each flaw of another."""
    return [*_rows_set_aside(plan.recording), *_markets_set_aside(plan)]


def _rows_set_aside(recording: Recording) -> list[str]:
    if not recording.rows_quarantined:
        return []
    lines = [f"{recording.rows_quarantined} of {recording.rows_read} price rows are not used:"]
    for finding in recording.findings:
        if finding.kind.quarantines:
            example = f", first line {finding.examples[0].line}" if finding.examples else ""
            lines.append(f"  {finding.count} x {finding.kind}{example}")
    return lines


def _markets_set_aside(plan: JobPlan) -> list[str]:
    left = _left_out(plan)
    if not left:
        return []
    named = ", ".join(left[:_MARKETS_NAMED]) + (", ..." if len(left) > _MARKETS_NAMED else "")
    whose = "its type or its price" if len(left) == 1 else "their types or their prices"
    return [f"not used, as the catalogue does not know {whose} on demand: {named}"]


def _left_out(plan: JobPlan) -> list[str]:
    """Markets that the job allows and the prices have, and no decision may weigh."""
    return [
        str(market) for market in sorted(plan.recording.series.keys() - {t.market for t in plan.terms.spot})
    ]


def _evidence(state: State, judged: Sequence[_Judged]) -> list[Text]:
    """What the betas rest on, a line for each kind of evidence, with the age of the newest observations."""
    ages: dict[str, list[float]] = {}
    for _, beta in judged:
        if beta is not None:
            kind = beta.evidence.source.partition(",")[0] or "nothing that is known"
            ages.setdefault(kind, []).append(beta.age_s(state.now) or 0.0)
    return [
        Text(
            f"risk in an hour: {kind} of {len(found)} markets, newest up to {words.span(max(found))} old",
            style="dim",
        )
        for kind, found in ages.items()
    ]


def _betas(plan: JobPlan) -> list[dict[str, Any]]:
    """The best request for each market, with what its beta rests on."""
    rows = []
    for weighed, beta in _judged(plan.state, _best(plan.ahead.decisions[0])):
        if beta is not None:
            newest = beta.evidence.newest
            rows.append(
                {
                    "market": str(weighed.market),
                    "bid_delta": weighed.bid_delta,
                    "beta": beta.value,
                    "low": beta.low,
                    "high": beta.high,
                    "source": beta.evidence.source,
                    "newest": None if newest is None else format_instant(newest),
                }
            )
    return rows


def _beta_covers(plan: JobPlan) -> str:
    if plan.terms.rules.cleared_by_bid:
        return "prices"
    return "capacity" if plan.state.capacity.markets else "prices only, not capacity"


def _unknowns(plan: JobPlan) -> list[str]:
    """What the estimates leave out, where that matters."""
    if plan.terms.rules.cleared_by_bid or plan.state.capacity.markets:
        return []
    return [
        f"risk counts price crossings only: under {plan.terms.rules.name} rules machines are taken for",
        "capacity, of which nothing is recorded here (--availability FILE says when it was there)",
    ]


# ---- what would be done -------------------------------------------------------------------------


def _candidates(state: State, judged: Sequence[_Judged]) -> Table:
    """The best alternative of each market, cheapest work first. It fits into eighty columns."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("market", no_wrap=True)
    for title in ("price", "bid", "risk", "95 %", "$/core-h", "vs best"):
        table.add_column(title, justify="right", no_wrap=True)
    least = min(weighed.cost_per_work for weighed, _ in judged)
    for weighed, beta in judged:
        table.add_row(*_row(state, weighed, beta, least), style="bold" if weighed.chosen else "")
    return table


def _further(best: Sequence[Weighed]) -> list[Text]:
    """What is not in the table."""
    more = len(best) - _MARKETS_SHOWN
    return [Text(f"and {more} more, all of them dearer; --json has them", style="dim")] if more > 0 else []


def _judged(state: State, best: Sequence[Weighed]) -> list[_Judged]:
    """Each with what its beta rests on."""
    return [(weighed, _beta(state, weighed)) for weighed in best]


def _best(decision: Decision) -> list[Weighed]:
    """The best alternative of each market, cheapest work first."""
    best: dict[object, Weighed] = {}
    for weighed in sorted(decision.weighed, key=lambda w: (not w.chosen, w.cost_per_work)):
        best.setdefault(weighed.market, weighed)
    return sorted(best.values(), key=lambda w: w.cost_per_work)


def _row(state: State, weighed: Weighed, beta: Beta | None, least: float) -> tuple[str, ...]:
    price = None if weighed.market is None else state.history.price(weighed.market, state.now)
    bid = None if price is None or weighed.bid_delta is None else price + weighed.bid_delta
    return (
        "nothing more" if weighed.market is None else f"{weighed.count} x {weighed.market}",
        "-" if price is None else words.price(price),
        "-" if bid is None else words.price(bid),
        f"{weighed.beta:.3f}",
        "-" if beta is None else f"{beta.low:.2f}-{beta.high:.2f}",
        f"{weighed.cost_per_work * HOUR_S:.5f}",
        _against(weighed, least),
    )


def _beta(state: State, weighed: Weighed) -> Beta | None:
    """With its interval and what it rests on: of a request, within its first hour."""
    if weighed.market is None or weighed.bid_delta is None:
        return None
    return state.evictions.beta(weighed.market, weighed.bid_delta, 0.0, HOUR_S)


def _against(weighed: Weighed, least: float) -> str:
    if weighed.chosen:
        return "chosen"
    if not math.isfinite(weighed.cost_per_work) or least <= 0:
        return "no work"
    return f"{weighed.cost_per_work / least - 1:.1%}"


# ---- what it should come to ---------------------------------------------------------------------


def _expected(plan: JobPlan) -> list[RenderableType]:
    ahead, terms = plan.ahead, plan.terms
    if not math.isfinite(ahead.expected_s):
        undone = Text("This footprint would not finish the job in a hundred years.", style="bold")
        return [undone, *(Text(line) for line in workview.lines(plan))]
    whole = "" if terms.stop.foreseen else f" of one {words.unit(terms)}; nobody can say how many it takes"
    lasting = words.span(ahead.expected_s)
    lines = [
        f"expected cost    {words.money(micros(ahead.expected_cost))}{_saved(plan)}{whole}",
        *_on_demand(plan),
        f"expected finish  {format_instant(_finish(plan))}, {lasting} after the start{whole}{_alone(plan)}",
    ]
    return [Text(line) for line in lines + workview.lines(plan) + _moves(plan) + _limits(plan)]


def _saved(plan: JobPlan) -> str:
    """Beside the cheaper way on demand."""
    cost, found = micros(plan.ahead.expected_cost), plan.baselines
    if found is None or not found.rental.cost:
        return ""
    than, less = MEANINGS[found.headline], 1 - cost / found.rental.cost
    return f", {less:.0%} less than {than}" if less >= 0 else f", {-less:.0%} MORE than {than}"


def _on_demand(plan: JobPlan) -> list[str]:
    """Both ways to do the same on demand, named."""
    if plan.baselines is None:
        return []
    return [
        f"{'':17}{words.money(way.cost)} is {MEANINGS[name]}: {way.machines} x "
        f"{way.market.instance_type} in {words.span(way.seconds)}"
        for name, way in plan.baselines.named.items()
    ]


def _again(plan: JobPlan) -> str:
    """How a start that follows from the clock is had again; nothing where it was named."""
    return f"; again with {_reproduce(plan)}" if plan.start_follows_clock else ""


def start_told(plan: JobPlan) -> list[str]:
    """The start that follows from the clock, and how to have it again; nothing where it was named."""
    again = _again(plan)
    return [f"{plan.terms.job}: starts {format_instant(plan.terms.start)}, as the clock says{again}"] * bool(
        again
    )


def _reproduce(plan: JobPlan) -> str:
    """The options with which the same start is had again, whatever the clock says."""
    return f"--trace-start {format_instant(plan.terms.start)} --seed {plan.terms.seed}"


def _moves(plan: JobPlan) -> list[str]:
    luggage = plan.terms.luggage
    if luggage is None:
        return []
    if not luggage.size_bytes:
        return ["moves            checkpoint.size is not set: carrying one elsewhere is taken to be free"]
    carried_s = words.span(luggage.size_bytes / luggage.bytes_per_s)
    return [
        f"moves            to another region: {words.size(luggage.size_bytes)} in {carried_s}, "
        f"egress up to {words.money(dearest_move(plan.terms))}"
    ]


def unkept(plan: JobPlan, promise: Promise) -> str:
    """What of a pledge cannot be promised, and the least that can: typed in, it works."""
    told, least = [], math.ceil(promise.least_deadline_s / 60)
    if not promise.in_time:
        told.append(
            f"No deadline below {least}m can be promised: that is what machines on demand alone need. "
            f"(Expected is {words.span(plan.ahead.expected_s)}, but spot machines promise nothing.)"
        )
    if not promise.covered:
        which = "this one" if promise.in_time else f"one of {least}m"
        told.append(
            f"A deadline is promised by machines on demand, and they may cost "
            f"{words.money(least_asked(promise.least_budget))}: no lower budget can be promised beside "
            f"{which}. "
            f"Without a deadline the job is expected to cost {words.money(micros(plan.ahead.expected_cost))}."
        )
    return " ".join(told)


def _limits(plan: JobPlan) -> list[str]:
    """What is expected of one clock says nothing of all of them."""
    terms, ahead = plan.terms, plan.ahead
    lines, unknown = [], f"nobody can say how many {words.unit(terms)}s it takes"
    if terms.deadline_s is not None:
        met = "is met" if terms.stop.foreseen else f"is not promised: {unknown}"
        kept = met if ahead.expected_s <= terms.deadline_s else "IS NOT MET by what is expected"
        lines.append(f"deadline         {words.span(terms.deadline_s)} {_kept(plan.promise) or kept}")
    if terms.budget is not None:
        lasts = "is kept" if terms.stop.foreseen else f"ends the job when it is spent: {unknown}"
        kept = lasts if micros(ahead.expected_cost) <= terms.budget else "IS NOT KEPT by what is expected"
        if plan.promise is not None and not plan.promise.covered:
            kept = "CANNOT BE PROMISED beside the deadline"
        lines.append(f"budget           {words.money(terms.budget)} {kept}")
    return lines


def _kept(promise: Promise | None) -> str:
    """Whether a deadline can be promised, and what that rests on."""
    if promise is None:
        return ""
    if not promise.in_time:
        return "CANNOT BE PROMISED"
    least, cost = words.span(promise.least_deadline_s), words.money(least_asked(promise.least_budget))
    return f"is promised: machines on demand alone need {least} and up to {cost}"


def _alone(plan: JobPlan) -> str:
    """What a finish after a promised deadline means: the expectation knows no safety net."""
    deadline = plan.terms.deadline_s
    if deadline is None or plan.promise is None or not plan.promise.in_time:
        return ""
    late = plan.ahead.expected_s > deadline
    return " by spot machines alone; some on demand will keep the deadline" if late else ""


def _finish(plan: JobPlan) -> Instant:
    return later(plan.terms.start, plan.ahead.expected_s)


def _rate(price: UsdPerHour) -> str:
    return f"${words.price(price)} per hour each"
