"""Resolves what the user wrote to the spec of a run: markets, prices, rules, start.

The shell's last word: everything here may read files and report errors; nothing below it looks anything up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Self

from bidbrain.model import Limits, ScalingModel
from bidbrain.strategies.recovery import Checkpointing
from pricing_data.catalogue import Catalogue, bundled_egress
from pricing_data.errors import NoSuchMarket, TraceError
from pricing_data.formats.traces import Recording
from pricing_data.model.capacity_spells import Observations
from pricing_data.model.market import Market, MarketRules, PriceHistory
from pricing_data.model.rules import RULES, combine_rules, default_rules
from pricing_data.model.units import Instant, Seconds, format_instant
from spotctl.control.run_spec import (
    CheckpointPolicy,
    EgressTariff,
    MarketOption,
    MovableCheckpoint,
    Objective,
    Origin,
    RecoveryTerms,
    RunSpec,
    StopCondition,
    WorkTerms,
)
from spotctl.errors import JobError, UsageError
from spotctl.job.price_sources import BUNDLED, TraceFiles, open_source, report_errors
from spotctl.job.spec import NEED_DEADLINE, JobSpec
from spotctl.job.start_moment import DAY_S, HISTORY_S, start_like_now

HISTORY_BEFORE_START_S: Final = 30 * DAY_S
"""Default start of a backtest: after this many seconds of history (decision 7)."""
DEFAULT_CORE_SECONDS_PER_CLOCK: Final = 600.0
"""Nominal work of a clock where the job file names none."""


@dataclass(frozen=True, slots=True)
class PriceOptions:
    """Says what the command line does about prices. ``trace`` None: those that the job file names."""

    trace: Path | None = None
    markets: tuple[str, ...] = ()
    """TYPE or TYPE@ZONE; empty: all that the job allows."""
    start: Instant | None = None
    rules: str | None = None
    availability: Path | None = None
    """When the markets had capacity (see ``pricing_data.formats.availability``); None: always."""


@dataclass(frozen=True, slots=True)
class RunInputs:
    """Holds all that a world needs. ``trace`` has the future too: only providers may read all of it."""

    terms: RunSpec
    trace: PriceHistory
    capacity: Observations
    """When each market had capacity; includes the future, like ``trace``."""

    def with_run_name(self, run: str) -> Self:
        """Returns the same for a run that got its name only now."""
        return replace(self, terms=replace(self.terms, origin=replace(self.terms.origin, run=run)))


@dataclass(frozen=True, slots=True)
class ResolvedJob(RunInputs):
    """Holds the inputs of a new run, and how much of its prices' source could be used."""

    recording: Recording


def resolve_job(
    spec: JobSpec,
    options: PriceOptions,
    run: str,
    seed: int,
    recording: Recording | None = None,
    now: float | None = None,
) -> ResolvedJob:
    """Resolves a run of ``spec``. Raises UsageError where prices, markets and job do not fit.

    ``recording``: the prices, if they were read already; otherwise ``options`` name them. ``now``: the
    wall clock from which a start follows that ``options`` leave open; None: the first possible start.
    """
    _check_strategy(spec)
    catalogue = Catalogue.bundled()
    recording = _read_recording(spec, options, catalogue) if recording is None else recording
    label = recording.label
    start = _choose_start(recording, options, seed, now)
    tradable = _market_options(recording, start, catalogue, label)
    by_cloud = _rules_by_cloud(options, recording)
    rules = combine_rules([by_cloud[cloud] for cloud in sorted({t.market.cloud for t in tradable})])
    # A market carries rules of its own only where they differ from the job's: most jobs use one cloud.
    own_rules = {cloud: found for cloud, found in by_cloud.items() if found != rules}
    if own_rules:
        tradable = tuple(replace(t, rules=own_rules.get(t.market.cloud)) for t in tradable)
    # After the markets are known: the smallest machine among them is the reference of a command's work.
    tradable = _with_speeds(spec, tradable, catalogue)
    checkpoints = _checkpointing_of(spec)
    terms = RunSpec(
        job=spec.name,
        origin=Origin(run=run, seed=seed, prices=label),
        start=start,
        rules=rules,
        reliable=_reliable_option(spec, tradable, start, catalogue),
        reliable_count=0 if spec.reliable is None else spec.reliable.instances,
        spot=tradable,
        limits=Limits(spec.spot.max_instances, spec.spot.max_per_allocation),
        work=WorkTerms(
            scaling=ScalingModel(
                spec.scaling.phi,
                spec.scaling.sigma,
                spec.scaling.lambda_ if checkpoints is None else _lost_to_an_eviction(spec, checkpoints),
                spec.scaling.stage2_above,
                spec.scaling.stage3_above,
            ),
            stop=StopCondition(
                spec.stop.clocks,
                spec.stop.seconds,
                spec.stop.converged.delta if spec.stop.converged is not None else None,
            ),
            core_seconds_per_clock=_core_seconds_per_clock(spec, tradable, catalogue),
            measure=spec.scaling.measure,
            modelled_speeds=spec.local.speeds,
        ),
        engine=spec.engine,
        objective=Objective(
            deadline_s=spec.objective.deadline,
            budget=spec.objective.budget,
            drain=spec.drain,
            strategy=spec.objective.strategy,
        ),
        start_s=spec.local.boot,
        recovery=RecoveryTerms(
            checkpoints=checkpoints,
            saves_on_warning=spec.command is None or spec.command.checkpoint.on_warning,
            keeps_nothing=spec.command is not None and spec.command.checkpoint.keeps is False,
            luggage=_movable_checkpoint(spec, tradable),
            keeps=None
            if spec.checkpoint is None
            else CheckpointPolicy(spec.checkpoint.clocks, spec.checkpoint.seconds),
        ),
    )
    # A recording may have thousands of markets; the job keeps those that it may use.
    trace = recording.history.select([t.market for t in tradable])
    return ResolvedJob(terms, trace, _read_capacity(options, tradable), recording)


