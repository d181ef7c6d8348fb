"""The reference cases: at most eight jobs each, and what the code published with the paper makes of them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bidbrain.cluster.policies.problem import ClusterCapacity, JobKinds, Jobs, ShareProblem


@dataclass(frozen=True, slots=True)
class Case:
    """``problem`` with space sharing, read as the published code reads it (``any_size``)."""

    problem: ShareProblem
    policies: dict[str, Any]

    @property
    def agnostic(self) -> ShareProblem:
        """Returns the problem as policies see it that know no types: everything runs as on a V100."""
        return self.problem.without_types(self.problem.cluster.types.index("v100"))

    def exact_answer(self, policy: str) -> list[float]:
        """The optimum, or the vector of levels, from the independent formulation."""
        return list(np.atleast_1d(self.policies[policy]["exact_objective"]))


def read(path: Path) -> Case:
    """One of the files of ``gavel/tiny_cases``."""
    told = json.loads(path.read_text(encoding="utf-8"))
    types, jobs = tuple(sorted(told["cluster"])), told["jobs"]
    ids = [job["id"] for job in jobs]
    rates = np.array([[told["throughputs"][str(job)][name] for name in types] for job in ids])
    together = np.zeros((len(ids), *rates.shape))
    for pair, by_type in told["pair_throughputs"].items():
        a, b = (ids.index(int(job)) for job in pair.split(","))
        for j, name in enumerate(types):
            together[a, b, j], together[b, a, j] = by_type[name]
    entities = list(told["entities"].values())
    entity = [next(e for e, owner in enumerate(entities) if job in owner["jobs"]) for job in ids]
    problem = ShareProblem(
        ClusterCapacity(
            types, *(np.array([told[key][t] for t in types], float) for key in ("cluster", "instance_costs"))
        ),
        JobKinds(rates, np.array([job["scale_factor"] for job in jobs]), together),
        Jobs.from_kinds(
            np.arange(len(ids)),
            weight=[job["priority_weight"] for job in jobs],
            steps=[job["steps_remaining"] for job in jobs],
            age_s=[job["seconds_since_arrival"] for job in jobs],
            slo_s=[job["slo_seconds_remaining"] or np.inf for job in jobs],
            entity=entity,
        ),
        np.array([owner["weight"] for owner in entities], float),
        any_size=True,
    )
    return Case(problem, told["policies"])
