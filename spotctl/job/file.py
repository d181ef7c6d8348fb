"""Reads and checks the job file: the one place that does.

``load_job`` returns a ``JobSpec`` in which every default is filled in and every path is absolute, or
raises JobFileError with all problems of the file. The order of the functions is the order of the file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from glob import glob
from pathlib import Path
from typing import Final, TypeAlias

import yaml

from pricing_data.model.units import Seconds
from spotctl.control.engine_traits import CHECKPOINTING_PROGRAM, ELASTIC_TRAINING
from spotctl.job import command_section
from spotctl.job.other_tools import refuse_foreign
from spotctl.job.price_sources import PRICE_SOURCES
from spotctl.job.readers import (
    A_CLASS,
    A_NAME,
    ABOVE_ZERO,
    AN_INTERVAL,
    CLASS,
    CLOCKS,
    CLOUD,
    CLOUD_LIST,
    COLUMN,
    COLUMNS,
    DATA,
    DURATION,
    FROM_0,
    GOAL,
    INSTANCE_TYPE,
    JOB_NAME,
    MACHINES,
    MACHINES_FROM_0,
    METRIC,
    NAME,
    ON_OR_OFF,
    PARTS,
    PLACE,
    PRICES,
    PROGRESS,
    RATIO,
    REGION,
    REGIONS,
    SHARE,
    SPAN,
    STAGES,
    STRATEGY,
    TEXT,
    TYPE,
    TYPES,
    VARIABLE,
    WORK,
    YES_OR_NO,
    ZONE,
    ZONES,
    absolute_location,
    own_keys,
    read_amount,
    read_argument,
    read_budget,
    read_interval,
    read_lease,
    read_memory,
    read_seconds,
)
from spotctl.job.spec import (
    DEFAULT_STRATEGY,
    LINK_MBIT_S,
    Convergence,
    JobSpec,
    LocalSpec,
    ModelCheckpoints,
    ObjectiveSpec,
    ReliableSpec,
    ScalingSpec,
    SpotSpec,
    StopSpec,
    TrainingSpec,
)
from spotctl.job.yaml_reader import (
    Reader,
    Section,
    one_of,
    open_document,
    read_text,
)

_AN_END: Final = "clocks, seconds or converged, like {clocks: 40}"
_PARTITIONS_PER_MACHINE: Final = 0.5
_SHARDS_PER_WORKER: Final = 4


def load_job(path: Path) -> JobSpec:
    """Reads and checks a job file. Raises JobFileError with every problem in it."""
    return parse_job(read_text(path), str(path), path.resolve().parent)


def parse_job(text: str, file: str, folder: Path) -> JobSpec:
    """Reads a job from text; messages name ``file``, and paths are relative to ``folder``."""
    document, root = open_document(text, file)
    if "jobs" in root.entries and "resources" not in root.entries:
        document.refuse(None, "found a queue's file, expected a job's; `spotctl queue run` takes queues")
    refuse_foreign(document, root)
    inferred = "command" if "run" in root.entries and "app" not in root.entries else "agileml"
    engine = root.get("engine", one_of(*JOB_READERS), inferred)
    spec = JOB_READERS[engine](root, folder, _read_name(root, Path(file).stem))
    spec = replace(spec, prices=_read_prices(root, folder))
    document.raise_if_wrong()
    return spec


def _read_elastic_job(root: Section, folder: Path, name: str) -> JobSpec:
    """Reads a job of the elastic trainer."""
    for key in root.entries.keys() & command_section.KEYS:
        root.reject(key, "belongs to a command, and this job has an app: leave one of them out")
    resources = root.section("resources", "reliable and spot machines")
    reliable = _read_reliable(resources.section("reliable", "instances and instance_type"))
    spot = _read_spot(resources.section("spot", "at least max_instances"))
    local = _read_local(root.section("local"))
    return JobSpec(
        name=name,
        engine=ELASTIC_TRAINING,
        app=_read_app(root, folder),
        args=own_keys(root.section("args"), read_argument, r"[A-Za-z_]\w*", "the name of a parameter"),
        data=_read_data(root, folder),
        columns=own_keys(root.section("columns"), _read_column, r".*\S.*", "the name of a column"),
        stop=_read_stop(root.section("stop", _AN_END)),
        reliable=reliable,
        spot=spot,
        objective=_read_objective(root.section("objective"), STRATEGY, DEFAULT_STRATEGY),
        scaling=_read_scaling(root.section("scaling")),
        training=_read_training(root.section("training"), reliable.instances + spot.max_instances),
        drain=root.get("drain", YES_OR_NO, False),
        seed=root.get("seed", FROM_0, 0),
        output=absolute_location(root.get("output", PLACE, f"models/{name}"), folder),
        local=local,
        envs=_read_envs(root),
        checkpoint=_read_checkpoint(root, folder, modelled=local.progress == "modelled"),
        score=root.get("score", ON_OR_OFF, True),
    )


def _read_command_job(root: Section, folder: Path, name: str) -> JobSpec:
    """Reads a program that checkpoints, on one spot machine after the other."""
    for key in root.entries.keys() & command_section.NOT_ITS:
        root.reject(key, "belongs to engine: agileml, and this is a job of engine: command")
    resources = root.section("resources")
    if "reliable" in resources.entries:
        instead = "objective.deadline, or strategy: on-demand, has machines on demand where they are needed"
        resources.reject("reliable", f"a command needs no machine beside the one it runs on; {instead}")
    spot = _read_spot(resources.section("spot"), machines=1)
    scaling = _refuse_keys_but(root.section("scaling"), "sigma", "measure", "cores", "phi")
    command, output = command_section.read_command(root, folder), root.get("output", PLACE, "")
    command = replace(command, gains=command_section.read_gains(scaling))
    return JobSpec(
        name=name,
        engine=CHECKPOINTING_PROGRAM,
        app="",
        args={},
        data="",
        stop=StopSpec(None if command.work is None else command.work.steps),
        reliable=None,
        spot=spot,
        objective=_read_objective(
            root.section("objective"), command_section.STRATEGY, command_section.DEFAULT_STRATEGY
        ),
        scaling=replace(_read_scaling(scaling), phi=ScalingSpec().phi),
        training=TrainingSpec(staleness=0, partitions=1, shards=1),
        drain=root.get("drain", YES_OR_NO, False),
        seed=root.get("seed", FROM_0, 0),
        output=absolute_location(output, folder) if output else "",
        local=_read_local(_refuse_keys_but(root.section("local"), "boot", "lease", "progress", "speeds")),
        envs=_read_envs(root),
        command=command,
    )


JobReader: TypeAlias = Callable[[Section, Path, str], JobSpec]
"""Takes the outermost mapping, the file's folder and the job's name; reports problems to the mapping."""
JOB_READERS: Final[dict[str, JobReader]] = {
    ELASTIC_TRAINING.kind: _read_elastic_job,
    CHECKPOINTING_PROGRAM.kind: _read_command_job,
}
"""Reads each engine's jobs; ``spotctl.engines.registry.register_engine`` adds to them."""


