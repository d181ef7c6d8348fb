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

from pricing_data.model.units import MicroUsd, Seconds, to_micros
from spotctl.control.engine_traits import CHECKPOINTING_PROGRAM, ELASTIC_TRAINING
from spotctl.job import command_section
from spotctl.job.other_tools import refuse_foreign
from spotctl.job.price_sources import PRICE_SOURCES
from spotctl.job.readers import INSTANCE_TYPE, VARIABLE, absolute_location, own_keys
from spotctl.job.spec import (
    DEFAULT_STRATEGY,
    LINK_MBIT_S,
    STRATEGIES,
    Amount,
    Argument,
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
    Mismatch,
    Reader,
    Section,
    describe_node,
    duration,
    list_of,
    number,
    one_of,
    open_document,
    read_text,
    size,
    switch,
    whole_number,
    word,
)

CLOUDS: Final = ("aws", "gcp", "azure")
JOB_NAME: Final = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
"""A run's folder carries the name, so it must be a valid name everywhere."""
_A_CLASS: Final = "a class like agileml.apps.mf:MatrixFactorization or mine.py:Mine"
_AN_END: Final = "clocks, seconds or converged, like {clocks: 40}"
_AN_INTERVAL: Final = "clocks, like 20, or a time with its unit, like 10m"
_APP: Final = r"([A-Za-z_][\w.]*|.*\.py):[A-Za-z_]\w*"
_AMOUNT: Final = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)(\+?)")
_LARGEST_BUDGET: Final = 1e9
_LEAST_LEASE_S: Final = 60.0
_LONGEST_LEASE_S: Final = 30 * 86400.0
_MOST_MACHINES: Final = 10_000
"""Most machines at once; a plan weighs every number of them. Larger numbers are typing errors."""
_MOST_PARTS: Final = 1_000_000
"""Most parts of a model or an input; every process knows every part by name."""
_MOST_CLOCKS: Final = 999_999_999
_MOST_WORK: Final = 1e12
"""Most work of one clock, in core-seconds: that of thirty thousand cores for a year."""
_LONGEST_S: Final = 1e9
"""Thirty years."""
_PARTITIONS_PER_MACHINE: Final = 0.5
_SHARDS_PER_WORKER: Final = 4


def load_job(path: Path) -> JobSpec:
    """Reads and checks a job file. Raises JobFileError with every problem in it."""
    return parse_job(read_text(path), str(path), path.resolve().parent)


def parse_job(text: str, file: str, folder: Path) -> JobSpec:
    """Reads a job from text; messages name ``file``, and paths are relative to ``folder``."""
    document, root = open_document(text, file)
    if "jobs" in root and "resources" not in root:
        document.refuse(None, "found a queue's file, expected a job's; `spotctl queue run` takes queues")
    refuse_foreign(document, root)
    with root:
        inferred = "command" if "run" in root and "app" not in root else "agileml"
        engine = root.get("engine", one_of(*JOB_READERS), inferred)
        spec = JOB_READERS[engine](root, folder, _read_name(root, Path(file).stem))
        spec = replace(spec, prices=_read_prices(root, folder))
    document.raise_if_wrong()
    return spec


def _read_elastic_job(root: Section, folder: Path, name: str) -> JobSpec:
    """Reads a job of the elastic trainer."""
    for key in command_section.KEYS:
        if key in root:
            root.reject(key, "belongs to a command, and this job has an app: leave one of them out")
    with root.section("resources", "reliable and spot machines") as resources:
        reliable = _read_reliable(resources.section("reliable", "instances and instance_type"))
        spot = _read_spot(resources.section("spot", "at least max_instances"))
    local = _read_local(root.section("local"))
    return JobSpec(
        name=name,
        engine=ELASTIC_TRAINING,
        app=_read_app(root, folder),
        args=own_keys(root.section("args"), _read_argument, r"[A-Za-z_]\w*", "the name of a parameter"),
        data=_read_data(root, folder),
        columns=own_keys(root.section("columns"), _read_column, r".*\S.*", "the name of a column"),
        stop=_read_stop(root.section("stop", _AN_END)),
        reliable=reliable,
        spot=spot,
        objective=_read_objective(root.section("objective"), STRATEGIES, DEFAULT_STRATEGY),
        scaling=_read_scaling(root.section("scaling")),
        training=_read_training(root.section("training"), reliable.instances + spot.max_instances),
        drain=root.get("drain", switch(), False),
        seed=root.get("seed", whole_number(0), 0),
        output=absolute_location(root.get("output", _PLACE, f"models/{name}"), folder),
        local=local,
        envs=_read_envs(root),
        checkpoint=_read_checkpoint(root, folder, modelled=local.progress == "modelled"),
        score=root.get("score", switch("on", "off"), True),
    )


