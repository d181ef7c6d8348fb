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
    typer.Option(help="Where machines run. So far both local and auto mean this computer."),
]
WorldOption: TypeAlias = Annotated[
    WorldKind, typer.Option(help="local: run real processes here; replay: simulate, without waiting.")
]
DeadlineOption: TypeAlias = Annotated[
    str | None,
    typer.Option(metavar="DURATION", help="Time from start to end, like 6h; overrides objective.deadline."),
]
BudgetOption: TypeAlias = Annotated[
    str | None, typer.Option(metavar="DOLLARS", help="Spending limit, like 20; overrides objective.budget.")
]
NameOption: TypeAlias = Annotated[
    str | None, typer.Option(metavar="NAME", help="Job name; overrides the job file's.")
]
EnvOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=VALUE", help="Environment variable for the job's processes; repeatable."),
]
SpeedOption: TypeAlias = Annotated[
    float, typer.Option(min=1.0, metavar="N", help="Nominal seconds that pass per real second.")
]
TraceOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Recorded spot prices. Default: the job file's prices, else the bundled market."
    ),
]
TraceMarketOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        metavar="TYPE[@ZONE]",
        help="Market of the trace to use; repeatable. Default: all that the job file allows.",
    ),
]
TraceStartOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        envvar="SPOTCTL_TRACE_START",
        help="Start time within the trace, UTC; earlier prices are history. "
        "Default: a past week, at the current weekday and hour.",
    ),
]
AvailabilityOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--availability", metavar="FILE", help="Recorded probes of spot capacity. Default: always available."
    ),
]
RulesOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Billing rules, like aws-2016. Default: those in force when the prices were recorded.",
        autocompletion=options.complete_rules,
    ),
]
SeedOption: TypeAlias = Annotated[
    int | None, typer.Option(min=0, metavar="N", help="Random seed; overrides the job file's.")
]


def add_to(app: typer.Typer) -> None:
    """Gives ``app`` the verbs of this module."""
    app.command()(launch)
    app.command()(plan)


def launch(
    job: options.JobFile,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Start without confirmation.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan; start nothing.")] = False,
    detach: Annotated[
        bool, typer.Option("--detach", help="Return once the job has machines; it runs in the background.")
    ] = False,
    if_running: Annotated[
        IfRunning,
        typer.Option(help="If the job is running: skip (exit 3), attach to it, or fail (exit 8)."),
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
            metavar="N",
            help="Nominal seconds that pass per real second. Default: 600, or less if this computer cannot "
            "keep up.",
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
    """Run a job on spot machines and print its bill.

    Shows the plan and asks before it starts. While the job runs, Ctrl-C opens a menu and the job keeps
    running; without a terminal, Ctrl-C cancels the job gracefully. Ctrl-Z suspends only the display, and a
    closed terminal leaves the job running. With --json, standard output has one JSON object per event and
    line; the last is the outcome.

    \b
    Examples:
      spotctl launch movies.yaml
      spotctl launch movies.yaml --deadline 6h --budget 20 --yes
      spotctl launch movies.yaml --world replay --yes --json
    """
    _note_cloud(cloud)
    # Forked before anything heavy is loaded: the fork must have one thread only.
    # A dry run writes nothing, so it needs no process that could outlive the terminal.
    front = None if dry_run or not (detach or output.can_ask()) else fork_behind(Interrupted.exit_code)
    spec = _load_named_job(job, name, env)

    from spotctl.cli.commands import launch_flow
    from spotctl.job import settings
    from spotctl.job.locations import locate_errors

    chosen = settings.LaunchOptions(
        world=world,
        speed=settings.DEFAULT_SPEED if speed is None else checked_speed(speed),
        # Whether the user chose the speed: a default may be lowered to what this computer can sustain.
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
        typer.Option(
            "--measure", help="Measure the time of one clock on a part of the input, for some seconds."
        ),
    ] = False,
    form: options.FormatOption = options.OutputFormat.TABLE,
    as_json: options.JsonOption = False,
) -> None:
    """Show what a launch would do, and why.

    Lists the machines to request, the alternatives, and the expected cost and end time. Starts and writes
    nothing. Exits with 6 if the deadline or the budget cannot be met.

    \b
    Examples:
      spotctl plan movies.yaml
      spotctl plan movies.yaml --deadline 6h --trace prices.csv.gz
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
