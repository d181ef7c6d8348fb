"""Draws the live view: what a person who watches a run needs to understand it.

A ``LiveView`` is made of values, so it can also show a run that another process drives (``status``).
``observers.py`` keeps it on the screen.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from pricing_data.model.units import HOUR_S, Instant, format_instant, seconds_after
from spotctl.cli.format import event_text
from spotctl.control.lifecycle import InstanceState
from spotctl.control.run_spec import Expectation
from spotctl.control.state import State
from spotctl.control.state_values import Allocation, Instance, Phase
from spotctl.report.fold import RunAccount, build_account
from spotctl.report.status import describe_progress as describe_progress

HAPPENED_ROWS: Final = 8
_STYLES: Final = {
    InstanceState.PENDING: "yellow",
    InstanceState.RUNNING: "green",
    InstanceState.WARNED: "bold red",
    InstanceState.ENDING: "dim",
}
_PHASES: Final = {
    Phase.STARTING: "waiting for the reliable machines",
    Phase.RESTARTING: "releasing the machines, to begin again from the checkpoint",
    Phase.STOPPING: "saving the model",
    Phase.CLOSING: "releasing the machines",
    Phase.CLOSED: "over",
}


@dataclass(frozen=True, slots=True)
class LiveView:
    """Holds one picture of a run. ``happened``: times and sentences, oldest first; ``waits``: what takes
    long.
    """

    state: State
    now: Instant
    pace: str
    """How nominal time passes, in words; empty where that is unknown."""
    happened: tuple[tuple[Instant, str], ...] = ()
    waits: tuple[str, ...] = ()
    terminal: str = ""
    """Why the run has no terminal; empty where it has one."""
    driver: str = ""
    """What becomes of a run without a driver; empty where it has one."""

    def __rich__(self) -> RenderableType:
        parts: list[RenderableType] = [
            _draw_header(self),
            _draw_footprint(self),
            _draw_title(""),
            _draw_facts(self),
        ]
        if self.happened:
            parts.append(_draw_happened(self.happened))
        return Group(*parts)


def describe_cost(money: RunAccount) -> str:
    """Says what a run cost so far, beside the cost of the same work on demand."""
    spent = event_text.format_money(money.spending.total)
    if money.spending.refunded:
        spent += (
            f" ({event_text.format_money(money.spending.refunded)} came back for hours in which machines "
            "were taken)"
        )
    if money.baselines is None:
        return f"{spent}; no work is done yet that on-demand could be compared for"
    ways = ", ".join(
        f"{event_text.format_money(rental.cost)} {event_text.BESIDE[name]}"
        for name, rental in money.baselines.by_name.items()
    )
    if money.savings is None:
        return f"{spent}; the same work: {ways}"
    return f"{spent}, {event_text.format_savings(money.savings)}; the same work: {ways}"


def describe_plan(start: Instant, plan: Expectation) -> str:
    """Says what the launch plan forecast."""
    by = format_instant(seconds_after(start, plan.seconds))
    return f"{event_text.format_money(plan.cost)} by {by}, {plan.evictions:.1f} evictions"


def _draw_header(view: LiveView) -> RenderableType:
    terms = view.state.terms
    told = ", ".join(filter(None, (terms.origin.prices, view.pace, f"{terms.rules.name} rules")))
    when = Text(f"nominal time {format_instant(view.now)}, run {terms.origin.run}", style="dim")
    return Group(Text.assemble((terms.job, "bold"), f"  prices: {told}"), when)


def _draw_footprint(view: LiveView) -> RenderableType:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    for title in ("", "market"):
        table.add_column(title, no_wrap=True)
    by_the_hour = view.state.terms.rules.quantum_s >= HOUR_S
    for title in ("n", "bid", "price", "hour left" if by_the_hour else "runs for", "risk"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("state")
    for allocation in view.state.allocations.values():
        if _has_machines(view.state, allocation):
            table.add_row(*_allocation_row(view, allocation))
    shown = table if table.row_count else Text("no machines", style="dim")
    return Group(_draw_title("footprint"), shown)


def _has_machines(state: State, allocation: Allocation) -> bool:
    """Tells whether an allocation has machines, or may still get them."""
    waiting = allocation.refused is None and not allocation.instances
    return waiting or any(instance.is_live for instance in state.instances_of(allocation.name))


def _allocation_row(view: LiveView, allocation: Allocation) -> tuple[Text, ...]:
    state = view.state
    live = [instance for instance in state.instances_of(allocation.name) if instance.is_live]
    now = (
        state.terms.market_option(allocation.market).on_demand
        if allocation.bid is None
        else state.history.price(allocation.market, view.now)
    )
    return (
        Text(allocation.name),
        Text(str(allocation.market)),
        Text(str(len(live) or allocation.count)),
        Text("-" if allocation.bid is None else event_text.format_price(allocation.bid)),
        Text("?" if now is None else event_text.format_price(now)),
        Text(_describe_billing(view, allocation, live)),
        Text("-" if allocation.beta is None else f"{allocation.beta:.3f}"),
        _describe_instances(allocation, live),
    )


def _describe_billing(view: LiveView, allocation: Allocation, live: list[Instance]) -> str:
    """Says what is left of the paid hour; how long it runs where seconds are billed."""
    state, began = view.state, [i.running_at for i in live if i.running_at is not None]
    if not began:
        return "-"
    if state.terms.rules.quantum_s >= HOUR_S:
        return event_text.format_span(state.hour_ends(allocation) - view.now)
    return event_text.format_span(view.now - min(began))


def _describe_instances(allocation: Allocation, live: list[Instance]) -> Text:
    if not live:
        return Text("requested", style="yellow")
    lives = Counter(instance.life for instance in live)
    standing = Text(", ").join(Text(f"{n} {life}", style=_STYLES.get(life, "")) for life, n in lives.items())
    ends = [instance.ends_at for instance in live if instance.ends_at is not None]
    if ends:
        standing.append(f", gone {event_text.format_moment(min(ends))}")
    return standing.append(", on-demand") if allocation.bid is None else standing


def _draw_facts(view: LiveView) -> RenderableType:
    state = view.state
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row("stage", Text(_describe_stage(state)))
    grid.add_row("progress", _draw_progress(state))
    if state.recovery.checkpoint is not None:
        clock, folder = state.recovery.checkpoint
        grid.add_row("checkpoint", Text(f"{event_text.progress_unit(state.terms)} {clock} in {folder}"))
    if view.terminal:
        grid.add_row("terminal", Text(view.terminal))
    if view.driver:
        grid.add_row("unattended", Text(view.driver))
    for wait in view.waits:
        grid.add_row("waiting for", Text(wait))
    grid.add_row("objective", Text(describe_objective(state)))
    grid.add_row("cost so far", Text(describe_cost(build_account(state))))
    if state.terms.origin.expected is not None:
        grid.add_row("planned", Text(describe_plan(state.terms.start, state.terms.origin.expected)))
    why = state.deciding.last_decision.why if state.deciding.last_decision else "none yet"
    grid.add_row("last decision", Text(why))
    grid.add_row("next decision", Text(_next_decision(view)))
    return grid


def _describe_stage(state: State) -> str:
    doing = _PHASES.get(state.phase)
    if state.phase is Phase.STARTING and not state.allocations:
        return "getting its input ready"
    if state.terms.engine.relies_on_checkpoints and doing is None:
        return "a program that checkpoints" if any(state.working_instances()) else "waiting for a machine"
    return doing if doing else f"{state.training.stage}: {event_text.STAGES[state.training.stage]}"


def _draw_progress(state: State) -> RenderableType:
    share = done_fraction(state)
    row = Table.grid(padding=(0, 2))
    redone = f", {state.training.clocks_redone} computed twice" if state.training.clocks_redone else ""
    redone += (
        f", {event_text.format_span(state.programs.seconds_redone)} done again"
        if state.programs.seconds_redone
        else ""
    )
    again = (
        f", restarted {event_text.format_times(state.recovery.restarts)}" if state.recovery.restarts else ""
    )
    row.add_row(
        ProgressBar(completed=0 if share is None else 100 * share, pulse=share is None, width=40),
        Text(f"{describe_progress(state)}{redone}{again}"),
    )
    return row


def done_fraction(state: State) -> float | None:
    """Returns the share of the job that is done, in [0, 1]; None where only convergence will tell."""
    stop, started = state.terms.work.stop, state.training.training_started_at
    shares = []
    if stop.clocks is not None:
        shares.append(state.training.clock / stop.clocks)
    if stop.seconds is not None:
        shares.append(0.0 if started is None else (state.now - started) / stop.seconds)
    return min(1.0, max(shares)) if shares else None


def describe_objective(state: State) -> str:
    """Says the last objective that training reported."""
    if state.training.objective is None:
        return "none reported yet"
    return (
        f"{state.training.objective:.6g} after {event_text.progress_unit(state.terms)} "
        f"{state.training.objective_clock}"
    )


def _next_decision(view: LiveView) -> str:
    at = view.state.deciding.decide_from
    if view.state.phase is not Phase.TRAINING or at is None:
        return "none: no machine is being looked for now"
    return f"in {event_text.format_span(at - view.now)}"


def _draw_happened(happened: tuple[tuple[Instant, str], ...]) -> RenderableType:
    lines = Text("\n").join(
        Text.assemble((event_text.format_moment(at), "dim"), " ", sentence)
        for at, sentence in happened[-HAPPENED_ROWS:]
    )
    return Group(_draw_title("what happened"), lines)


def _draw_title(text: str) -> Rule:
    return Rule(text, align="left", style="dim")
