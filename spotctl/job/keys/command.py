"""Defines the jobs of ``engine: command``: a program, its files, checkpoints and work.

Names are SkyPilot's where it has the concept. Where they promise more than this version does (several nodes,
mounts anywhere), the file is refused and the message says what it does instead.
"""

from __future__ import annotations

from functools import partial
from typing import Final

import yaml

from spotctl.control.engine_traits import CHECKPOINTING_PROGRAM
from spotctl.job.keys.kinds import ABOVE_ZERO, FOLDER, FRACTION, LOCATION, SECRETS, SOME_TIME, SOURCE, STORE
from spotctl.job.keys.shared import (
    LOCAL_KEYS,
    MACHINE_KEYS,
    MACHINES_TEXT,
    MEASURE,
    OUTPUT_TEXT,
    PLAIN_KEYS,
    SIGMA,
    local_key,
    objective_key,
    read_spot,
)
from spotctl.job.spec import (
    CommandCheckpoints,
    CommandSpec,
    CoreGains,
    JobSpec,
    ScalingSpec,
    StopSpec,
    TrainingSpec,
    WorkSpec,
)
from spotctl.schema.kinds import (
    Place,
    ValueKind,
    any_text,
    duration,
    size,
    switch,
    whole_number,
    word,
    word_or,
)
from spotctl.schema.table import (
    FROM_EMPTY,
    Key,
    KeyTable,
    Section,
    Values,
    keep_values,
    make_from,
    mapping_of,
)

_DEFAULT_STRATEGY: Final = "proteus"
"""A program runs on one machine at a time, so there is no footprint to keep up."""
_STRATEGIES: Final = (_DEFAULT_STRATEGY, "on-demand", "uniform-progress", "greedy")
"""The other strategies are ways to run an elastic trainer."""
_NOT_ITS: Final = ("app", "args", "data", "columns", "stop", "training", "score")
"""Keys of the elastic trainer's jobs that a command does not have."""
_INSIDE: Final = r"(?!.*(^|/)\.\.(/|$))[^/~\s][^\n]*"
_SHELL: Final = any_text("a line of shell", blank=False)
_UNSAID: Final = CommandCheckpoints()


def _read_command_job(_: Section, values: Values) -> JobSpec:
    """Makes a program that checkpoints, on one spot machine after the other."""
    scaling, gains = values.pop("scaling")
    del values["num_nodes"]  # which is 1
    command = CommandSpec(gains=gains, **{name: values.pop(name) for name in _PROGRAM_FIELDS})
    return JobSpec(
        engine=CHECKPOINTING_PROGRAM,
        app="",
        args={},
        data="",
        stop=StopSpec(None if command.work is None else command.work.steps),
        reliable=None,
        spot=values.pop("resources")["spot"],
        scaling=scaling,
        training=TrainingSpec(staleness=0, partitions=1, shards=1),
        command=command,
        **values,
    )


def _read_scaling(section: Section, values: Values) -> tuple[ScalingSpec, CoreGains]:
    gains = CoreGains(values["cores"], values["phi"])
    if gains.cores is not None and gains.phi is not None:
        section.reject("phi", "found beside cores; expected one: it uses so many cores, or gains by phi")
        gains = CoreGains(gains.cores)
    return ScalingSpec(sigma=values["sigma"], measure=values["measure"]), gains


def _refuse_keys(names: tuple[str, ...], kept: tuple[Key, ...]) -> dict[str, str]:
    """Returns what to say of keys that only the elastic trainer has; a command has those of ``kept``."""
    expected = " or ".join(key.name for key in kept)
    return dict.fromkeys(names, f"means nothing to engine: command, expected {expected}")


