"""A launch as a person or a program goes through it: plan, question, run, summary."""

from __future__ import annotations

import typer

from spotctl import session
from spotctl.cli import endview, jsonlines, planview, screen
from spotctl.cli.observers import JsonLines, LogLines, Screen
from spotctl.config import JobSpec
from spotctl.errors import Interrupted, NothingToDo, UsageError
from spotctl.interrupts import Detached
from spotctl.settings import LaunchOptions, WorldKind


def show_plan(spec: JobSpec, options: LaunchOptions, as_json: bool) -> None:
    """Print the plan. Nothing is written."""
    plan = session.plan_job(spec, options)
    if as_json:
        screen.data(jsonlines.document(planview.document(plan)))
    else:
        screen.tables().print(planview.picture(plan))


def launch(spec: JobSpec, options: LaunchOptions, as_json: bool, *, ask: bool) -> int:
    """Run the job to its end; the exit code."""
    if ask:
        _ask(session.plan_job(spec, options))
    try:
        finished = _run(spec, options, as_json)
    except Detached as left:
        raise Interrupted(f"{options.name or spec.name} goes on; `spotctl status` shows it") from left
    if as_json:
        screen.data(jsonlines.line(finished.final))
    else:
        screen.tables().print(endview.picture(finished.final))
    return finished.exit_code


def _ask(plan: session.JobPlan) -> None:
    """Show what it is going to do and what that should cost; go on only if told to."""
    screen.canvas().print(planview.picture(plan))
    if not screen.can_ask():
        raise UsageError("nobody can be asked here whether to start; add --yes")
    if not typer.confirm("Start it?", err=True):
        raise NothingToDo("not started")


def _run(spec: JobSpec, options: LaunchOptions, as_json: bool) -> session.Finished:
    if as_json:
        return session.launch(spec, options, JsonLines())
    if not screen.for_people():
        return session.launch(spec, options, LogLines())
    speed = options.speed if options.world is WorldKind.LOCAL else None
    with Screen(speed) as watcher:
        return session.launch(spec, options, watcher)
