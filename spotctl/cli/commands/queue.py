"""Defines ``queue``: runs many jobs on one host, under a policy, quotas, a budget and deadlines."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from spotctl.cli.commands import launch, options
from spotctl.cli.format import output
from spotctl.errors import SpotctlError, UsageError
from spotctl.job.choices import WorldKind

if TYPE_CHECKING:
    from spotctl.queue.lifecycle.journal import QueueFolder
    from spotctl.queue.spec import QueueSpec

QueueFile: TypeAlias = Annotated[
    Path, typer.Argument(metavar="QUEUE.yaml", help="Queue file.", show_default=False)
]

group = typer.Typer(
    help="""Run many jobs under a policy, quotas and a budget.

    \b
    Examples:
      spotctl queue run nightly.yaml
      spotctl queue ls nightly.yaml
    """,
    no_args_is_help=True,
    rich_markup_mode=None,
)


def add_to(app: typer.Typer) -> None:
    """Gives ``app`` this group of verbs."""
    app.add_typer(group, name="queue")


@group.command()
def add(
    queue: QueueFile,
    job: options.JobFile,
    deadline: launch.DeadlineOption = None,
    budget: launch.BudgetOption = None,
    name: launch.NameOption = None,
    weight: Annotated[
        float, typer.Option(min=0.001, metavar="N", help="Share relative to the other jobs.")
    ] = 1.0,
    entity: Annotated[
        str, typer.Option(metavar="NAME", help="Entity of the queue file that the job belongs to.")
    ] = "",
    priority: Annotated[
        float, typer.Option(metavar="N", help="Higher values count as earlier arrivals.")
    ] = 0.0,
    best_effort: Annotated[
        bool, typer.Option("--best-effort", help="Accept the job even if its deadline cannot be guaranteed.")
    ] = False,
) -> None:
    """Add a job to a queue.

    A running queue takes the job up at its next round; any other does when it runs. The queue file itself
    does not change.

    \b
    Examples:
      spotctl queue add nightly.yaml movies.yaml --deadline 6h
    """
    from spotctl.job.file import load_job
    from spotctl.queue.file import load_queue
    from spotctl.queue.lifecycle.journal import QueueFolder
    from spotctl.queue.lifecycle.requests import Request
    from spotctl.queue.spec import Member, member_text

    spec = load_queue(queue)
    loaded = load_job(job)
    own, money = (
        options.parse_duration_option("--deadline", deadline),
        options.parse_dollars_option("--budget", budget),
    )
    objective = replace(
        loaded.objective,
        deadline=loaded.objective.deadline if own is None else own,
        budget=loaded.objective.budget if money is None else money,
    )
    loaded = replace(loaded, name=launch.checked_name(name) or loaded.name, objective=objective)
    folder = QueueFolder(spec.name)
    if loaded.name in {*_known_jobs(spec), *_ended_jobs(folder)}:
        raise UsageError(f"{spec.name} already has a job {loaded.name}; choose another name with --name")
    member = Member(loaded, weight, entity, priority, best_effort)
    folder.leave_request(Request(loaded.name, member_text(member)))
    when = "at its next round" if folder.is_live() else "when it runs"
    output.write_note(f"{loaded.name}: added; {spec.name} takes it up {when}")


@group.command()
def rm(
    queue: QueueFile,
    job: Annotated[
        str, typer.Argument(metavar="JOB", help="Name of the job in the queue.", show_default=False)
    ],
) -> None:
    """Remove a job from a queue.

    In a running queue, the job stops gracefully at the next round and its bill is kept. The queue file itself
    does not change.

    \b
    Examples:
      spotctl queue rm nightly.yaml movies
    """
    from spotctl.queue.file import load_queue
    from spotctl.queue.lifecycle.journal import QueueFolder
    from spotctl.queue.lifecycle.requests import Request
    from spotctl.schema.document import suggest_nearest

    spec = load_queue(queue)
    folder, known = QueueFolder(spec.name), _known_jobs(spec)
    if job in _ended_jobs(folder):
        raise UsageError(f"{job} has already left {spec.name}: it ended, or never started")
    if job not in known:
        has = ", ".join(known) or "none"
        raise UsageError(f"{spec.name} has no job {job!r}{suggest_nearest(job, known)}; it has {has}")
    folder.leave_request(Request(job))
    when = "; it stops at the next round" if folder.is_live() else ""
    output.write_note(f"{job}: removed from {spec.name}{when}")


def _ended_jobs(folder: QueueFolder) -> frozenset[str]:
    """Returns jobs that left the current run. Their names stay taken, since their bills carry them."""
    going = folder.unfinished_run()
    return frozenset() if going is None else frozenset(going.read_record().left)


def _known_jobs(spec: QueueSpec) -> tuple[str, ...]:
    """Returns the jobs of a queue's file, and those that were added and not removed since."""
    from spotctl.queue.lifecycle.journal import QueueFolder
    from spotctl.queue.lifecycle.requests import UnreadableRequest

    folder = QueueFolder(spec.name)
    going = folder.unfinished_run()
    names = dict.fromkeys(member.name for member in spec.jobs)
    if going is not None:
        record = going.read_record()
        names |= dict.fromkeys([*record.entered, *record.added])
        for name in {*record.left, *record.removed}:
            names.pop(name, None)
    for _, request in folder.requests_after(after=folder.handled_number()):
        if isinstance(request, UnreadableRequest):
            continue  # the process that runs the queue reports it
        if request.member:
            names[request.job] = None
        else:
            names.pop(request.job, None)
    return tuple(names)