def _read_command_job(root: Section, folder: Path, name: str) -> JobSpec:
    """Reads a program that checkpoints, on one spot machine after the other."""
    for key in command_section.NOT_ITS:
        if key in root:
            root.reject(key, "belongs to engine: agileml, and this is a job of engine: command")
    with root.section("resources") as resources:
        if "reliable" in resources:
            instead = (
                "objective.deadline, or strategy: on-demand, has machines on demand where they are needed"
            )
            resources.reject("reliable", f"a command needs no machine beside the one it runs on; {instead}")
        spot = _read_spot(resources.section("spot"), machines=1)
    scaling = _refuse_keys_but(root.section("scaling"), "sigma", "measure", "cores", "phi")
    command, output = command_section.read_command(root, folder), root.get("output", _PLACE, "")
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
            root.section("objective"), command_section.STRATEGIES, command_section.DEFAULT_STRATEGY
        ),
        scaling=replace(_read_scaling(scaling), phi=ScalingSpec().phi),
        training=TrainingSpec(staleness=0, partitions=1, shards=1),
        drain=root.get("drain", switch(), False),
        seed=root.get("seed", whole_number(0), 0),
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
    for key in section.key_names:
        if key not in kept:
            section.reject(key, f"means nothing to engine: command, expected {' or '.join(kept)}")
    return section


def _read_envs(root: Section) -> Mapping[str, str]:
    return own_keys(root.section("envs"), word("text", r"(?s).*"), VARIABLE, "the name of a variable")


def _read_name(root: Section, stem: str) -> str:
    expected = "a name of letters, digits, '.', '_' and '-', at most 64 of them"
    if "name" not in root and re.fullmatch(JOB_NAME, stem) is None:
        return root.need("name", word(expected), "", expected)
    return root.get("name", word(expected, JOB_NAME), stem)


def _read_app(root: Section, folder: Path) -> str:
    """Reads a class of an installed module, or of a file beside the job's."""
    written = root.need("app", word(_A_CLASS, _APP), "", _A_CLASS)
    place, _, name = written.rpartition(":")
    if not place.endswith(".py"):
        return written
    found = absolute_location(place, folder)
    if not Path(found).is_file():
        root.reject("app", f"found {written!r}, but there is no file {found}")
    return f"{found}:{name}"


def _read_data(root: Section, folder: Path) -> str:
    """Reads a file, a folder, a glob, or a URL of one."""
    written = root.need("data", word("a file or a URL"), "", "the training data, a file or a URL")
    place = absolute_location(written, folder)
    if written and "://" not in written and not (Path(place).exists() or glob(place)):
        root.reject("data", f"found {written!r}, but there is no file {place}")
    return place


def _read_prices(root: Section, folder: Path) -> str | None:
    """Reads the name of a source of prices, or a recorded file."""
    known = " or ".join(PRICE_SOURCES)
    written = root.get("prices", word(f"{known}, or a recorded file"), None)
    if written is None or written in PRICE_SOURCES:
        return written
    place = absolute_location(written, folder)
    if not Path(place).is_file():
        root.reject("prices", f"found {written!r}, expected {known}, and there is no file {place}")
    return place


def _read_column(node: yaml.Node) -> str | tuple[str, ...]:
    """Reads a column of the data, or a list of columns."""
    named = word("the name of a column, or its place from 0")
    if isinstance(node, yaml.SequenceNode):
        return list_of(named, "a list of columns")(node)
    return named(node)


def _read_stop(section: Section) -> StopSpec:
    with section:
        stop = StopSpec(
            section.get("clocks", whole_number(1, _MOST_CLOCKS), None),
            _read_seconds(section),
            _read_converged(section) if section.has("converged") else None,
        )
        section.need_any(("clocks", "seconds", "converged"), _AN_END)
    return stop


