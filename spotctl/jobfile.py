"""The job file: the one place that reads and checks it.

``load_job`` returns a ``JobSpec`` in which every default is filled in and every path is absolute, or
raises JobFileError with all problems of the file. The order of the functions is the order of the file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, TypeVar

import yaml

from pricing_data.units import MicroUsd, Seconds, micros
from spotctl.config import (
    DEFAULT_STRATEGY,
    STRATEGIES,
    Amount,
    Argument,
    Converged,
    JobSpec,
    Local,
    Objective,
    Reliable,
    Scaling,
    Spot,
    Stop,
    Training,
)
from spotctl.yamlfile import (
    Mismatch,
    Reader,
    Section,
    duration,
    list_of,
    number,
    one_of,
    open_document,
    read_text,
    shown,
    switch,
    whole,
    word,
)

T = TypeVar("T")

CLOUDS: Final = ("aws", "gcp", "azure")
JOB_NAME: Final = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
"""A run's folder carries the name, so it must be one everywhere."""
_OF_ENGINE_COMMAND: Final = ("secrets", "workdir", "file_mounts", "setup", "run", "num_nodes")
_A_CLASS: Final = "a class like agileml.apps.mf:MatrixFactorization"
_AN_END: Final = "clocks, seconds or converged, like {clocks: 40}"
_APP: Final = r"[A-Za-z_][\w.]*:[A-Za-z_]\w*"
_VARIABLE: Final = r"[A-Za-z_][A-Za-z0-9_]*"
_AMOUNT: Final = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)(\+?)")
_LARGEST_BUDGET: Final = 1e9
_PARTITIONS_PER_MACHINE: Final = 0.5
_SHARDS_PER_WORKER: Final = 4


def load_job(path: Path) -> JobSpec:
    """Read and check a job file. Raises JobFileError with every problem in it."""
    return parse_job(read_text(path), str(path), path.resolve().parent)


def parse_job(text: str, file: str, folder: Path) -> JobSpec:
    """``load_job`` for text already read: ``file`` is named in messages, paths are relative to ``folder``."""
    document, root = open_document(text, file)
    with root:
        engine = _engine(root)
        name = _name(root, Path(file).stem)
        with root.section("resources", "reliable and spot machines") as resources:
            reliable = _reliable(resources.section("reliable", "instances and instance_type"))
            spot = _spot(resources.section("spot", "at least max_instances"))
        spec = JobSpec(
            name=name,
            engine=engine,
            app=root.need("app", word(_A_CLASS, _APP), "", _A_CLASS),
            args=_own_keys(root.section("args"), _argument, r"[A-Za-z_]\w*", "the name of a parameter"),
            data=_data(root, folder),
            stop=_stop(root.section("stop", _AN_END)),
            reliable=reliable,
            spot=spot,
            objective=_objective(root.section("objective")),
            scaling=_scaling(root.section("scaling")),
            training=_training(root.section("training"), reliable.instances + spot.max_instances),
            drain=root.get("drain", switch(), False),
            seed=root.get("seed", whole(0), 0),
            output=_location(root.get("output", word("a folder or a URL"), f"models/{name}"), folder),
            local=_local(root.section("local")),
            envs=_own_keys(
                root.section("envs"), word("text", r"(?s).*"), _VARIABLE, "the name of a variable"
            ),
        )
    document.raise_if_wrong()
    return spec


def _engine(root: Section) -> str:
    engine = root.get("engine", one_of("agileml", "command"), "agileml")
    if engine == "command":
        root.reject("engine", "found 'command', which is not supported in this version; expected agileml")
    for key in _OF_ENGINE_COMMAND:
        if key in root:
            root.reject(key, "belongs to engine: command, which is not supported in this version")
    return engine


def _name(root: Section, stem: str) -> str:
    expected = "a name of letters, digits, '.', '_' and '-', at most 64 of them"
    if "name" not in root and re.fullmatch(JOB_NAME, stem) is None:
        return root.need("name", word(expected), "", expected)
    return root.get("name", word(expected, JOB_NAME), stem)


def _location(written: str, folder: Path) -> str:
    return written if "://" in written else str((folder / Path(written).expanduser()).resolve())


def _data(root: Section, folder: Path) -> str:
    written = root.need("data", word("a file or a URL"), "", "the training data, a file or a URL")
    location = _location(written, folder)
    if written and "://" not in written and not Path(location).is_file():
        root.reject("data", f"found {written!r}, but there is no file {location}")
    return location


