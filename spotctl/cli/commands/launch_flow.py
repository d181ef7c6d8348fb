"""Leads a user through a launch: plan, confirmation, run, summary."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import TYPE_CHECKING

import typer

from pricing_data.model.units import to_micros
from spotctl.cli.format import event_text, json_lines, output
from spotctl.cli.views import expectation, job_size, setbacks
from spotctl.cli.views import plan as planview
from spotctl.errors import DeadlineInfeasible, NothingToDo, UsageError
from spotctl.job.choices import WorldKind
from spotctl.job.settings import LaunchOptions
from spotctl.job.spec import JobSpec
from spotctl.session import launch_plan

if TYPE_CHECKING:  # a plan is shown without what runs a job, which takes as long to load as all the rest
    from spotctl.cli.watch.observers import RunJsonLines, RunLogLines, Screen
    from spotctl.records.background import Front
    from spotctl.session import launch as session
    from spotctl.session.stop_signals import StopSignals


def show_plan(spec: JobSpec, options: LaunchOptions, as_json: bool, *, measure: bool = False) -> None:
    """Prints the plan; writes nothing. Raises DeadlineInfeasible and UsageError where a launch would.

    ``measure`` times a clock on part of the input; only elastic training has clocks.
    """
    if measure and not spec.engine.has_trial:
        raise UsageError("--measure: a command has no clocks to measure; set work in its job file")
    plan = launch_plan.plan_job(spec, options, measure=measure)
    data = None if plan.size is None else plan.size.description
    speed = launch_plan.with_sustainable_speed(spec, options, plan).speed
    if as_json:
        output.write_data(
            json_lines.to_document({**planview.plan_document(plan), "data": data, "speed": speed})
        )
    else:
        output.show_picture(planview.draw_plan(plan, data, speed))
    _refuse_infeasible(plan)


def launch_job(
    spec: JobSpec,
    options: LaunchOptions,
    as_json: bool,
    *,
    ask: bool,
    front: Front | None = None,
    detach: bool = False,
) -> int:
    """Runs the job to its end; returns the exit code.

    ``front`` is the process at the terminal; with ``detach`` it ends as soon as the job has machines.
    """
    from spotctl.session.stop_signals import StopSignals

    # Cron has no terminal: refuse at once, since nobody would ever answer.
    if ask and not output.can_ask():
        raise UsageError("there is no terminal to confirm at; add --yes")
    with StopSignals() as signals:
        return _launch_watched(spec, options, as_json, signals, ask=ask, front=front, detach=detach)


def _launch_watched(
    spec: JobSpec,
    options: LaunchOptions,
    as_json: bool,
    signals: StopSignals,
    *,
    ask: bool,
    front: Front | None,
    detach: bool,
) -> int:
    from spotctl.records.run_history import keep_summary
    from spotctl.session import launch as session

    goes_on = launch_plan.continues_run(spec, options)
    # A resumed run was checked when it began; its data may be gone from here since.
    plan = launch_plan.plan_job(spec, options, check=not goes_on)
    _refuse_infeasible(plan)
    options = launch_plan.with_sustainable_speed(spec, options, plan)
    if ask:
        _ask_to_start(plan, None if plan.size is None else plan.size.description, options.speed)
    else:
        told = [] if goes_on else planview.start_told(plan)
        output.write_note(*planview.set_aside(plan), *told, *setbacks.setback_warnings(plan))
    if options.world is WorldKind.LOCAL:
        output.write_note(*job_size.told_of_speed(plan, options))
    finished, interrupted = None, False
    try:
        with _make_observer(options, as_json, front, detach=detach) as watcher:
            finished = session.launch(spec, options, watcher, signals, plan)
            # A signal that waited for the run's end is raised here, while the view can still be closed.
            signals.deliver_signals()
    except KeyboardInterrupt:
        if finished is None:
            raise
        interrupted = True
    with suppress(KeyboardInterrupt):  # the run is over, so Ctrl-C only means that nobody reads on
        _tell_end(finished, as_json, interrupted)
        # After the user has read the end: a summary only saves later verbs the fold of the ledger.
        keep_summary(finished.run, finished.state)
    return finished.exit_code


def _tell_end(finished: session.FinishedRun, as_json: bool, interrupted: bool) -> None:
    """Shows the end and the cost of a run, then its model's quality if scoring ends in time."""
    from spotctl.cli.views import end

    try:
        if as_json:
            output.write_event(json_lines.run_ended_line(finished.final))
        else:
            output.show_picture(end.draw_end(finished.final))
            if finished.has_scoring and not interrupted:
                output.write_note(
                    f"scoring the model, for at most {finished.scoring_limit_s:.0f} s; Ctrl-C skips it"
                )
    except KeyboardInterrupt:
        interrupted = True
    # After the bill is shown, as scoring may take a minute and changes no amount.
    final = finished.score_model(interrupted)
    if as_json:
        output.write_event(json_lines.object_line(final))
    else:
        output.show_picture(end.draw_quality(final))


def _refuse_infeasible(plan: launch_plan.JobPlan) -> None:
    """Raises DeadlineInfeasible if the deadline cannot be promised, or the expectation breaks a limit."""
    terms, ahead = plan.terms, plan.ahead
    if not math.isfinite(ahead.expected_s):
        raise DeadlineInfeasible(
            f"{terms.job} would take over a hundred years on the machines it may use; check the amount of "
            "work (stop, local.core_seconds_per_clock or work)"
        )
    # A promise holds whatever happens to spot machines, so the expectation need not meet the deadline.
    if plan.promise is not None:
        if not plan.promise.is_feasible:
            raise DeadlineInfeasible(
                f"{terms.job}: nothing was started. {expectation.explain_broken_promise(plan, plan.promise)}"
            )
        return
    if terms.objective.deadline_s is not None and ahead.expected_s > terms.objective.deadline_s:
        lasting, limit = (
            event_text.format_span(ahead.expected_s),
            event_text.format_span(terms.objective.deadline_s),
        )
        part = "" if terms.work.stop.is_bounded else f" for one {event_text.progress_unit(terms)}"
        raise DeadlineInfeasible(
            f"{terms.job} is expected to take {lasting}{part}, longer than its "
            f"deadline of {limit}; nothing was started. Allow more machines or more time"
        )
    # Compared as it will be billed, in whole micro-dollars.
    cost = to_micros(ahead.expected_cost)
    if terms.objective.budget is not None and cost > terms.objective.budget:
        raise DeadlineInfeasible(
            f"{terms.job} is expected to cost {event_text.format_money(cost)}, more than its budget of "
            f"{event_text.format_money(terms.objective.budget)}; nothing was started. Raise the budget or "
            "reduce the work (spotctl plan shows the alternatives)"
        )


def _ask_to_start(plan: launch_plan.JobPlan, data: str | None, speed: float) -> None:
    """Shows the plan and asks. Raises NothingToDo unless the user confirms."""
    output.stderr_console().print(planview.draw_plan(plan, data, speed))
    if not typer.confirm("Start it?", err=True):
        raise NothingToDo("not started")


def _make_observer(
    options: LaunchOptions, as_json: bool, front: Front | None, *, detach: bool
) -> RunJsonLines | RunLogLines | Screen:
    from spotctl.cli.watch.observers import RunJsonLines, RunLogLines, Screen

    if as_json:
        return RunJsonLines(front, detaches=detach)
    if detach or not output.for_people():
        return RunLogLines(front, detaches=detach)
    pace = f"{options.speed:g}x real time" if options.world is WorldKind.LOCAL else "replayed"
    return Screen(pace, front)
