"""Shows one run like ``status``, with what has to be folded for that."""

from __future__ import annotations

from agileml.node.agent.watchdog import RecordedStall
from pricing_data.model.units import format_instant
from spotctl.cli.format import event_text
from spotctl.cli.format.run_logs import RunStory
from spotctl.cli.watch.live_view import LiveView
from spotctl.control.state import State
from spotctl.records import background
from spotctl.records.run import Run
from spotctl.records.run_history import died_of, lease_ends, waited_s, waits_of


def draw_run(run: Run) -> LiveView:
    """Returns the live view of one run, as of its last entry."""
    story = RunStory(run)
    happened = tuple(story.new_sentences())
    if (cause := died_of(run, story.state)) is not None:
        happened = (*happened, (story.state.now, event_text.describe_death(cause, run.name)))
    waits, terminal = describe_waits(run, story.state), _without_terminal(run, story.state)
    return LiveView(
        story.state, story.state.now, "", happened, waits, terminal, _without_driver(run, story.state)
    )


def _without_driver(run: Run, state: State) -> str:
    """Says what becomes of a run without a driver; empty where it has one, or nothing runs."""
    ends = lease_ends(run, state)
    if ends is None:
        return ""
    goes_on = f"launch it again to go on, or end it with: spotctl down {run.name}"
    return f"nobody drives it; what is left of its machines ends itself by {format_instant(ends)}; {goes_on}"


def _without_terminal(run: Run, state: State) -> str:
    """Says why it has no terminal, and where its output goes; empty where it has one."""
    why = background.detachment_reason(run) if state.ending.closed is None and run.is_live() else None
    return f"none, as {why}; its output goes to {background.log_of(run)}" if why else ""


def describe_waits(run: Run, state: State) -> tuple[str, ...]:
    """Says which process takes longer than ever over what."""
    return tuple(map(_describe_wait, waits_of(run, state)))


def _describe_wait(wait: RecordedStall) -> str:
    so_long = event_text.format_span(int(waited_s(wait)))
    return f"the {wait.process} of {wait.machine}, for {so_long} of real time: {wait.what}"
