"""Train on the labelled nodes of a Ray cluster, whatever becomes of them.

On any node of a cluster: ``python examples/05_ray.py FOLDER``, with a folder that all nodes share. Without
one a cluster of three nodes is started on this machine, for as long as the training takes.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import ray
from ray.cluster_utils import Cluster

import agileml
from agileml.apps.planted import planted_ratings, write_ratings
from agileml.protocol.commands import JoinedTraining, RolledBack, SafeToKill
from agileml.protocol.telemetry import ObjectiveAt, Upward

LOOPBACK = "127.0.0.2"


def tell(said: Upward) -> None:
    match said:
        case JoinedTraining(machine):
            print(f"{machine} joined")
        case ObjectiveAt(clock, value) if clock % 10 == 0:
            print(f"clock {clock}: root mean square error {value:.5f}")
        case SafeToKill(machine):
            print(f"{machine} holds nothing any more, its node may go")
        case RolledBack(to, 0):
            print(f"restored from backups as of clock {to}: nothing is repeated")
        case RolledBack(to, redone):
            print(f"rolled back to clock {to}; clocks repeated: {redone}")


def main(folder: Path) -> None:
    ratings = folder / "ratings.csv.gz"
    write_ratings(planted_ratings(users=300, items=80, rank=4, noise=0.3, density=0.3, seed=0), ratings)
    trained = agileml.run(
        "agileml.apps.mf:MatrixFactorization",
        ratings,
        output=folder / "out",
        clocks=40,
        arguments={"rank": 4},
        progress=tell,
    )
    model = agileml.load_model(trained)
    print(f"{trained.clock} clocks, {trained.redone} of them twice; {trained.evicted} machines were evicted")
    print(f"the model has {len(model)} rows: {trained.model}")


@contextmanager
def small_cluster() -> Iterator[None]:
    """A head, a reliable node and a transient one, on a loopback address that Ray takes as it is."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    here = {"node_ip_address": "127.0.0.2"}
    cluster = Cluster(
        initialize_head=True, head_node_args={**here, "num_cpus": 0, "include_dashboard": False}
    )
    try:
        for tier in ("reliable", "transient"):
            cluster.add_node(num_cpus=1, node_ip_address=LOOPBACK, labels={"tier": tier})
        ray.init(address=cluster.address, log_to_driver=False)
        yield
    finally:
        ray.shutdown()
        cluster.shutdown()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with small_cluster(), tempfile.TemporaryDirectory() as place:
            main(Path(place))