def _refuse_keys_but(section: Section, *kept: str) -> Section:
    """Returns ``section``, and rejects keys other than ``kept``, which alone mean something to a command."""
    for key in section.entries:
        if key not in kept:
            section.reject(key, f"means nothing to engine: command, expected {' or '.join(kept)}")
    return section


def _read_envs(root: Section) -> Mapping[str, str]:
    return own_keys(root.section("envs"), TEXT, VARIABLE, "the name of a variable")


def _read_name(root: Section, stem: str) -> str:
    if re.fullmatch(JOB_NAME, stem) is None:
        return root.get("name", NAME, "", A_NAME)
    return root.get("name", NAME, stem)


def _read_app(root: Section, folder: Path) -> str:
    """Reads a class of an installed module, or of a file beside the job's."""
    written = root.get("app", CLASS, "", A_CLASS)
    place, _, name = written.rpartition(":")
    if not place.endswith(".py"):
        return written
    found = absolute_location(place, folder)
    if not Path(found).is_file():
        root.reject("app", f"found {written!r}, but there is no file {found}")
    return f"{found}:{name}"


def _read_data(root: Section, folder: Path) -> str:
    """Reads a file, a folder, a glob, or a URL of one."""
    written = root.get("data", DATA, "", "the training data, a file or a URL")
    place = absolute_location(written, folder)
    if written and "://" not in written and not (Path(place).exists() or glob(place)):
        root.reject("data", f"found {written!r}, but there is no file {place}")
    return place


def _read_prices(root: Section, folder: Path) -> str | None:
    """Reads the name of a source of prices, or a recorded file."""
    known = " or ".join(PRICE_SOURCES)
    written = root.get("prices", PRICES, None)
    if written is None or written in PRICE_SOURCES:
        return written
    place = absolute_location(written, folder)
    if not Path(place).is_file():
        root.reject("prices", f"found {written!r}, expected {known}, and there is no file {place}")
    return place


def _read_column(node: yaml.Node) -> str | tuple[str, ...]:
    """Reads a column of the data, or a list of columns."""
    if isinstance(node, yaml.SequenceNode):
        return COLUMNS(node)
    return COLUMN(node)


def _read_stop(section: Section) -> StopSpec:
    stop = StopSpec(
        section.get("clocks", CLOCKS, None),
        section.get("seconds", read_seconds, None),
        _read_converged(section) if section.has("converged") else None,
    )
    section.need_any(("clocks", "seconds", "converged"), _AN_END)
    return stop


