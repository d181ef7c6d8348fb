"""What a program gains from more cores: nothing, until somebody says it or its progress shows it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bidbrain.model import Limits
from bidbrain.strategies.recovery import Checkpointing
from pricing_data.model.market import Market
from pricing_data.model.units import Seconds
from spotctl.control import entries as e
from spotctl.control.bidding import build_observation, deadline_promise
from spotctl.control.evolve import initial_state
from spotctl.control.run_spec import RunSpec
from spotctl.control.state import State
from spotctl.errors import JobFileError
from spotctl.job.file import parse_job
from spotctl.job.resolve import PriceOptions, resolve_job
from spotctl.report.baselines import run_baselines
from tests.spotctl.build import START, changed, replay, scripted_trace, terms

JOB = """\
engine: command
run: "true"
work: {{steps: 100, takes: 4h, on: {on}}}
resources: {{spot: {{regions: [us-east-1], instance_types: [c4.xlarge, c4.2xlarge]}}}}
scaling: {scaling}
"""


def resolved(scaling: str, on: str = "c4.xlarge") -> RunSpec:
    spec = parse_job(JOB.format(scaling=scaling, on=on), "of.yaml", Path.cwd())
    return resolve_job(spec, PriceOptions(), "r", 1).terms


def speeds(of: RunSpec) -> dict[str, float]:
    return {t.market.instance_type: t.nu for t in of.spot}


@pytest.mark.parametrize(
    ("scaling", "on", "small", "large"),
    [
        ("{}", "c4.xlarge", 1.0, 1.0),
        ("{}", "c4.2xlarge", 0.5, 1.0),
        ("{cores: 1}", "c4.xlarge", 1.0, 1.0),
        ("{cores: 1}", "c4.2xlarge", 1.0, 1.0),
        ("{cores: 6}", "c4.xlarge", 1.0, 1.5),
        ("{phi: 0.9}", "c4.xlarge", 1.0, 1.8),
        ("{phi: 1.0}", "c4.2xlarge", 0.5, 1.0),
        ("{measure: true}", "c4.xlarge", 1.0, 1.0),
    ],
)
def test_how_fast_it_is_taken_to_be(scaling: str, on: str, small: float, large: float) -> None:
    """On the machine that its work is told for it takes as long as that says, whatever it gains."""
    of = resolved(scaling, on)
    per_step_s = {kind: of.work.core_seconds_per_clock / nu for kind, nu in speeds(of).items()}
    assert 144 / per_step_s["c4.xlarge"] == pytest.approx(small)
    assert 144 / per_step_s["c4.2xlarge"] == pytest.approx(large)
    assert of.work.measure is ("measure" in scaling)


def test_a_program_without_work_is_no_faster_on_any_machine_than_on_the_smallest() -> None:
    text = JOB.format(scaling="{}", on="c4.xlarge").replace("work:", "envs: {}\n# work:")
    assert speeds(resolve_job(parse_job(text, "of.yaml", Path.cwd()), PriceOptions(), "r", 1).terms) == {
        "c4.xlarge": 4.0,
        "c4.2xlarge": 4.0,
    }


def test_both_at_once_are_refused_and_elastic_training_has_no_cores() -> None:
    with pytest.raises(JobFileError, match=r"scaling\.phi: found beside cores"):
        resolved("{cores: 1, phi: 0.9}")
    with pytest.raises(JobFileError, match=r"scaling\.cores: unknown key"):
        parse_job("scaling: {cores: 1}\n", "of.yaml", Path.cwd())


def single_threaded(*, measure: bool = False, faster: float = 1.0) -> RunSpec:
    """A program told of for four cores, on machines with eight; ``faster``: what it really is there."""
    base = terms(clocks=60)
    return changed(
        base,
        spot=tuple(replace(t, cores=8, speed=4.0) for t in base.spot),
        reliable=replace(base.reliable, cores=8, speed=4.0),
        reliable_count=0,
        limits=Limits(1, 1),
        checkpoints=Checkpointing(Seconds(1200.0), 0.0, Seconds(60.0)),
        measure=measure,
        modelled_speeds={base.spot[0].market.instance_type: faster},
    )


def of(state: State) -> Market:
    return state.terms.spot[0].market


def test_a_promise_rests_on_what_the_program_is_taken_to_do_and_not_on_cores() -> None:
    far = changed(single_threaded(), deadline_s=Seconds(1e6))
    found = deadline_promise(initial_state(e.JobStarted(START, far), scripted_trace()))
    assert found is not None
    assert found.least_deadline_s > 60 * 2400 / 4


@pytest.mark.parametrize("measure", [False, True])
def test_only_its_progress_makes_it_faster_than_it_is_taken_to_be(measure: bool) -> None:
    state, entries = replay(single_threaded(measure=measure, faster=1.8), scripted_trace())
    assert state.training.training_over_at == pytest.approx(START + 60 + 15 + 60 * 2400 / 7.2, abs=60)
    kind = of(state).instance_type
    assert state.machine_speeds()[kind] == pytest.approx(7.2 if measure else 4.0, rel=0.05)
    opened = initial_state(next(x for x in entries if isinstance(x, e.JobStarted)), scripted_trace())
    assert build_observation(opened).find_offer(of(state)).cores == 4.0


def test_it_is_replayed_and_compared_with_machines_that_do_no_more_either() -> None:
    state, _ = replay(single_threaded(), scripted_trace())
    assert state.training.training_over_at == START + 60 + 15 + 60 * 600
    compared = run_baselines(state)
    assert compared is not None
    assert compared.cheapest.seconds == 15 + 60 * 600
    assert compared.pace == pytest.approx(1.0, rel=0.01)