def _read_seconds(section: Section) -> Seconds | None:
    seconds = section.get("seconds", _at_most(_LONGEST_S), None)
    return None if seconds is None else Seconds(seconds)


def _read_converged(section: Section) -> Convergence:
    with section.section("converged") as converged:
        return Convergence(
            converged.need("metric", word("the name of a metric"), "", "the name of a metric, like rmse"),
            converged.need("delta", _above_zero, 1.0, "the least improvement, like 1e-3"),
        )


def _read_reliable(section: Section) -> ReliableSpec:
    with section:
        return ReliableSpec(
            section.get("instances", whole_number(1, _MOST_MACHINES), 1),
            section.need("instance_type", word("an instance type"), "", "an instance type like c5.xlarge"),
            section.get("cloud", one_of(*CLOUDS), None),
            section.get("region", word("a region"), None),
            section.get("zone", word("a zone"), None),
        )


def _read_spot(section: Section, machines: int | None = None) -> SpotSpec:
    """Reads spot machines. ``machines``: exactly how many the job needs; None: the file says how many it may
    have.
    """
    with section:
        for key in ("max_instances", "max_per_allocation") if machines is not None else ():
            if section.get(key, whole_number(0), machines) != machines:
                section.reject(key, f"expected {machines}: that is what a command runs on")
        together = section.get("max_per_allocation", whole_number(1, _MOST_MACHINES), None)
        most = machines or section.need(
            "max_instances",
            whole_number(0, _MOST_MACHINES),
            together or 0,
            "the most machines to hold, like 8",
        )
        if together is not None and together > most:
            message = f"found {together}, expected at most max_instances ({most})"
            section.reject("max_per_allocation", message)
        spot = SpotSpec(
            max_instances=most,
            max_per_allocation=together or max(1, most),
            cpus=section.get("cpus", _read_amount, None),
            memory_gib=section.get("memory", _read_amount, None),
            instance_types=section.get("instance_types", _word_list("instance types"), ()),
            clouds=section.get("clouds", list_of(one_of(*CLOUDS), "a list of clouds"), ()),
            regions=section.get("regions", _word_list("regions"), ()),
            zones=section.get("zones", _word_list("zones"), ()),
        )
        for key, named in (("clouds", spot.clouds), ("regions", spot.regions)):
            if machines is None and len(named) > 1:
                section.reject(key, "expected one: elastic training cannot span several; name one")
        return spot


def _read_objective(section: Section, strategies: tuple[str, ...], default: str) -> ObjectiveSpec:
    with section:
        return ObjectiveSpec(
            section.get("minimize", one_of("cost"), "cost"),
            section.get("strategy", one_of(*strategies), default),
            section.get("deadline", duration(positive=True), None),
            section.get("budget", _read_budget, None),
        )


def _read_scaling(section: Section) -> ScalingSpec:
    default = ScalingSpec()
    ratio = number("a number of at least 0", lambda value: value >= 0)
    with section:
        scaling = ScalingSpec(
            section.get("phi", number("a number above 0 and at most 1", lambda v: 0 < v <= 1), default.phi),
            section.get("sigma", duration(), default.sigma),
            section.get("lambda", duration(), default.lambda_),
            section.get("stage2_above", ratio, default.stage2_above),
            section.get("stage3_above", ratio, default.stage3_above),
            section.get("measure", switch(), default.measure),
        )
        if scaling.stage3_above < scaling.stage2_above:
            message = (
                f"found {scaling.stage3_above:g}, expected at least stage2_above ({scaling.stage2_above:g})"
            )
            section.reject("stage3_above", message)
    return scaling


def _read_training(section: Section, machines: int) -> TrainingSpec:
    partitions = max(1, int(machines * _PARTITIONS_PER_MACHINE))
    with section:
        return TrainingSpec(
            section.get("staleness", whole_number(0), 0),
            section.get("partitions", whole_number(1, _MOST_PARTS), partitions),
            section.get("shards", whole_number(1, _MOST_PARTS), max(1, _SHARDS_PER_WORKER * machines)),
            section.get("link_mbit_s", _above_zero, LINK_MBIT_S),
            section.get("stages", switch("measured", "by-ratio"), False),
            section.get("input_memory", _some_memory, None),
        )