def _checkpointing_of(spec: JobSpec) -> Checkpointing | None:
    """Returns how checkpoints replace reliable machines; None where those hold the model. Writing them is
    work.
    """
    if spec.command is None:
        return None
    said = spec.command.checkpoint
    # A program writes its checkpoints in its own time, which its amount of work includes.
    return Checkpointing(said.every, 0.0, said.restart)


def _movable_checkpoint(spec: JobSpec, tradable: Sequence[MarketOption]) -> MovableCheckpoint | None:
    """Returns what a checkpoint takes to another region. Raises UsageError for a job bound to one region."""
    regions = sorted({(t.market.cloud, t.market.region) for t in tradable})
    # Within one region nothing is carried, so nothing is owed for it.
    if len(regions) == 1:
        return None
    if spec.command is None:
        shown = ", ".join(f"{cloud} {region}" for cloud, region in regions)
        raise JobError(
            "resources.spot",
            f"the job may use machines in {shown}, and elastic training cannot span regions; "
            f"name one, like regions: [{regions[0][1]}]",
        )
    said = spec.command.checkpoint
    tariffs = tuple(
        EgressTariff(cloud, to, price)
        for (cloud, to), price in sorted(bundled_egress().items())
        # Tariffs between zones do not apply: only moves between regions and clouds are billed.
        if cloud in {cloud for cloud, _ in regions} and to in ("region", "cloud")
    )
    return MovableCheckpoint(said.size_bytes, said.link_mbit_s * 1e6 / 8, tariffs)


def _lost_to_an_eviction(spec: JobSpec, checkpoints: Checkpointing) -> Seconds:
    """Returns nothing but the restart where the program checkpoints on a warning: evictions are announced."""
    assert spec.command is not None
    said = spec.command.checkpoint  # for one that keeps nothing, ``bidding`` derives the loss from its work
    return checkpoints.restart_s if said.on_warning or said.keeps is False else checkpoints.lost_s


def _core_seconds_per_clock(spec: JobSpec, tradable: Sequence[MarketOption], catalogue: Catalogue) -> float:
    """Returns the work of a clock; for a command that of one step, from how long all take on one machine."""
    if spec.command is None or spec.command.work is None:
        return spec.local.core_seconds_per_clock or DEFAULT_CORE_SECONDS_PER_CLOCK
    work, reference = spec.command.work, _reference_cores(spec, tradable, catalogue)
    return work.takes * spec.command.gains.speed(reference, reference) / work.steps


def _with_speeds(
    spec: JobSpec, tradable: tuple[MarketOption, ...], catalogue: Catalogue
) -> tuple[MarketOption, ...]:
    """Sets what a program does on each machine; elastic training uses all cores of all of them."""
    if spec.command is None:
        return tradable
    gains, reference = spec.command.gains, _reference_cores(spec, tradable, catalogue)
    return tuple(replace(t, speed=gains.speed(t.cores, reference)) for t in tradable)