@group.command()
def ls(
    queue: QueueFile,
    form: options.FormatOption = options.OutputFormat.TABLE,
    as_json: options.JsonOption = False,
) -> None:
    """Show a queue's jobs with their machines, progress and cost.

    Shows the current run of the queue, or else its last one.

    \b
    Examples:
      spotctl queue ls nightly.yaml
      spotctl queue ls nightly.yaml --json
    """
    from spotctl.cli.format import json_lines
    from spotctl.cli.views import queue as queueview
    from spotctl.queue.file import load_queue
    from spotctl.queue.lifecycle.status import read_status

    found = read_status(load_queue(queue))
    if options.wants_json(form, as_json):
        output.write_data(json_lines.to_document(queueview.list_document(found)))
    else:
        output.show_picture(queueview.list_table(found))
    if found.failures:
        raise SpotctlError("\n".join(found.failures))


@group.command()
def run(
    queue: QueueFile,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Start without confirmation.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show deadline guarantees and the first round; start nothing.")
    ] = False,
    world: launch.WorldOption = WorldKind.LOCAL,
    speed: launch.SpeedOption = 600.0,
    trace: launch.TraceOption = None,
    trace_market: launch.TraceMarketOption = None,
    trace_start: launch.TraceStartOption = None,
    availability: launch.AvailabilityOption = None,
    rules: launch.RulesOption = None,
    seed: launch.SeedOption = None,
    form: options.FormatOption = options.OutputFormat.TABLE,
    as_json: options.JsonOption = False,
) -> None:
    """Run all jobs of a queue, and print their bills.

    Ctrl-C stops all jobs gracefully. If this process is killed, run the same command again to resume. With
    --json, standard output has one JSON object per event and line; the last is the outcome.

    \b
    Examples:
      spotctl queue run nightly.yaml --dry-run
      spotctl queue run nightly.yaml --yes --json
    """
    from spotctl.cli.commands import queue_flow
    from spotctl.queue.error_locations import locate_errors_in
    from spotctl.queue.file import load_queue
    from spotctl.queue.spec import QueueOptions, QueueSettings

    spec = load_queue(queue)
    chosen = QueueOptions(
        world,
        launch.checked_speed(speed),
        launch.price_options(trace, trace_market, trace_start, rules, availability),
        seed,
    )
    settings = QueueSettings(spec, chosen)
    as_json = options.wants_json(form, as_json)
    with locate_errors_in(queue):
        if dry_run:
            queue_flow.show_plan(settings, as_json)
        else:
            raise typer.Exit(queue_flow.run_watched(settings, as_json, ask=not yes))


@group.command()
def policies(
    form: options.FormatOption = options.OutputFormat.TABLE,
    as_json: options.JsonOption = False,
) -> None:
    """List the scheduling policies and their parameters.

    A queue file names one: `policy: NAME`, or `policy: {name: NAME, PARAMETER: VALUE}`.

    \b
    Examples:
      spotctl queue policies
      spotctl queue policies --json
    """
    from spotctl.cli.format import json_lines
    from spotctl.cli.views import queue as queueview

    if options.wants_json(form, as_json):
        output.write_data(json_lines.to_document(queueview.menu_document()))
    else:
        output.show_picture(queueview.menu_table())
