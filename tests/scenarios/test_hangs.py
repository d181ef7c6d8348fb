"""Machines that hang, and do not end: nobody pays for them for long, and the model is the same.

``pytest --campaign tests/scenarios/test_hangs.py``: silence takes its 20 or 60 seconds, a stop five minutes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from spotctl.control import entries as e
from tests.scenarios.support.product import CLOCKS, ON_RELIABLE, Product, product

pytestmark = [pytest.mark.process, pytest.mark.campaign]


@pytest.fixture
def model(campaign: bool, request: pytest.FixtureRequest) -> bytes:
    """Of a run to which nothing happened; such a run is only made where it is wanted."""
    if not campaign:
        pytest.skip("only with --campaign: silence takes its time; what follows is tested without processes")
    undisturbed: bytes = request.getfixturevalue("undisturbed")
    return undisturbed


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Product]:
    with product(tmp_path) as made:
        made.patience_s = 300.0
        yield made


def released(name: str) -> Callable[[e.Entry], bool]:
    return lambda entry: isinstance(entry, e.InstancesEnded) and name in entry.instances


def test_a_spot_machine_that_hangs_is_ended_and_its_sibling_stays(model: bytes, job: Product) -> None:
    job.launch()
    job.reach_stage(2)
    hanging = job.transient[0]
    job.host.freeze(hanging)
    job.wait(lambda entry: entry == e.MachineGivenUp(entry.at, hanging))
    job.wait(released(hanging))
    final = job.end()
    assert (final["state"], final["clocks"], final["failures"]) == ("done", CLOCKS, 1), job.chatter
    ended = [entry for entry in job.all(e.InstancesEnded) if hanging in entry.instances]
    assert [entry.instances for entry in ended] == [(hanging,)]
    assert job.model.read_bytes() == model
    job.check_nothing_left()
    job.check_record(final)


def test_a_job_whose_controllers_machine_hangs_begins_again(model: bytes, job: Product) -> None:
    with (job.folder / "scenario.yaml").open("a") as file:
        file.write(f"checkpoint: {{store: {job.folder}/states, every: 4}}\n")
    job.launch()
    job.reach_stage(2)
    job.wait(lambda entry: isinstance(entry, e.Checkpointed))
    job.host.freeze(ON_RELIABLE)
    job.wait(lambda entry: entry == e.ControllerSilent(entry.at, ON_RELIABLE))
    job.wait(released(ON_RELIABLE))
    final = job.end()
    assert (final["state"], final["exit_code"], final["clocks"]) == ("done", 0, CLOCKS), job.chatter
    assert final["restarts"] == 1
    assert job.model.read_bytes() == model
    job.check_nothing_left()
    job.check_record(final)


_STUCK = """\
import time

from agileml.apps.mf import MatrixFactorization


class Stuck(MatrixFactorization):
    def process(self, shard, values, seed):
        if seed[1] > 5:
            time.sleep(1e6)
        return super().process(shard, values, seed)
"""


def test_a_cancelled_job_whose_application_never_comes_back_is_ended(campaign: bool, job: Product) -> None:
    if not campaign:
        pytest.skip(
            "only with --campaign: five minutes are waited for; what follows is tested without processes"
        )
    job.patience_s = 420.0
    (job.folder / "stuck.py").write_text(_STUCK)
    described = (job.folder / "scenario.yaml").read_text()
    (job.folder / "scenario.yaml").write_text(
        described.replace("agileml.apps.mf:MatrixFactorization", "stuck.py:Stuck")
    )
    job.launch()
    job.wait(lambda entry: isinstance(entry, e.Progressed) and entry.clock == 5)
    assert job.command("cancel", "scenario").returncode in (0, 7), job.chatter
    final = job.end()
    assert (final["state"], final["exit_code"], final["clocks"]) == ("cancelled", 7, 5), job.chatter
    assert "its training had not ended" in final["why"]
    (given_up,) = job.all(e.StopGivenUp)
    (stopped,) = job.all(e.TellStop)
    assert given_up.at == stopped.at + job.run.fold_state().terms.end_within_s
    job.check_nothing_left()
    job.check_record(final)
