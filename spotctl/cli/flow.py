"""A launch as a person or a program goes through it: plan, question, run, summary."""

from __future__ import annotations

import math

import typer

from pricing_data.units import micros
from spotctl import session
from spotctl.background import Front
from spotctl.cli import endview, jsonlines, planview, screen, words
from spotctl.cli.observers import JsonLines, LogLines, Screen
from spotctl.config import JobSpec
from spotctl.errors import DeadlineInfeasible, NothingToDo, UsageError
from spotctl.movable import check_movable
from spotctl.settings import LaunchOptions, WorldKind


def show_plan(spec: JobSpec, options: LaunchOptions, as_json: bool) -> None:
    """Print the plan. Nothing is written. Raises DeadlineInfeasible and UsageError where a launch would."""
    plan = session.plan_job(spec, options)
    check_movable(spec, plan.terms.rules.notice_s)
    if as_json:
        screen.data(jsonlines.document(planview.document(plan)))
    else:
        screen.show(planview.picture(plan))
    _refuse_infeasible(plan)


def launch(
    spec: JobSpec,
    options: LaunchOptions,
    as_json: bool,
    *,
    ask: bool,
    front: Front | None = None,
    detach: bool = False,
) -> int:
    """Run the job to its end; the exit code.

    ``front``: the process at the terminal. ``detach``: it ends as soon as the job has machines.
    """
    if ask and not screen.can_ask():
        raise UsageError("nobody can be asked here whether to start; add --yes")
    plan = session.plan_job(spec, options)
    _refuse_infeasible(plan)
    if ask:
        _ask(plan)
    else:
        screen.note(*planview.set_aside(plan))
    with _watcher(options, as_json, front, detach=detach) as watcher:
        finished = session.launch(spec, options, watcher)
    if as_json:
        screen.event(jsonlines.line(finished.final))
    else:
        screen.show(endview.picture(finished.final))
    return finished.exit_code


def _refuse_infeasible(plan: session.JobPlan) -> None:
    """A deadline is a promise; without one, what is expected to go wrong is not begun."""
    terms, ahead = plan.terms, plan.ahead
    if not math.isfinite(ahead.expected_s):
        raise DeadlineInfeasible(f"{terms.job} would never be done with the machines it may use")
    if plan.promise is not None:
        if not plan.promise.holds:
            raise DeadlineInfeasible(
                f"{terms.job}: nothing was started. {planview.unkept(plan, plan.promise)}"
            )
        return
    if terms.deadline_s is not None and ahead.expected_s > terms.deadline_s:
        lasting, limit = words.span(ahead.expected_s), words.span(terms.deadline_s)
        part = "" if terms.stop.foreseen else f" for one {words.unit(terms)}"
        raise DeadlineInfeasible(
            f"{terms.job} is expected to take {lasting}{part}, longer than its "
            f"deadline of {limit}; nothing was started. Allow more machines or more time"
        )
    cost = micros(ahead.expected_cost)
    if terms.budget is not None and cost > terms.budget:
        raise DeadlineInfeasible(
            f"{terms.job} is expected to cost {words.money(cost)}, more than its budget of "
            f"{words.money(terms.budget)}; nothing was started. Allow that much, or less work "
            "(spotctl plan shows what was weighed)"
        )


def _ask(plan: session.JobPlan) -> None:
    """Show what it is going to do and what that should cost; go on only if told to."""
    screen.canvas().print(planview.picture(plan))
    if not typer.confirm("Start it?", err=True):
        raise NothingToDo("not started")


def _watcher(
    options: LaunchOptions, as_json: bool, front: Front | None, *, detach: bool
) -> JsonLines | LogLines | Screen:
    if as_json:
        return JsonLines(front, detaches=detach)
    if detach or not screen.for_people():
        return LogLines(front, detaches=detach)
    pace = f"{options.speed:g}x real time" if options.world is WorldKind.LOCAL else "replayed"
    return Screen(pace, front)
