"""Lists every policy by name, with what it does in one line and its parameters.

    MENU         the policies there are
    make_policy  makes a policy from a name and parameters

Parameters are words and numbers, as a file gives them; ``agnostic`` is one of all policies: the same one,
blind to what differs between types of workers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from bidbrain.cluster.policies.base import FillUnused, Policy
from bidbrain.cluster.policies.baselines import Agnostic, AlloX, Isolated, Packing
from bidbrain.cluster.policies.cost import MakespanWithin, MaxThroughput, PerDollar, PerJob, Total
from bidbrain.cluster.policies.fairness import FinishTimeFairness, LeastAttainedService, Makespan
from bidbrain.cluster.policies.ordered import Fifo, ShortestJobFirst
from bidbrain.cluster.policies.water_filling import Hierarchical, Inside, WaterFilling

Parameters: TypeAlias = Mapping[str, float | str | bool]
DEFAULT: Final = "min-cost"
AGNOSTIC: Final = "agnostic"


class BadParameter(ValueError):
    """Reports a parameter that a policy does not take; the message says what was expected."""


@dataclass(frozen=True, slots=True)
class PolicyEntry:
    """Describes one policy of the menu. ``takes``: its parameters, with what each means."""

    name: str
    does: str
    make: Callable[[Parameters], Policy]
    takes: Mapping[str, str]


def make_policy(name: str, parameters: Parameters) -> Policy:
    """Returns the policy ``name``. Raises BadParameter, and KeyError for a name that is not on the menu."""
    offered = MENU[name]
    unknown = sorted(set(parameters) - set(offered.takes) - {AGNOSTIC})
    if unknown:
        known = ", ".join(sorted({*offered.takes, AGNOSTIC}))
        raise BadParameter(f"{name} does not take {', '.join(unknown)}, expected any of {known}")
    blind = parameters.get(AGNOSTIC, False)
    if not isinstance(blind, bool):
        raise BadParameter(f"{AGNOSTIC}: found {blind!r}, expected true or false")
    made = offered.make(parameters)
    return Agnostic(made, 0) if blind else made


def _read_number(parameters: Parameters, name: str, default: float | None, most: float) -> float:
    value = parameters.get(name, default)
    if isinstance(value, (bool, str)) or value is None or not 0 < value <= most:
        limit = "" if np.isinf(most) else f" and at most {most:g}"
        raise BadParameter(f"{name}: found {value!r}, expected a number above 0{limit}")
    return float(value)


def _read_inside(parameters: Parameters) -> Inside:
    value = parameters.get("inside", Inside.FAIRNESS.value)
    try:
        return Inside(str(value))
    except ValueError:
        names = " or ".join(inside.value for inside in Inside)
        raise BadParameter(f"inside: found {value!r}, expected {names}") from None


def _read_seed(parameters: Parameters) -> int:
    value = parameters.get("seed", 0)
    if isinstance(value, (bool, str)) or not float(value).is_integer() or value < 0:
        raise BadParameter(f"seed: found {value!r}, expected a whole number of at least 0")
    return int(value)


_LEAST_SHARE: Final = {
    "least_share": "minimum fraction of a fair share for jobs without a deadline (default 0.1)"
}

_OFFERED: Final = (
    PolicyEntry(
        "min-cost",
        "the most work for each dollar, all jobs together; deadlines are kept",
        lambda said: Total(_read_number(said, "least_share", 0.1, 1.0)),
        _LEAST_SHARE,
    ),
    PolicyEntry(
        "min-cost-per-job",
        "the most work for each dollar, job by job; deadlines are kept",
        lambda said: PerJob(_read_number(said, "least_share", 0.1, 1.0)),
        _LEAST_SHARE,
    ),
    PolicyEntry(
        "min-cost-published",
        "steps per dollar added up, as in the code published with the paper; deadlines are kept",
        lambda _: PerDollar(),
        {},
    ),
    PolicyEntry(
        "makespan-within",
        "all jobs done as early as a budget allows",
        lambda said: MakespanWithin(_read_number(said, "budget", None, np.inf)),
        {"budget": "dollars for all work; in a queue, by default what is left of the queue's budget"},
    ),
    PolicyEntry(
        "makespan",
        "all jobs done as early as can be, what is left over goes where it does most",
        lambda _: FillUnused(Makespan()),
        {},
    ),
    PolicyEntry(
        "las",
        "least attained service: weighted max-min fairness, what is left over goes where it does most",
        lambda _: FillUnused(LeastAttainedService()),
        {},
    ),
    PolicyEntry(
        "water-filling",
        "weighted fairness, level by level: nobody can gain alone",
        lambda _: WaterFilling(),
        {},
    ),
    PolicyEntry(
        "finish-time-fairness",
        "nobody ends much later than alone on an equal part of the machines (Themis)",
        lambda _: FillUnused(FinishTimeFairness()),
        {},
    ),
    PolicyEntry(
        "hierarchical",
        "weighted fairness among entities; inside each, fairness or first come first served",
        lambda said: Hierarchical(_read_inside(said)),
        {"inside": "how an entity divides its share: fairness (default) or fifo"},
    ),
    PolicyEntry(
        "fifo", "first come first served, each on the machines that suit it best", lambda _: Fifo(), {}
    ),
    PolicyEntry("shortest-job-first", "who can be done first goes first", lambda _: ShortestJobFirst(), {}),
    PolicyEntry("max-throughput", "the most work in all, whoever does it", lambda _: MaxThroughput(), {}),
    PolicyEntry("allox", "least mean time to complete, by matching (AlloX)", lambda _: AlloX(), {}),
    PolicyEntry("isolated", "1/n of everything to each of n jobs", lambda _: Isolated(), {}),
    PolicyEntry(
        "gandiva",
        "jobs that gain by it share machines, tried at random (Gandiva)",
        lambda said: Packing(np.random.default_rng(_read_seed(said))),
        {"seed": "random seed of the trials (default 0)"},
    ),
)
MENU: Final[Mapping[str, PolicyEntry]] = {offered.name: offered for offered in _OFFERED}
