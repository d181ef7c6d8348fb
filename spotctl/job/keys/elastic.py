"""Defines the jobs of the elastic trainer: an application, its data, and machines of two tiers."""

from __future__ import annotations

from typing import Final

from pricing_data.model.units import Seconds
from spotctl.control.engine_traits import ELASTIC_TRAINING
from spotctl.job.keys import command
from spotctl.job.keys.kinds import (
    ABOVE_ZERO,
    AN_INTERVAL,
    APP,
    ARGUMENT,
    COLUMN,
    DATA,
    FRACTION,
    INTERVAL,
    LOCATION,
    STORE,
    absolute_location,
)
from spotctl.job.keys.shared import (
    CLOUDS,
    ELASTIC_LOCAL_KEYS,
    LOCAL_KEYS,
    MACHINE_KEYS,
    MACHINES_TEXT,
    MEASURE,
    MOST_MACHINES,
    OUTPUT_TEXT,
    PLAIN_KEYS,
    SIGMA,
    local_key,
    objective_key,
    read_spot,
)
from spotctl.job.spec import (
    DEFAULT_STRATEGY,
    LINK_MBIT_S,
    STRATEGIES,
    Convergence,
    JobSpec,
    ModelCheckpoints,
    ReliableSpec,
    ScalingSpec,
    SpotSpec,
    StopSpec,
    TrainingSpec,
)
from spotctl.schema.kinds import duration, number, one_of, size, switch, whole_number, word
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

_AN_END: Final = "clocks, seconds or converged, like {clocks: 40}"
_MOST_PARTS: Final = 1_000_000
"""Most parts of a model or an input; every process knows every part by name."""
_MOST_CLOCKS: Final = 999_999_999
_LONGEST_S: Final = 1e9
"""Thirty years."""
_PARTITIONS_PER_MACHINE: Final = 0.5
_SHARDS_PER_WORKER: Final = 4
_DEFAULT: Final = ScalingSpec()


def _read_elastic_job(section: Section, values: Values) -> JobSpec:
    """Makes a job: defaults that depend on other keys, and what several keys may not say together."""
    resources, training = values.pop("resources"), values.pop("training")
    machines = resources["reliable"].instances + resources["spot"].max_instances
    parts = {
        "partitions": max(1, int(machines * _PARTITIONS_PER_MACHINE)),
        "shards": max(1, _SHARDS_PER_WORKER * machines),
    }
    if values["checkpoint"] is not None and values["local"].progress == "modelled":
        message = "needs local: {progress: measured}: what is modelled has no state to keep"
        section.reject("checkpoint", message)
    if values["output"] is None:
        values["output"] = absolute_location(f"models/{values['name']}", section.document.folder)
    cut = {key: value for key, value in training.items() if value is not None}
    return JobSpec(engine=ELASTIC_TRAINING, training=TrainingSpec(**{**parts, **cut}), **resources, **values)


def _read_spot(section: Section, values: Values) -> SpotSpec:
    spot = read_spot(section, values)
    for key, named in (("clouds", spot.clouds), ("regions", spot.regions)):
        if len(named) > 1:
            section.reject(key, "expected one: elastic training cannot span several; name one")
    return spot


def _read_scaling(section: Section, values: Values) -> ScalingSpec:
    scaling = ScalingSpec(**values)
    if scaling.stage3_above < scaling.stage2_above:
        least = f"expected at least stage2_above ({scaling.stage2_above:g})"
        section.reject("stage3_above", f"found {scaling.stage3_above:g}, {least}")
    return scaling


def _read_checkpoint(_: Section, values: Values) -> ModelCheckpoints:
    clocks, seconds = values["every"]
    return ModelCheckpoints(values["store"], clocks, seconds, values["resume"])


# ---- sections -----------------------------------------------------------------------------------