def _read_checkpoint(root: Section, folder: Path, *, modelled: bool) -> ModelCheckpoints | None:
    if not root.has("checkpoint"):
        return None
    with root.section("checkpoint", "store and every") as section:
        store = section.need("store", _PLACE, "", "where checkpoints are kept, a folder or a URL")
        if store.startswith("memory://"):
            section.reject("store", "found memory://, expected a place that outlives a machine")
        clocks, seconds = section.need("every", _read_interval, (1, Seconds(0.0)), _AN_INTERVAL)
        resume = section.get("resume", switch(), False)
    if modelled:
        root.reject("checkpoint", "needs local: {progress: measured}: what is modelled has no state to keep")
    return ModelCheckpoints(absolute_location(store, folder) if store else "", clocks, seconds, resume)


def _read_local(section: Section) -> LocalSpec:
    default = LocalSpec()
    with section:
        return LocalSpec(
            section.get("throttle", switch("on", "off"), default.throttle),
            section.get("core_seconds_per_clock", _at_most(_MOST_WORK), default.core_seconds_per_clock),
            section.get("boot", duration(), default.boot),
            section.get("lease", _read_lease, default.lease),
            section.get("progress", one_of("measured", "modelled"), default.progress),
            own_keys(section.section("speeds"), _above_zero, INSTANCE_TYPE, "an instance type"),
        )


# ---- readers of this file's own kinds of value ---------------------------------------------------

_above_zero: Final = number("a number above 0", lambda value: value > 0)


def _at_most(most: float) -> Reader[float]:
    return number(f"a number above 0 and at most {most:g}", lambda value: 0 < value <= most)


_PLACE: Final = word("a folder or a URL")


def _read_interval(node: yaml.Node) -> tuple[int, Seconds]:
    """Reads a number of clocks, or a nominal time."""
    if isinstance(node, yaml.ScalarNode) and node.value.isdigit():
        return whole_number(1)(node), Seconds(0.0)
    try:
        return 0, duration(positive=True)(node)
    except Mismatch:
        raise Mismatch(node, f"found {describe_node(node)}, expected {_AN_INTERVAL}") from None


def _read_lease(node: yaml.Node) -> Seconds:
    """Reads a lease. It has to end: machines that nothing drives cost money."""
    span = duration()(node)
    if not _LEAST_LEASE_S <= span <= _LONGEST_LEASE_S:
        raise Mismatch(node, f"found {describe_node(node)}, expected a time from 1m to 30d")
    return span


def _word_list(plural: str) -> Reader[tuple[str, ...]]:
    return list_of(word(f"one of the {plural}"), f"a list of {plural}")


def _read_amount(node: yaml.Node) -> Amount:
    expected = "an amount like 4 (exactly) or 4+ (at least)"
    match = _AMOUNT.fullmatch(word(expected)(node))
    if match is None:
        raise Mismatch(node, f"found {describe_node(node)}, expected {expected}")
    return Amount(float(match[1]), or_more=match[2] == "+")


def _some_memory(node: yaml.Node) -> int:
    found = size()(node)
    if found == 0:
        raise Mismatch(node, f"found {describe_node(node)}, expected a size above zero")
    return found


def _read_budget(node: yaml.Node) -> MicroUsd:
    dollars = number("dollars above 0, like 5.00", lambda value: 0 < value < _LARGEST_BUDGET)(node)
    return to_micros(dollars)


def _read_argument(node: yaml.Node) -> Argument:
    """Reads an application's argument: a number, a word, true, false, or a list of those."""
    if isinstance(node, yaml.SequenceNode):
        return tuple(_read_plain(element) for element in node.value)
    return _read_plain(node)


def _read_plain(node: yaml.Node) -> str | int | float | bool:
    text = word("a number, a word, true, false, or a list of those", r"(?s).*")(node)
    quoted = isinstance(node, yaml.ScalarNode) and node.style is not None
    if not quoted and text in ("true", "false"):
        return text == "true"
    for kind in () if quoted else (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
