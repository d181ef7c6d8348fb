"""One run as ``status`` shows it, and what has to be folded for that."""

from __future__ import annotations

from collections.abc import Iterable

from agileml.hosts.doing import Wait, waits
from spotctl import background
from spotctl.cli import words
from spotctl.cli.live import LiveView
from spotctl.cli.logs import Story
from spotctl.control.state import State
from spotctl.errors import SpotctlError
from spotctl.history import died_of
from spotctl.runs import Run
from spotctl.timesource import wall_clock


def readable(runs: Iterable[Run]) -> tuple[dict[Run, State], list[str]]:
    """What each is doing; and of those whose record cannot be read, what is wrong."""
    states, failures = {}, []
    for run in runs:
        try:
            states[run] = run.state()
        except SpotctlError as error:
            failures.append(f"{run.name}: {error}; `spotctl gc` ends what is left of its machines")
    return states, failures


def picture(run: Run) -> LiveView:
    """The live view of one run, as of its last entry."""
    story = Story(run)
    happened = tuple(story.news())
    if (cause := died_of(run, story.state)) is not None:
        happened = (*happened, (story.state.now, words.died_of(cause, run.name)))
    waits, terminal = waiting(run, story.state), _without_terminal(run, story.state)
    return LiveView(story.state, story.state.now, "", happened, waits, terminal)


def _without_terminal(run: Run, state: State) -> str:
    """Why it has no terminal, and where its output goes; empty where it has one."""
    why = background.noted(run) if state.closed is None and run.is_live() else None
    return f"none, as {why}; its output goes to {background.log_of(run)}" if why else ""


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
