"""``agileml.run`` on a real Ray cluster: nodes that join and drain, and nothing that is left in the end.

Deaths are in ``test_kills.py``.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

import agileml
from agileml.apps.mf import MatrixFactorization
from agileml.data.shards import ShardReader
from agileml.data.trained_model import TrainingFailed
from agileml.protocol.commands import Checkpointed, JoinedTraining, SafeToKill, StageChanged
from agileml.protocol.events import Stage
from agileml.protocol.telemetry import Upward
from agileml.ray.run import class_reference
from tests.agileml.processes.ray_cluster import RayCluster, processes, wait_until_none
from tests.agileml.processes.ray_jobs import write_small_ratings
from tests.agileml.processes.real_jobs import QUICK, serial

pytestmark = pytest.mark.process

CLOCKS, SHARDS, PARTITIONS = 60, 8, 3

HELD_BACK = """
import time
from pathlib import Path

from agileml.apps.mf import MatrixFactorization

class HeldBack(MatrixFactorization):
    def process(self, shard, values, seed):
        if not Path({until!r}).exists():
            time.sleep(0.5)
        return super().process(shard, values, seed)
"""
"""Trains slowly until a file is there: a loaded machine has a minute and more for what is to happen."""


def test_nodes_join_and_drain_while_a_function_call_trains(cluster: RayCluster, tmp_path: Path) -> None:
    cluster.add("r1", "t1", "t2")
    drained: list[str] = []
    application, until = tmp_path / "held_back.py", tmp_path / "all has happened"
    application.write_text(HELD_BACK.format(until=str(until)))

    def follow(said: Upward) -> None:
        match said:
            case StageChanged(Stage.TWO) if "t3" not in cluster.nodes:
                cluster.add("t3", allocation="late")
            case JoinedTraining(machine) if machine.startswith("late-"):
                cluster.drain("t1", "t2", seconds=120)
            case SafeToKill(machine):
                drained.append(machine)
                if len(drained) == 2:
                    until.touch()

    trained = agileml.run(
        f"{application}:HeldBack",
        write_small_ratings(tmp_path),
        output=tmp_path / "out",
        clocks=CLOCKS,
        arguments={"rank": 4},
        partitions=PARTITIONS,
        shards=SHARDS,
        core_seconds_per_clock=0.05,
        timing=replace(QUICK, silence_s=30.0, lease_s=60.0),  # nobody is to be taken for dead
        progress=follow,
    )
    assert (trained.clock, trained.redone, trained.failures, trained.evicted) == (CLOCKS, 0, 0, 2)
    assert Stage.TWO in trained.stages  # from the start, where all nodes came up together
    assert set(drained) == {f"transient-{cluster.id(name)[:12]}" for name in ("t1", "t2")}
    data = ShardReader(tmp_path / "out" / "input")
    model, objectives = serial(MatrixFactorization(rank=4), data, SHARDS, CLOCKS)
    assert trained.objective == objectives[-1]
    assert agileml.load_model(trained).tobytes() == model.tobytes()


def test_a_job_without_a_reliable_node_says_how_to_get_one(cluster: RayCluster, tmp_path: Path) -> None:
    cluster.add("t1")
    with pytest.raises(TrainingFailed, match=r"label tier=reliable.*1 CPUs, labels {'tier': 'transient'}"):
        agileml.run(MatrixFactorization, write_small_ratings(tmp_path), output=tmp_path, clocks=3)


@pytest.mark.campaign
def test_a_job_that_lost_its_controllers_node_goes_on_from_its_checkpoint(
    campaign: bool, cluster: RayCluster, tmp_path: Path
) -> None:
    if not campaign:
        pytest.skip("only with --campaign: the same is tested on machines of this computer")
    cluster.add("r1")
    train = partial(
        agileml.run,
        MatrixFactorization,
        write_small_ratings(tmp_path),
        output=tmp_path / "out",
        timing=QUICK,
    )

    written: list[Checkpointed] = []

    def kill(said: Upward) -> None:
        if isinstance(said, Checkpointed) and not written:
            cluster.kill("r1")
            written.append(said)

    # Which of the two is known first hangs on how fast Ray sees that the controller's actor has gone.
    why = "the elasticity controller is gone|no reliable machine is left"
    with pytest.raises(TrainingFailed, match=why) as failed:
        train(clocks=10_000, partitions=PARTITIONS, shards=SHARDS, checkpoint_clocks=5, progress=kill)
    cluster.add("r2")
    clocks = int(Path(failed.value.checkpoint).name.partition("-")[0]) + 10
    trained = train(clocks=clocks, resume=failed.value.checkpoint)
    assert trained.clock == clocks
    model, _ = serial(MatrixFactorization(), ShardReader(tmp_path / "out" / "input"), SHARDS, clocks)
    assert agileml.load_model(trained).tobytes() == model.tobytes()


SCRIPT = """
import sys
import agileml
from agileml.job import Timing

agileml.run(
    "agileml.apps.mf:MatrixFactorization", sys.argv[1], output=sys.argv[2], clocks=100_000, shards=4,
    timing=Timing(0.1, 3.0, 20.0), progress=lambda said: print(said, flush=True),
)
"""


@pytest.mark.campaign
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_of_a_caller_that_ends(
    how: signal.Signals, campaign: bool, cluster: RayCluster, tmp_path: Path
) -> None:
    if how is signal.SIGINT and not campaign:
        pytest.skip("only with --campaign: SIGKILL leaves a caller less time")
    cluster.add("r1")
    ratings = write_small_ratings(tmp_path)
    caller = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(ratings), str(tmp_path / "out")],
        env={**os.environ, "RAY_ADDRESS": cluster.address, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert caller.stdout is not None
    for line in caller.stdout:
        if line.startswith("Progressed"):
            break
    (name,) = (re.findall(r"agileml-([0-9a-f]+)-", folder.name)[0] for folder in tmp_path.glob("agileml-*"))
    assert len(processes(f"agileml-{name}-reliable")) >= 2  # a server and a worker
    caller.send_signal(how)
    caller.stdout.close()
    assert caller.wait(120) != 0
    assert wait_until_none(f"agileml-{name}-reliable") == {}
    if how is signal.SIGINT:
        assert wait_until_none(name) == {}


def test_an_application_that_cannot_compute_fails_the_job(cluster: RayCluster, tmp_path: Path) -> None:
    cluster.add("r1")
    broken = tmp_path / "broken.py"
    broken.write_text(
        "import agileml.apps.mf as mf\n"
        "class Broken(mf.MatrixFactorization):\n"
        "    def process(self, shard, values, seed):\n"
        "        raise ArithmeticError('I cannot compute')\n"
    )
    with pytest.raises(TrainingFailed, match=r"a process died over and over, Ray's logs say of what"):
        agileml.run(
            f"{broken}:Broken", write_small_ratings(tmp_path), output=tmp_path, clocks=3, timing=QUICK
        )


def test_the_package_is_imported_without_ray_and_without_numpy() -> None:
    code = "import agileml, sys; sys.exit(any(name in sys.modules for name in ('ray', 'numpy', 'zmq')))"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_a_class_that_other_processes_cannot_find_is_refused() -> None:
    class Inner(MatrixFactorization):
        pass

    assert class_reference(MatrixFactorization) == "agileml.apps.mf:MatrixFactorization"
    with pytest.raises(ValueError, match="not at the top level of its module"):
        class_reference(Inner)
