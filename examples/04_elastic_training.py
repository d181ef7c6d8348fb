"""Train on machines that come and go: some are evicted with a warning, one is killed without.

Real processes on this machine, for about ten seconds: ``python examples/04_elastic_training.py``.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from agileml.apps.mf import MatrixFactorization
from agileml.apps.planted import planted_ratings, write_ratings
from agileml.client import TrainingClient
from agileml.data.tables import Table
from agileml.job import JobFolder, TrainingJob
from agileml.node.hosts.local import LocalHost
from agileml.node.tier import Tier
from agileml.protocol.commands import Finished, Progressed, RolledBack, SafeToKill
from agileml.protocol.events import EvictionWarned, MachineJoined, MachineLost, MachineReleased, Setup
from agileml.protocol.telemetry import ObjectiveAt
from agileml.training_host import TrainingHost

WARNED_AT, KILLED_AT = 15, 30


def main(folder: Path) -> None:
    ratings = folder / "ratings.csv.gz"
    write_ratings(planted_ratings(users=300, items=80, rank=4, noise=0.3, density=0.3, seed=0), ratings)
    setup = Setup(partitions=3, shards=16, clocks=60)
    job = TrainingJob("agileml.apps.mf:MatrixFactorization", {"rank": 4}, setup, core_seconds_per_clock=0.2)
    JobFolder.prepare(folder / "job", job, ratings)
    host, client = TrainingHost(folder / "job"), TrainingClient(folder / "job")
    try:
        for machine in ("reliable-1", "spot-1", "spot-2", "spot-3"):
            tier = Tier.RELIABLE if machine.startswith("reliable") else Tier.TRANSIENT
            host.start_machine(machine, tier, cores=1)
            client.send_events(MachineJoined(machine, tier, cores=1))
        watch(host, client)
    finally:
        client.close()
        host.kill_all()
    *_, trusted = MatrixFactorization(rank=4).reference_objectives(
        Table(ratings, MatrixFactorization.columns)
    )
    print(f"alternating least squares reaches {trusted:.5f}")


def watch(host: LocalHost, client: TrainingClient) -> None:
    """Print what the training says, and take the spot machines away on the way."""
    rmse = 0.0
    while True:
        for said in client.poll(timeout_s=1.0):
            match said:
                case Progressed(clock, consistent) if clock == consistent == WARNED_AT:
                    print(f"clock {clock}: spot-1 and spot-2 will be evicted in 30 s")
                    client.send_events(EvictionWarned(("spot-1", "spot-2"), notice_s=30.0))
                case SafeToKill(machine):
                    print(f"{machine} is safe to kill")
                    host.kill(machine)
                    client.send_events(MachineReleased(machine))
                case Progressed(clock, consistent) if clock == consistent == KILLED_AT:
                    print(f"clock {clock}: spot-3 vanishes without a warning")
                    host.kill("spot-3")
                    client.send_events(MachineLost("spot-3"))
                case RolledBack(to, 0):
                    print(f"what spot-3 had is restored as of clock {to}: nothing is computed again")
                case RolledBack(to, redone):
                    print(f"back to clock {to}; clocks computed again: {redone}")
                case ObjectiveAt(_, value):
                    rmse = value
                case Finished(clock):
                    print(f"finished after clock {clock}, root mean square error {rmse:.5f}")
                    return


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        main(Path(place))
