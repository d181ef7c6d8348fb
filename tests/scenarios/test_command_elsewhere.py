"""A command job on machines that share no disk with the computer that runs it: network namespaces."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest

from spotctl.control import entries as e
from tests.agileml.processes.netns import Network, unavailable
from tests.fakes.s3 import s3_bucket
from tests.scenarios.support.command import PROGRAM, STEPS, CommandProduct, command, result, spikes
from tests.scenarios.support.machines_elsewhere import VARIABLE, Elsewhere

pytestmark = pytest.mark.process

JOB = """\
name: scenario
engine: elsewhere
file_mounts: {process.py: "s3://spot/process.py"}
run: python process.py
work: {steps: 40, takes: 75m, on: c4.xlarge}
checkpoint: {every: 20m, restart: 30s, store: "s3://spot/checkpoints"}
resources: {spot: {instance_types: [c4.xlarge]}}
scaling: {sigma: 30s}
local: {boot: 60s, lease: 10d}
output: kept
"""


@pytest.fixture
def network() -> Iterator[Network]:
    why = unavailable()
    if why is not None:
        pytest.skip(why)
    with Network(mbit_per_s=100.0) as made:
        yield made


@pytest.fixture
def elsewhere(network: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CommandProduct]:
    """A job whose machines reach two things: the supervisor's address, and the object store."""
    machines = (network.add("a"), network.add("b"))
    here = machines[0].address.rpartition(".")[0] + ".1"
    with s3_bucket("spot", here), tempfile.TemporaryDirectory() as disks:
        boto3.client("s3").put_object(Bucket="spot", Key="process.py", Body=PROGRAM.encode())
        scenario, told = tmp_path / "here", Path(disks) / "elsewhere.json"
        Elsewhere(here, machines, str(scenario), disks).write(told)
        monkeypatch.setenv(VARIABLE, str(told))
        for machine in ("s1-1", "s2-1", "s3-1", "s4-1"):
            (Path(disks) / machine).mkdir()
        with command(scenario, spikes(after=1500)) as job:
            (scenario / "scenario.yaml").write_text(JOB)
            job.program = (sys.executable, "-m", "tests.scenarios.support.machines_elsewhere")
            yield job


def test_it_survives_an_eviction_and_the_death_of_spotctl_and_goes_on_from_the_store(
    elsewhere: CommandProduct,
) -> None:
    job = elsewhere
    job.patience_s = 60.0
    job.launch()
    job.reach(12)
    job.kill_spotctl()
    job.launch()
    job.wait(lambda entry: isinstance(entry, e.CheckpointFetched))
    final = job.end()
    assert (final["state"], final["exit_code"], final["clocks"]) == ("done", 0, STEPS), job.chatter
    assert (Path(final["model"]) / "state").read_bytes() == result()
    first, second = (entry.instance for entry in job.all(e.ProgramBegan))
    assert first != second
    (evicted,) = job.all(e.EvictionWarned)
    assert evicted.instances == (first,)
    assert not (job.run.training_folder / "disks" / second).exists(), os.listdir(job.run.training_folder)