def _stop(section: Section) -> Stop:
    with section:
        stop = Stop(
            section.get("clocks", whole(1), None),
            _seconds(section),
            _converged(section) if "converged" in section else None,
        )
        section.need_any(("clocks", "seconds", "converged"), _AN_END)
    return stop


def _seconds(section: Section) -> Seconds | None:
    seconds = section.get("seconds", _above_zero, None)
    return None if seconds is None else Seconds(seconds)


def _converged(section: Section) -> Converged:
    with section.section("converged") as converged:
        return Converged(
            converged.need("metric", word("the name of a metric"), "", "the name of a metric, like rmse"),
            converged.need("delta", _above_zero, 1.0, "the least improvement, like 1e-3"),
        )


def _reliable(section: Section) -> Reliable:
    with section:
        return Reliable(
            section.get("instances", whole(1), 1),
            section.need("instance_type", word("an instance type"), "", "an instance type like c5.xlarge"),
            section.get("cloud", one_of(*CLOUDS), None),
            section.get("region", word("a region"), None),
            section.get("zone", word("a zone"), None),
        )


def _spot(section: Section) -> Spot:
    with section:
        together = section.get("max_per_allocation", whole(1), None)
        most = section.need("max_instances", whole(0), together or 0, "the most machines to hold, like 8")
        if together is not None and together > most:
            message = f"found {together}, expected at most max_instances ({most})"
            section.reject("max_per_allocation", message)
        return Spot(
            max_instances=most,
            max_per_allocation=together or max(1, most),
            cpus=section.get("cpus", _amount, None),
            memory_gib=section.get("memory", _amount, None),
            instance_types=section.get("instance_types", _words("instance types"), ()),
            clouds=section.get("clouds", list_of(one_of(*CLOUDS), "a list of clouds"), ()),
            regions=section.get("regions", _words("regions"), ()),
            zones=section.get("zones", _words("zones"), ()),
        )


def _objective(section: Section) -> Objective:
    with section:
        return Objective(
            section.get("minimize", one_of("cost"), "cost"),
            section.get("strategy", one_of(*STRATEGIES), DEFAULT_STRATEGY),
            section.get("deadline", duration(positive=True), None),
            section.get("budget", _budget, None),
        )


def _scaling(section: Section) -> Scaling:
    default = Scaling()
    ratio = number("a number of at least 0", lambda value: value >= 0)
    with section:
        scaling = Scaling(
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


def _training(section: Section, machines: int) -> Training:
    partitions = max(1, int(machines * _PARTITIONS_PER_MACHINE))
    with section:
        return Training(
            section.get("staleness", whole(0), 0),
            section.get("partitions", whole(1), partitions),
            section.get("shards", whole(1), max(1, _SHARDS_PER_WORKER * machines)),
        )


def _local(section: Section) -> Local:
    default = Local()
    with section:
        return Local(
            section.get("throttle", switch("on", "off"), default.throttle),
            section.get("core_seconds_per_clock", _above_zero, default.core_seconds_per_clock),
            section.get("boot", duration(), default.boot),
            section.get("progress", one_of("measured", "modelled"), default.progress),
        )


def _own_keys(section: Section, read: Reader[T], pattern: str, expected: str) -> Mapping[str, T]:
    """A mapping whose keys are the user's own; ``expected`` says what they look like."""
    with section:
        for key in section.names:
            if re.fullmatch(pattern, key) is None:
                section.reject(key, f"found the key {key!r}, expected {expected}")
        values = {key: section.get(key, read, None) for key in section.names}
    return {key: value for key, value in values.items() if value is not None}


# ---- readers of this file's own kinds of value ---------------------------------------------------

_above_zero: Final = number("a number above 0", lambda value: value > 0)


def _words(plural: str) -> Reader[tuple[str, ...]]:
    return list_of(word(f"one of the {plural}"), f"a list of {plural}")


def _amount(node: yaml.Node) -> Amount:
    expected = "an amount like 4 (exactly) or 4+ (at least)"
    match = _AMOUNT.fullmatch(word(expected)(node))
    if match is None:
        raise Mismatch(node, f"found {shown(node)}, expected {expected}")
    return Amount(float(match[1]), or_more=match[2] == "+")


def _budget(node: yaml.Node) -> MicroUsd:
    dollars = number("dollars above 0, like 5.00", lambda value: 0 < value < _LARGEST_BUDGET)(node)
    return micros(dollars)


def _argument(node: yaml.Node) -> Argument:
    """What an application may be given: numbers, words, true, false, or a list of those."""
    if isinstance(node, yaml.SequenceNode):
        return tuple(_plain(element) for element in node.value)
    return _plain(node)


def _plain(node: yaml.Node) -> str | int | float | bool:
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
