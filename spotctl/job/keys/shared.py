"""Defines the keys of every job: machines, objective, scaling, and how this computer plays machines."""

from __future__ import annotations

from typing import Final

from spotctl.job.choices import CloudName
from spotctl.job.keys.kinds import (
    ABOVE_ZERO,
    AMOUNT,
    BUDGET,
    INSTANCE_TYPE,
    NAME,
    PRICES,
    SOME_TIME,
    VARIABLE,
    word_list,
)
from spotctl.job.spec import LocalSpec, ObjectiveSpec, ScalingSpec, SpotSpec
from spotctl.schema.kinds import any_text, duration, list_of, number, one_of, switch, whole_number
from spotctl.schema.table import FROM_EMPTY, Key, KeyTable, Section, Values, make_from, mapping_of

CLOUDS: Final = tuple(cloud.value for cloud in CloudName)
MOST_MACHINES: Final = 10_000
"""Most machines at once; a plan weighs every number of them. Larger numbers are typing errors."""
_MOST_WORK: Final = 1e12
"""Most work of one clock, in core-seconds: that of thirty thousand cores for a year."""
_SCALING: Final = ScalingSpec()
_LOCAL: Final = LocalSpec()

NAME_KEY: Final = Key(
    "name",
    NAME,
    "letters, digits, `.`, `_`, `-`; one run of a name goes on at a time",
    otherwise="the file's",
)


def engine_key(engines: tuple[str, ...]) -> Key:
    """Returns the key that names the engine, out of those that are registered."""
    return Key("engine", one_of(*engines), "`agileml` or `command`", otherwise="by `app` or `run`")


# ---- machines -----------------------------------------------------------------------------------

MACHINES_TEXT: Final = "which machines; a command may leave it out"
MACHINE_KEYS: Final = (
    Key(
        "instance_types",
        word_list("instance types"),
        "a list of types, such as `c4.xlarge`",
        (),
        otherwise="all",
    ),
    Key("clouds", list_of(one_of(*CLOUDS), "a list of clouds"), "a list of clouds", (), otherwise="all"),
    Key(
        "regions",
        word_list("regions"),
        "a list; elastic training stays within one cloud and region",
        (),
        otherwise="all",
    ),
    Key("zones", word_list("zones"), "a list of zones", (), otherwise="all"),
    Key("cpus", AMOUNT, "cores of one machine: `4` exactly, `4+` at least", otherwise="any"),
    Key("memory", AMOUNT, "GiB of memory of one machine, likewise", otherwise="any", field="memory_gib"),
)
"""What a machine has to be; a job allows all that it does not name."""


# ---- what is wanted -----------------------------------------------------------------------------


def objective_keys(strategies: tuple[str, ...], default: str) -> tuple[Key, ...]:
    """Returns the keys of an objective, with the strategies that an engine has."""
    return (
        Key(
            "deadline",
            SOME_TIME,
            "from the start of the job; a launch promises it or is refused (exit 6)",
            otherwise="none",
        ),
        Key(
            "budget",
            BUDGET,
            "dollars; promised too beside a deadline, else the job ends once that much is owed (exit 6), "
            "hours already begun included",
            otherwise="none",
        ),
        Key(
            "strategy",
            one_of(*strategies),
            "`auto`: what makes the rest of the job cheapest ([decision "
            "36](decisions/0036-the-default-decides-by-the-cost-of-the-work-left.md)); or `proteus`, "
            "`standard-agileml`, `failover-agileml`, `tierml`, `on-demand`; with a deadline also "
            "`uniform-progress`, `greedy`. A command has `proteus`, its default, `on-demand` and the last "
            "two; in a queue `auto` decides as `proteus` does",
            default,
        ),
        Key("minimize", one_of("cost"), "the only objective so far", "cost"),
    )


def objective_key(strategies: tuple[str, ...], default: str) -> Key:
    """Returns the key of what is wanted of the machines."""
    table = KeyTable(make_from(ObjectiveSpec), objective_keys(strategies, default))
    return Key("objective", table, "what to minimize, how, and within which limits", FROM_EMPTY)


SIGMA: Final = Key("sigma", duration(), "time lost when machines join or leave", _SCALING.sigma)
MEASURE: Final = Key(
    "measure",
    switch(),
    "let the job's own progress correct these values, and each type's speed",
    _SCALING.measure,
)

# ---- this computer ------------------------------------------------------------------------------

LOCAL_KEYS: Final = (
    Key("boot", duration(), "from a request to a running machine", _LOCAL.boot),
    Key(
        "lease",
        duration(least="1m", most="30d"),
        "market time, `1m` to `30d`, after which machines end themselves when nothing drives the run, as "
        "after a crash of spotctl. At the usual speed of 600 twelve hours pass in 72 seconds: to launch "
        "again later, write more, or keep checkpoints",
        _LOCAL.lease,
    ),
    Key(
        "progress",
        one_of("measured", "modelled"),
        "or `modelled`: processes run, but their progress is computed",
        _LOCAL.progress,
    ),
    Key(
        "speeds",
        mapping_of(ABOVE_ZERO, INSTANCE_TYPE, "an instance type"),
        "by instance type, speed as a multiple of what its cores say; used where progress is modelled",
        {},
        otherwise="1 each",
    ),
)
ELASTIC_LOCAL_KEYS: Final = (
    Key(
        "throttle",
        switch("on", "off"),
        "`off` lets machines compute as fast as this computer can; elastic trainer only",
        _LOCAL.throttle,
    ),
    Key(
        "core_seconds_per_clock",
        number(above=0, most=_MOST_WORK),
        "work of one clock, on the market's cores: plans, deadlines, bills and savings rest on it. `plan "
        "--measure` measures it; 600 where the application cannot estimate it. A command has `work` instead",
        otherwise="estimated",
    ),
)


def local_key(keys: tuple[Key, ...], refused: dict[str, str]) -> Key:
    """Returns the key of how this computer plays machines."""
    table = KeyTable(make_from(LocalSpec), keys, refused)
    return Key("local", table, "how this computer plays machines", FROM_EMPTY)


# ---- the rest -----------------------------------------------------------------------------------

OUTPUT_TEXT: Final = (
    "a folder or a URL for the model or the last checkpoint; each run has a folder in it, and `latest` "
    "points to the newest"
)
PLAIN_KEYS: Final = (
    Key(
        "envs",
        mapping_of(any_text("text"), VARIABLE, "the name of a variable"),
        "variables for the job's processes",
        {},
        otherwise="none",
    ),
    Key("seed", whole_number(0), "seed of everything random", 0),
    Key(
        "drain",
        switch(),
        "with hourly billing, keep paid machines until their hour ends: an eviction refunds it",
        False,
    ),
    Key(
        "prices",
        PRICES,
        "where prices come from: `store`, which `spotctl prices fetch` fills; a recorded file; or `bundled`, "
        "a generated market. Without the key a backtest takes the store where that has a month of prices; "
        "`--trace` overrides it. A run keeps the prices it began with",
        otherwise="`bundled`",
    ),
)


def read_spot(section: Section, values: Values) -> SpotSpec:
    """Makes the spot machines of a job. A request is for all of them, unless the file says less."""
    together = values["max_per_allocation"]
    most = (together or 0) if values["max_instances"] is None else values["max_instances"]
    if together is not None and together > most:
        section.reject("max_per_allocation", f"found {together}, expected at most max_instances ({most})")
    return SpotSpec(**{**values, "max_instances": most, "max_per_allocation": together or max(1, most)})