def _reference_cores(spec: JobSpec, tradable: Sequence[MarketOption], catalogue: Catalogue) -> int:
    """Returns the cores of the machine that a command's work is told for; else of the smallest one."""
    work = None if spec.command is None else spec.command.work
    if work is None:
        return min(t.cores for t in tradable)
    kinds = sorted({t.market.instance_type for t in tradable})
    if work.on is None and len(kinds) > 1:
        raise JobError("work.on", f"expected the instance type that it takes so long on, like {kinds[0]}")
    clouds = sorted({t.market.cloud for t in tradable})
    # One name may exist in several clouds; any of them has the cores in question.
    known = [catalogue.instance_type(cloud, work.on or kinds[0]) for cloud in clouds]
    kind = next((found for found in known if found is not None), None)
    if kind is None:
        raise JobError("work.on", f"the catalogue knows no instance type {work.on} of {' or '.join(clouds)}")
    return kind.vcpus


def _check_strategy(spec: JobSpec) -> None:
    """Raises JobError for a deadline strategy without a deadline, or without a known amount of work."""
    strategy = spec.objective.strategy
    # Here and not with the file's syntax: command-line options may have set the deadline.
    if strategy not in NEED_DEADLINE:
        return
    field, keeps = "objective.strategy", f"{strategy} is a way to keep a deadline"
    if spec.objective.deadline is None:
        raise JobError(field, f"{keeps}, and the job has none; set objective.deadline, or name another")
    if spec.stop.clocks is None:
        raise JobError(
            field,
            f"{keeps}, and nobody can say how much work the job is; set {_amount_of(spec)}, or name another",
        )


def _amount_of(spec: JobSpec) -> str:
    """Returns the key that says how much work a job is."""
    return "stop.clocks" if spec.command is None else "work"


def _read_recording(spec: JobSpec, options: PriceOptions, catalogue: Catalogue) -> Recording:
    source = open_source(spec.prices or BUNDLED) if options.trace is None else TraceFiles((options.trace,))
    wanted = MarketFilter(spec, options.markets, catalogue)
    with report_errors():
        try:
            return source.read_prices(wanted)
        except NoSuchMarket as error:
            raise wanted.explain_refusal(error) from error


def _read_capacity(options: PriceOptions, tradable: Iterable[MarketOption]) -> Observations:
    """Returns the observations of the job's markets. Raises UsageError where there are none."""
    if options.availability is None:
        return Observations()
    from pricing_data.formats.availability import read_availability  # few runs name such a file

    try:
        watched = read_availability(options.availability)
    except TraceError as error:
        raise UsageError(str(error)) from error
    spells = {t.market: watched.observations.spells(t.market) for t in tradable}
    found = Observations.from_spells(spells)
    if not found.markets:
        wanted = ", ".join(str(market) for market in sorted(spells)[:3])
        seen = ", ".join(str(market) for market in watched.observations.markets[:3])
        raise UsageError(f"{watched.label} says nothing of {wanted}; it is about {seen}")
    return found


@dataclass(frozen=True, slots=True)
class MarketFilter:
    """Selects the markets of a recording that the job may use."""

    spec: JobSpec
    named: tuple[str, ...]
    catalogue: Catalogue

    def __call__(self, market: Market) -> bool:
        if self.named:
            return market.instance_type in self.named or str(market) in self.named
        spot = self.spec.spot
        return (
            (not spot.clouds or market.cloud in spot.clouds)
            and (not spot.regions or market.region in spot.regions)
            and (not spot.zones or market.zone in spot.zones)
            and (not spot.instance_types or market.instance_type in spot.instance_types)
            and ((spot.cpus is None and spot.memory_gib is None) or self._large_enough(market))
        )

    def explain_refusal(self, error: NoSuchMarket) -> UsageError:
        """Returns the error for a recording that has none of them."""
        if self.named:
            return UsageError(f"--trace-market {' '.join(self.named)}: {error.path} has only {error.offered}")
        spot = self.spec.spot
        lists = ("clouds", "regions", "zones", "instance_types")
        said = {key: ", ".join(getattr(spot, key)) for key in lists if getattr(spot, key)}
        said |= {} if spot.cpus is None else {"cpus": str(spot.cpus)}
        said |= {} if spot.memory_gib is None else {"memory": str(spot.memory_gib)}
        asked = "; ".join(f"{key}: {value}" for key, value in said.items())
        return JobError("resources.spot", f"no market of {error.path} has {asked}; it has {error.offered}")

    def _large_enough(self, market: Market) -> bool:
        spot = self.spec.spot
        found = self.catalogue.instance_type(market.cloud, market.instance_type)
        if found is None:
            return False
        # An unknown type was left out above: its size cannot be compared.
        enough_cpus = spot.cpus is None or spot.cpus.admits(found.vcpus)
        return enough_cpus and (spot.memory_gib is None or spot.memory_gib.admits(found.memory_gib))


