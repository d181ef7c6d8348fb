"""Defines ``launch`` and ``plan``: one starts a run, the other shows how it would go."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from spotctl.cli.commands import options
from spotctl.cli.format import output
from spotctl.errors import Interrupted, UsageError
from spotctl.job.choices import IfRunning, WorldKind
from spotctl.records.background import fork_behind

if TYPE_CHECKING:
    from spotctl.job.resolve import PriceOptions
    from spotctl.job.spec import JobSpec


class MachineSource(StrEnum):
    LOCAL = "local"
    AUTO = "auto"


CloudOption: TypeAlias = Annotated[
    MachineSource,
    typer.Option(help="Where machines come from: this computer; auto: wherever it can, which is here."),
]
WorldOption: TypeAlias = Annotated[
    WorldKind, typer.Option(help="local: real processes on this machine; replay: modelled, in no time.")
]
DeadlineOption: TypeAlias = Annotated[
    str | None, typer.Option(metavar="SPAN", help="Instead of objective.deadline, like 6h.")
]
BudgetOption: TypeAlias = Annotated[
    str | None, typer.Option(metavar="DOLLARS", help="Instead of objective.budget, like 20.")
]
NameOption: TypeAlias = Annotated[str | None, typer.Option(help="Instead of the job file's name.")]
EnvOption: TypeAlias = Annotated[
    list[str] | None, typer.Option(metavar="K=V", help="A variable for the job's processes; repeatable.")
]
SpeedOption: TypeAlias = Annotated[
    float, typer.Option(min=1.0, help="Nominal seconds per real second, where prices are recorded.")
]
TraceOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Recorded prices. Default: the job file's, or the bundled market."),
]
TraceMarketOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(metavar="T[@Z]", help="A market of it to use; repeatable. Default: what the job allows."),
]
TraceStartOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        envvar="SPOTCTL_TRACE_START",
        help="When in the trace to start; what lies before is history. Default: as the clock says.",
    ),
]
AvailabilityOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--availability", metavar="FILE", help="When markets had capacity, probed; default: always."
    ),
]
RulesOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Billing rules; default: those of the trace's time.",
        autocompletion=options.complete_rules,
    ),
]
SeedOption: TypeAlias = Annotated[int | None, typer.Option(min=0, help="Instead of the job file's seed.")]


def add_to(app: typer.Typer) -> None:
    """Gives ``app`` the verbs of this module."""
    app.command(epilog="Example: spotctl launch movies.yaml --deadline 6h --yes")(launch)
    app.command(epilog="Example: spotctl plan movies.yaml --trace prices.csv.gz")(plan)


def launch(
    job: options.JobFile,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Start without asking.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan and start nothing.")] = False,
    detach: Annotated[
        bool, typer.Option("--detach", help="Return as soon as the job has machines; it goes on by itself.")
    ] = False,
    if_running: Annotated[
        IfRunning,
        typer.Option(help="What to do when the job runs already: fail is exit 8, skip exit 3."),
    ] = IfRunning.FAIL,
    cloud: CloudOption = MachineSource.LOCAL,
    world: WorldOption = WorldKind.LOCAL,
    deadline: DeadlineOption = None,
    budget: BudgetOption = None,
    name: NameOption = None,
    env: EnvOption = None,
    speed: Annotated[
        float | None,
        typer.Option(
            min=1.0,
            help="Nominal seconds per real second; default: 600, or less where this computer would not "
            "keep pace.",
        ),
    ] = None,
    trace: TraceOption = None,
    trace_market: TraceMarketOption = None,
    trace_start: TraceStartOption = None,
    availability: AvailabilityOption = None,
    rules: RulesOption = None,
    seed: SeedOption = None,
    form: options.FormatOption = options.OutputFormat.TABLE,
    as_json: options.JsonOption = False,
) -> None:
    """Plan a job, ask, run it, say what it cost.

    While the job runs, Ctrl-C asks what to do, and the job goes on meanwhile; without a terminal it cancels
    gracefully. Ctrl-Z stops the view alone, and a job whose terminal is closed goes on. With --json,
    standard output is one JSON object per line and event, the last being the outcome.
    """
    _note_cloud(cloud)
    # Forked before anything heavy is loaded: the fork must have one thread only.
    front = None if dry_run or not (detach or output.can_ask()) else fork_behind(Interrupted.exit_code)
    spec = _load_named_job(job, name, env)

    from spotctl.cli.commands import launch_flow
    from spotctl.job import settings
    from spotctl.job.locations import locate_errors

    chosen = settings.LaunchOptions(
        world=world,
        speed=settings.DEFAULT_SPEED if speed is None else checked_speed(speed),
        speed_named=speed is not None,
        prices=price_options(trace, trace_market, trace_start, rules, availability),
        if_running=if_running,
        deadline=options.parse_duration_option("--deadline", deadline),
        budget=options.parse_dollars_option("--budget", budget),
        seed=seed,
    )
    as_json = options.wants_json(form, as_json)
    with locate_errors(job):
        if dry_run:
            launch_flow.show_plan(spec, chosen, as_json)
        else:
            code = launch_flow.launch_job(spec, chosen, as_json, ask=not yes, front=front, detach=detach)
            raise typer.Exit(code)


def plan(
    job: options.JobFile,
    cloud: CloudOption = MachineSource.LOCAL,
    deadline: DeadlineOption = None,
    budget: BudgetOption = None,
    trace: TraceOption = None,
    trace_market: TraceMarketOption = None,
    trace_start: TraceStartOption = None,
    availability: AvailabilityOption = None,
    rules: RulesOption = None,
    seed: SeedOption = None,
    measure: Annotated[
        bool,
        typer.Option("--measure", help="Measure what a clock takes, on a part of the input."),
    ] = False,
    form: options.FormatOption = options.OutputFormat.TABLE,
    as_json: options.JsonOption = False,
) -> None:
    """Show what a launch would do, and why.

    And what it should cost, and when it should be done. Starts and writes nothing.
    """
    _note_cloud(cloud)
    spec = _load_named_job(job, None, None)

    from spotctl.cli.commands import launch_flow
    from spotctl.job.locations import locate_errors
    from spotctl.job.settings import LaunchOptions

    chosen = LaunchOptions(
        speed_named=False,
        prices=price_options(trace, trace_market, trace_start, rules, availability),
        deadline=options.parse_duration_option("--deadline", deadline),
        budget=options.parse_dollars_option("--budget", budget),
        seed=seed,
    )
    with locate_errors(job):
        launch_flow.show_plan(spec, chosen, options.wants_json(form, as_json), measure=measure)


# ---- from the command line to values ------------------------------------------------------------


def _note_cloud(cloud: MachineSource) -> None:
    if cloud is MachineSource.AUTO:
        output.write_note(
            "--cloud auto: machines of this computer, at the trace's prices; no cloud is bought from yet"
        )


def _load_named_job(path: Path, name: str | None, env: list[str] | None) -> JobSpec:
    from spotctl.job.file import load_job

    name = checked_name(name)
    extra = options.parse_variables_option("--env", env or [])
    spec = load_job(path)
    return replace(spec, name=name or spec.name, envs={**spec.envs, **extra})


def checked_name(name: str | None) -> str | None:
    """Checks the value of --name. Raises UsageError for a name that no job can have."""
    from spotctl.job.keys.kinds import JOB_NAME

    if name is not None and re.fullmatch(JOB_NAME, name) is None:
        raise UsageError(f"--name: found {name!r}, expected letters, digits, '.', '_' and '-', at most 64")
    return name


def price_options(
    trace: Path | None,
    markets: list[str] | None,
    start: str | None,
    rules: str | None,
    availability: Path | None,
) -> PriceOptions:
    """Reads the options about prices."""
    from spotctl.job.resolve import PriceOptions

    begin = options.parse_time_option("--trace-start", start)
    return PriceOptions(trace, tuple(markets or ()), begin, rules, availability)


def checked_speed(speed: float) -> float:
    """Checks the value of --speed. Raises UsageError for infinite or undefined ones."""
    if not math.isfinite(speed):
        raise UsageError(f"--speed: found {speed}, expected a finite number of at least 1")
    return speed