def _read_converged(section: Section) -> Convergence:
    converged = section.section("converged")
    return Convergence(
        converged.get("metric", METRIC, "", "the name of a metric, like rmse"),
        converged.get("delta", ABOVE_ZERO, 1.0, "the least improvement, like 1e-3"),
    )


def _read_reliable(section: Section) -> ReliableSpec:
    return ReliableSpec(
        section.get("instances", MACHINES, 1),
        section.get("instance_type", TYPE, "", "an instance type like c5.xlarge"),
        section.get("cloud", CLOUD, None),
        section.get("region", REGION, None),
        section.get("zone", ZONE, None),
    )


def _read_spot(section: Section, machines: int | None = None) -> SpotSpec:
    """Reads spot machines. ``machines``: exactly how many the job needs; None: the file says how many it may
    have.
    """
    for key in ("max_instances", "max_per_allocation") if machines is not None else ():
        if section.get(key, FROM_0, machines) != machines:
            section.reject(key, f"expected {machines}: that is what a command runs on")
    together = section.get("max_per_allocation", MACHINES, None)
    most = machines or section.get(
        "max_instances",
        MACHINES_FROM_0,
        together or 0,
        "the most machines to hold, like 8",
    )
    if together is not None and together > most:
        message = f"found {together}, expected at most max_instances ({most})"
        section.reject("max_per_allocation", message)
    spot = SpotSpec(
        max_instances=most,
        max_per_allocation=together or max(1, most),
        cpus=section.get("cpus", read_amount, None),
        memory_gib=section.get("memory", read_amount, None),
        instance_types=section.get("instance_types", TYPES, ()),
        clouds=section.get("clouds", CLOUD_LIST, ()),
        regions=section.get("regions", REGIONS, ()),
        zones=section.get("zones", ZONES, ()),
    )
    for key, named in (("clouds", spot.clouds), ("regions", spot.regions)):
        if machines is None and len(named) > 1:
            section.reject(key, "expected one: elastic training cannot span several; name one")
    return spot


def _read_objective(section: Section, strategy: Reader[str], default: str) -> ObjectiveSpec:
    return ObjectiveSpec(
        section.get("minimize", GOAL, "cost"),
        section.get("strategy", strategy, default),
        section.get("deadline", SPAN, None),
        section.get("budget", read_budget, None),
    )


def _read_scaling(section: Section) -> ScalingSpec:
    default = ScalingSpec()
    scaling = ScalingSpec(
        section.get("phi", SHARE, default.phi),
        section.get("sigma", DURATION, default.sigma),
        section.get("lambda", DURATION, default.lambda_),
        section.get("stage2_above", RATIO, default.stage2_above),
        section.get("stage3_above", RATIO, default.stage3_above),
        section.get("measure", YES_OR_NO, default.measure),
    )
    if scaling.stage3_above < scaling.stage2_above:
        message = f"found {scaling.stage3_above:g}, expected at least stage2_above ({scaling.stage2_above:g})"
        section.reject("stage3_above", message)
    return scaling


def _read_training(section: Section, machines: int) -> TrainingSpec:
    partitions = max(1, int(machines * _PARTITIONS_PER_MACHINE))
    return TrainingSpec(
        section.get("staleness", FROM_0, 0),
        section.get("partitions", PARTS, partitions),
        section.get("shards", PARTS, max(1, _SHARDS_PER_WORKER * machines)),
        section.get("link_mbit_s", ABOVE_ZERO, LINK_MBIT_S),
        section.get("stages", STAGES, False),
        section.get("input_memory", read_memory, None),
    )


def _read_checkpoint(root: Section, folder: Path, *, modelled: bool) -> ModelCheckpoints | None:
    if not root.has("checkpoint"):
        return None
    section = root.section("checkpoint", "store and every")
    store = section.get("store", PLACE, "", "where checkpoints are kept, a folder or a URL")
    if store.startswith("memory://"):
        section.reject("store", "found memory://, expected a place that outlives a machine")
    clocks, seconds = section.get("every", read_interval, (1, Seconds(0.0)), AN_INTERVAL)
    resume = section.get("resume", YES_OR_NO, False)
    if modelled:
        root.reject("checkpoint", "needs local: {progress: measured}: what is modelled has no state to keep")
    return ModelCheckpoints(absolute_location(store, folder) if store else "", clocks, seconds, resume)


def _read_local(section: Section) -> LocalSpec:
    default = LocalSpec()
    return LocalSpec(
        section.get("throttle", ON_OR_OFF, default.throttle),
        section.get("core_seconds_per_clock", WORK, default.core_seconds_per_clock),
        section.get("boot", DURATION, default.boot),
        section.get("lease", read_lease, default.lease),
        section.get("progress", PROGRESS, default.progress),
        own_keys(section.section("speeds"), ABOVE_ZERO, INSTANCE_TYPE, "an instance type"),
    )