def _choose_start(recording: Recording, options: PriceOptions, seed: int, now: float | None) -> Instant:
    start, history_s = options.start, HISTORY_BEFORE_START_S if now is None else HISTORY_S
    if start is None:
        # Eviction estimates need history before the first decision.
        earliest = Instant(recording.first + history_s)
        start = earliest if now is None else start_like_now(earliest, recording.last, now, seed)
    if recording.first < start < recording.last:
        return start
    span = f"{format_instant(recording.first)} to {format_instant(recording.last)}"
    if options.start is None:
        raise UsageError(
            f"{recording.label} covers {span}: too short for {history_s // DAY_S} days of history before "
            "the start; name a start with --trace-start"
        )
    raise UsageError(f"--trace-start {format_instant(start)} is outside of {recording.label} ({span})")


def _market_options(
    recording: Recording, start: Instant, catalogue: Catalogue, label: str
) -> tuple[MarketOption, ...]:
    """Returns the recording's markets for which the catalogue knows cores and on-demand price."""
    known, unknown = [], []
    for market in sorted(recording.series):
        kind = catalogue.instance_type(market.cloud, market.instance_type)
        price = catalogue.on_demand(market.cloud, market.region, market.instance_type, start)
        # Without its cores no work can be counted, without its list price no saving.
        if kind is None or price is None:
            unknown.append(str(market))
        else:
            known.append(MarketOption(market, price, kind.vcpus))
    if not known:
        lacking = f"; the catalogue knows nothing of {', '.join(unknown[:5])}" if unknown else ""
        raise JobError("resources.spot", f"no market in {label} may be used by this job{lacking}")
    return tuple(known)


def _rules_by_cloud(options: PriceOptions, recording: Recording) -> Mapping[str, MarketRules]:
    """Returns rules by cloud. Raises UsageError where those of several clouds cannot be combined."""
    clouds = sorted({market.cloud for market in recording.series})
    if options.rules is not None:
        if options.rules not in RULES:
            raise UsageError(f"--rules {options.rules}: expected one of {', '.join(RULES)}")
        return dict.fromkeys(clouds, RULES[options.rules])
    found = {cloud: _usual_rules(cloud, recording) for cloud in clouds}
    try:
        combine_rules(tuple(found.values()))
    except ValueError as error:
        raise UsageError(f"{recording.label}: {error}; name the rules of all with --rules") from error
    return found


def _usual_rules(cloud: str, recording: Recording) -> MarketRules:
    """Returns the rules in force when prices were recorded; today's rules for generated prices."""
    return RULES[cloud] if recording.generated else default_rules(cloud, recording.first)


def _reliable_option(
    spec: JobSpec, tradable: Sequence[MarketOption], start: Instant, catalogue: Catalogue
) -> MarketOption:
    """Returns the reliable machines' market: where the spot machines are, unless the job says otherwise."""
    wanted, near = spec.reliable, tradable[0].market
    if wanted is None:
        return min(tradable, key=lambda t: (t.on_demand / t.nu, t.market))
    cloud, region = wanted.cloud or near.cloud, wanted.region or near.region
    kind = catalogue.instance_type(cloud, wanted.instance_type)
    price = catalogue.on_demand(cloud, region, wanted.instance_type, start)
    if kind is None or price is None:
        raise JobError(
            "resources.reliable.instance_type",
            f"the catalogue knows no on-demand price of {wanted.instance_type} in {cloud} {region} on "
            f"{format_instant(start)[:10]}; name another type",
        )
    return MarketOption(
        Market(cloud, region, wanted.zone or near.zone, wanted.instance_type), price, kind.vcpus
    )
