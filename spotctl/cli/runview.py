"""Runs as ``status`` and ``wait`` show them: one picture, a line each, or JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from rich.table import Table

from agileml.hosts.doing import Wait, waits
from pricing_data.units import Instant, format_instant, format_micros
from spotctl import background
from spotctl.cli import words
from spotctl.cli.live import LiveView, clocks
from spotctl.cli.logs import Story
from spotctl.control.events import Outcome
from spotctl.control.state import State
from spotctl.errors import SpotctlError
from spotctl.opening import replays
from spotctl.report.final import kept
from spotctl.report.fold import account, evictions
from spotctl.runs import Run
from spotctl.timesource import wall_clock

_UNATTENDED: Final = 1
"""Exit code for a run that never ended, and that no process looks after now."""


def readable(runs: Iterable[Run]) -> tuple[dict[Run, State], list[str]]:
    """What each is doing; and of those whose record cannot be read, what is wrong."""
    states, failures = {}, []
    for run in runs:
        try:
            states[run] = run.state()
        except SpotctlError as error:
            failures.append(f"{run.name}: {error}; `spotctl gc` ends what is left of its machines")
    return states, failures


def none_yet() -> str:
    """What to say where there are no runs; whoever replayed some is told where they are."""
    told = "no runs yet; `spotctl launch JOB.yaml` begins one"
    kept = replays()
    return f"{told}. Replays are kept apart, in SPOTCTL_HOME={kept.root}" if kept.all() else told


def standing(run: Run, state: State) -> str:
    """In a word or two: what became of the run, or what it is doing."""
    if state.closed is not None:
        return state.closed.outcome.value
    if not run.is_live():
        return "unattended"
    return f"{state.phase.value}, detached" if background.noted(run) else state.phase.value


def exit_code(run: Run) -> int:
    """What ``launch`` ended with."""
    closed = run.state().closed
    return _UNATTENDED if closed is None else closed.exit_code


def picture(run: Run) -> LiveView:
    """The live view of one run, as of its last entry."""
    story = Story(run)
    happened = tuple(story.news())
    if (died_of := _died_of(run, story.state)) is not None:
        happened = (*happened, (story.state.now, words.died_of(died_of, run.name)))
    waits, terminal = waiting(run, story.state), _without_terminal(run, story.state)
    return LiveView(story.state, story.state.now, "", happened, waits, terminal)


def _without_terminal(run: Run, state: State) -> str:
    """Why it has no terminal, and where its output goes; empty where it has one."""
    why = background.noted(run) if state.closed is None and run.is_live() else None
    return f"none, as {why}; its output goes to {background.log_of(run)}" if why else ""


def _died_of(run: Run, state: State) -> str | None:
    failed = state.closed is not None and state.closed.outcome is Outcome.FAILED
    return run.died_of() if failed else None


def waiting(run: Run, state: State) -> tuple[str, ...]:
    """Which process takes longer than ever over what, in words."""
    return tuple(map(_told, _waits(run, state)))


def _waits(run: Run, state: State) -> tuple[Wait, ...]:
    """What processes of its machines take longer over than ever, as they say themselves."""
    live = {instance.name for instance in state.live()}
    return tuple(wait for wait in waits(run.machines) if wait.machine in live)


def _told(wait: Wait) -> str:
    so_long = words.span(int(_waited_s(wait)))
    return f"the {wait.process} of {wait.machine}, for {so_long} of real time: {wait.what}"


def _waited_s(wait: Wait) -> float:
    return max(0.0, wall_clock() - wait.since)


def table(runs: Mapping[Run, State]) -> Table:
    """A line for each."""
    shown = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("job", "run", "state"):
        shown.add_column(title, no_wrap=True)
    for title in ("stage", "machines", "progress", "objective", "cost", "saved", "evictions"):
        shown.add_column(title, justify="right", no_wrap=True)
    for run, state in runs.items():
        shown.add_row(*_cells(run, state))
    return shown


def status(runs: Mapping[Run, State]) -> dict[str, Any]:
    """For programs: ``spotctl.status/1``."""
    return {"schema": "spotctl.status/1", "runs": [_fields(run, state) for run, state in runs.items()]}


def _cells(run: Run, state: State) -> tuple[str, ...]:
    money = account(state)
    return (
        run.name,
        run.id,
        standing(run, state),
        str(state.stage),
        str(sum(1 for _ in state.live())),
        clocks(state),
        "-" if state.objective is None else f"{state.objective:.6g}",
        words.money(money.spending.total),
        "-" if money.savings is None else f"{money.savings:.1%}",
        str(state.evicted_allocations),
    )


def _fields(run: Run, state: State) -> dict[str, Any]:
    money = account(state)
    spending, baseline = money.spending, money.baseline
    return {
        "job": run.name,
        "run": run.id,
        "state": standing(run, state),
        "background": background.noted(run) or None,
        "exit_code": None if state.closed is None else state.closed.exit_code,
        "died_of": _died_of(run, state),
        "as_of": format_instant(state.now),
        "stage": state.stage,
        "clock": state.clock,
        "clocks": state.terms.stop.clocks,
        "resumed_from": state.resumed_from,
        "checkpoint": kept(state),
        "objective": state.objective,
        "footprint": [_allocation(state, name) for name in state.allocations if _held(state, name)],
        "cost": {
            "total": format_micros(spending.total),
            "spot": format_micros(spending.spot),
            "on_demand": format_micros(spending.on_demand),
            "egress": format_micros(spending.egress),
            "refunded": format_micros(spending.refunded),
            "on_demand_baseline": None if baseline is None else format_micros(baseline.cost),
        },
        "savings_fraction": None if money.savings is None else round(money.savings, 6),
        "not_comparable": money.not_comparable,
        "evictions": state.evicted_allocations,
        "instances_evicted": sum(eviction.machines for eviction in evictions(state)),
        "failures": state.failures,
        "clocks_redone": state.clocks_redone,
        "restarts": state.restarts,
        "waits": [
            {
                "instance": wait.machine,
                "process": wait.process,
                "what": wait.what,
                "real_seconds": round(_waited_s(wait), 3),
            }
            for wait in _waits(run, state)
        ],
        "last_decision": None if state.last_decision is None else state.last_decision.why,
        "next_decision": _instant(state.decide_from if state.closed is None else None),
        "ledger": str(run.ledger_path),
    }


def _held(state: State, name: str) -> bool:
    return any(instance.live for instance in state.of(name))


def _allocation(state: State, name: str) -> dict[str, Any]:
    allocation = state.allocations[name]
    return {
        "allocation": name,
        "market": str(allocation.market),
        "bid": None if allocation.bid is None else f"{allocation.bid:.6f}",
        "beta": allocation.beta,
        "instances": {instance.name: instance.life.value for instance in state.of(name) if instance.live},
    }


def _instant(at: Instant | None) -> str | None:
    return None if at is None else format_instant(at)