RELIABLE: Final = KeyTable(
    make_from(ReliableSpec),
    (
        Key(
            "instance_type",
            word("an instance type"),
            "such as `m4.xlarge`",
            "",
            needs="an instance type like c5.xlarge",
        ),
        Key("instances", whole_number(1, MOST_MACHINES), "how many", 1),
        Key("cloud", one_of(*CLOUDS), "their cloud", otherwise="where the spot machines are"),
        Key("region", word("a region"), "their region", otherwise="where the spot machines are"),
        Key("zone", word("a zone"), "their zone", otherwise="where the spot machines are"),
    ),
)
SPOT: Final = KeyTable(
    _read_spot,
    (
        Key(
            "max_instances",
            whole_number(0, MOST_MACHINES),
            "the most machines at once; 1 for a command. Where seconds are billed, `auto` may run "
            "successors beside them for a minute or two",
            needs="the most machines to hold, like 8",
        ),
        Key(
            "max_per_allocation",
            whole_number(1, MOST_MACHINES),
            "machines of one request: they share a bid, and are evicted together",
            otherwise="`max_instances`",
        ),
        *MACHINE_KEYS,
    ),
)
SCALING: Final = KeyTable(
    _read_scaling,
    (
        Key(
            "phi",
            FRACTION,
            "share of ideal speed that each doubling of machines keeps; for a command, [see "
            "below](#scaling-of-a-command)",
            _DEFAULT.phi,
        ),
        SIGMA,
        Key(
            "lambda",
            duration(),
            "time lost to an eviction; elastic trainer only",
            _DEFAULT.lambda_,
            field="lambda_",
        ),
        Key(
            "stage2_above",
            number(least=0),
            "spot machines per reliable one above which stage 2 begins; elastic trainer only",
            _DEFAULT.stage2_above,
        ),
        Key(
            "stage3_above",
            number(least=0),
            "the same for stage 3, at least `stage2_above`",
            _DEFAULT.stage3_above,
        ),
        MEASURE,
    ),
)
TRAINING: Final = KeyTable(
    keep_values,
    (
        Key(
            "staleness",
            whole_number(0),
            "clocks that workers may be apart; at 0 the model is the same bit for bit, whoever joined or "
            "left",
            0,
        ),
        Key(
            "partitions",
            whole_number(1, _MOST_PARTS),
            "into how many parts the model is cut",
            otherwise="by `max_instances`",
        ),
        Key(
            "shards",
            whole_number(1, _MOST_PARTS),
            "into how many parts the input is cut",
            otherwise="by `max_instances`",
        ),
        Key("link_mbit_s", ABOVE_ZERO, "what one machine can send, in megabits a second", LINK_MBIT_S),
        Key(
            "stages",
            switch("measured", "by-ratio"),
            "or `measured`: choose stages by the measured cost of clocks",
            False,
            field="measured_stages",
        ),
        Key(
            "input_memory",
            size(positive=True),
            "how much of the input a machine keeps in memory",
            otherwise="all that is read",
            field="input_bytes",
        ),
    ),
)
CHECKPOINT: Final = KeyTable(
    _read_checkpoint,
    (
        Key(
            "store",
            STORE,
            "a folder or a URL that outlives the machines",
            "",
            needs="where checkpoints are kept, a folder or a URL",
        ),
        Key(
            "every",
            INTERVAL,
            "so many clocks (`20`), or a time of the market's (`10m`)",
            (1, Seconds(0.0)),
            needs=AN_INTERVAL,
        ),
        Key("resume", switch(), "begin with the newest checkpoint of an unfinished run", False),
    ),
    expected="store and every",
)
_CONVERGED: Final = KeyTable(
    make_from(Convergence),
    (
        Key(
            "metric",
            word("the name of a metric"),
            "such as `rmse`",
            "",
            needs="the name of a metric, like rmse",
        ),
        Key("delta", ABOVE_ZERO, "the least improvement", 1.0, needs="the least improvement, like 1e-3"),
    ),
)
_STOP: Final = KeyTable(
    make_from(StopSpec),
    (
        Key("clocks", whole_number(1, _MOST_CLOCKS), "so many clocks: a clock is a pass over the input"),
        Key("seconds", number(above=0, most=_LONGEST_S), "of the market's time"),
        Key("converged", _CONVERGED, "two reports of a metric in a row differ by no more than this"),
    ),
    any_of=_AN_END,
    expected=_AN_END,
)
_RESOURCES: Final = KeyTable(
    keep_values,
    (
        Key(
            "reliable",
            RELIABLE,
            "machines on demand that keep the model",
            FROM_EMPTY,
            needs="instances and instance_type",
        ),
        Key("spot", SPOT, "machines that may be taken away", FROM_EMPTY, needs="at least max_instances"),
    ),
    expected="reliable and spot machines",
)

ELASTIC_JOB: Final = KeyTable(
    _read_elastic_job,
    (
        Key(
            "app",
            APP,
            "`module:Class` or `file.py:Class`; [your own](applications.md) or one that comes along",
            "",
            needs=APP.expected,
        ),
        Key(
            "args",
            mapping_of(ARGUMENT, r"[A-Za-z_][\w]*", "the name of a parameter"),
            "what the application is made with",
            {},
            otherwise="none",
        ),
        Key(
            "data",
            DATA,
            "a file, a folder, a glob, or a URL of one",
            "",
            needs="the training data, a file or a URL",
        ),
        Key(
            "columns",
            mapping_of(COLUMN, r"[^\n]*[^\s][^\n]*", "the name of a column"),
            "which column of the data is which: `{user: userId, item: movieId, value: rating}`, the "
            "application's names first; `others: [x1, x2]` for an application that takes any; [what each "
            "reads](applications.md#what-each-reads)",
            {},
            otherwise="recognised",
        ),
        Key(
            "stop",
            _STOP,
            "`clocks`, `seconds`, `converged: {metric: rmse, delta: 1e-3}`: whichever comes first",
            FROM_EMPTY,
            needs=_AN_END,
        ),
        Key("resources", _RESOURCES, MACHINES_TEXT, FROM_EMPTY, needs="reliable and spot machines"),
        objective_key(STRATEGIES, DEFAULT_STRATEGY),
        Key(
            "scaling",
            SCALING,
            "how much faster the job gets with machines, and what changes cost",
            FROM_EMPTY,
        ),
        Key(
            "training", TRAINING, "how model and input are cut, and how far apart workers may be", FROM_EMPTY
        ),
        Key("output", LOCATION, OUTPUT_TEXT, otherwise="`models/NAME`; of a command nothing"),
        *PLAIN_KEYS,
        local_key((*LOCAL_KEYS, *ELASTIC_LOCAL_KEYS), {}),
        Key("checkpoint", CHECKPOINT, "where and when progress is saved"),
        Key(
            "score",
            switch("on", "off"),
            "after the run, compute the model's objective and a trusted solver's, within a tenth of the "
            "training's real time (10 to 60 s); `off` ends at once",
            True,
        ),
    ),
    refused=dict.fromkeys(
        command.OWN_KEYS, "belongs to a command, and this job has an app: leave one of them out"
    ),
)