GAIN_KEYS: Final = (
    Key(
        "cores",
        whole_number(1),
        "how many cores the program uses, whatever the machine has: 1 is a single thread",
        otherwise="none",
    ),
    Key(
        "phi",
        FRACTION,
        "share of ideal speed that each doubling of cores keeps: 0.9 makes it 1.8 times as fast",
        otherwise="none",
    ),
)
_SCALING_KEYS: Final = (SIGMA, MEASURE, *GAIN_KEYS)
_SCALING: Final = KeyTable(
    _read_scaling, _SCALING_KEYS, _refuse_keys(("lambda", "stage2_above", "stage3_above"), _SCALING_KEYS)
)
_ONE: Final = whole_number(1, 1, "that is what a command runs on")
_SPOT: Final = KeyTable(
    read_spot,
    (
        Key("max_instances", _ONE, "machines at once", 1),
        Key("max_per_allocation", _ONE, "machines of one request", 1),
        *MACHINE_KEYS,
    ),
)
_RESOURCES: Final = KeyTable(
    keep_values,
    (Key("spot", _SPOT, "machines that may be taken away", FROM_EMPTY),),
    refused={
        "reliable": "a command needs no machine beside the one it runs on; objective.deadline, or strategy: "
        "on-demand, has machines on demand where they are needed"
    },
)
CHECKPOINT: Final = KeyTable(
    make_from(partial(CommandCheckpoints, keeps=True)),
    (
        Key("store", STORE, "a folder or a URL", otherwise="the run's record"),
        Key("every", SOME_TIME, "how often the program writes one", _UNSAID.every),
        Key(
            "restart",
            duration(),
            "from the start of another machine's program to its first new step",
            _UNSAID.restart,
        ),
        Key("on_warning", switch(), "whether it writes one on SIGTERM", _UNSAID.on_warning),
        Key(
            "size",
            size(),
            "how large one is, as far as is known beforehand",
            0,
            otherwise="0",
            field="size_bytes",
        ),
        Key(
            "link_mbit_s",
            ABOVE_ZERO,
            "how fast one gets to another region, in megabits a second",
            _UNSAID.link_mbit_s,
        ),
    ),
    expected="{every: 10m}",
)
_WORD: Final = switch("on", "off")


def _read_word(node: yaml.Node, place: Place) -> CommandCheckpoints:
    """Reads whether the program writes checkpoints at all."""
    keeps = _WORD.read(node, place)
    return CommandCheckpoints(keeps=keeps, on_warning=keeps)


_ON_OR_OFF: Final = ValueKind(_read_word, _WORD.schema, _WORD.expected)
_WORK: Final = KeyTable(
    make_from(WorkSpec),
    (
        Key(
            "steps",
            whole_number(1),
            "as the program counts them",
            1,
            needs="how many steps the program takes, as it counts them",
        ),
        Key("takes", SOME_TIME, "how long they take", _UNSAID.every, needs="how long that takes, like 3h"),
        Key(
            "on",
            word("an instance type"),
            "on a machine of this type",
            otherwise="the one that the job may use",
        ),
    ),
)
_PROGRAM: Final = (
    Key("run", _SHELL, "the program, a line of shell", "", needs="the command to run, like python train.py"),
    Key("setup", _SHELL, "a line of shell that runs once on every machine", "", otherwise="none"),
    Key("workdir", FOLDER, "a folder that is copied to the machine", otherwise="an empty folder"),
    Key(
        "file_mounts",
        mapping_of(
            SOURCE,
            _INSIDE,
            "a path below the working folder, like data/train.csv: machines of this computer share its disk",
        ),
        "files to provide: from a path below the working folder to the path or URL of its source",
        {},
        otherwise="none",
    ),
    Key("secrets", SECRETS, "names of variables of your environment", (), otherwise="none"),
    Key(
        "work",
        _WORK,
        "how much work the program is: `{steps: 5000, takes: 3h, on: c4.xlarge}`; plans, deadlines and "
        "savings rest on it",
        otherwise="nobody knows",
    ),
    Key("retries", whole_number(0), "how often a program that fails is tried again", 1),
    Key(
        "checkpoint",
        word_or(_ON_OR_OFF, CHECKPOINT),
        "where and when progress is saved",
        _UNSAID,
        otherwise="taken to be written",
    ),
)
_PROGRAM_FIELDS: Final = tuple(key.name for key in _PROGRAM)
_NODES: Final = whole_number(1, 1, "a command job of this version runs on one machine at a time")
OWN_KEYS: Final = (*(name for name in _PROGRAM_FIELDS if name != "checkpoint"), "num_nodes")
"""Keys of the outermost mapping that a job of another engine does not have."""

COMMAND_JOB: Final = KeyTable(
    _read_command_job,
    (
        *_PROGRAM,
        Key("num_nodes", _NODES, "only 1 so far", 1),
        Key("resources", _RESOURCES, MACHINES_TEXT, FROM_EMPTY),
        objective_key(_STRATEGIES, _DEFAULT_STRATEGY),
        Key(
            "scaling",
            _SCALING,
            "how much faster the job gets with machines, and what changes cost",
            FROM_EMPTY,
        ),
        Key("output", LOCATION, OUTPUT_TEXT, "", otherwise="nothing"),
        *PLAIN_KEYS,
        local_key(LOCAL_KEYS, _refuse_keys(("throttle", "core_seconds_per_clock"), LOCAL_KEYS)),
    ),
    refused=dict.fromkeys(_NOT_ITS, "belongs to engine: agileml, and this is a job of engine: command"),
)
