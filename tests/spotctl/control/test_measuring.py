"""A job that scales otherwise than its file says is believed over its file, where that is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from bidbrain.model import Limits, ScalingModel
from bidbrain.strategies.recovery import Checkpointing
from pricing_data.model.capacity_spells import Observations, Spells
from pricing_data.model.market import Market, PriceHistory, Series
from pricing_data.model.rules import AWS
from pricing_data.model.units import HOUR_S, Seconds, UsdPerHour
from spotctl.control import entries as e
from spotctl.control.bidding import build_observation, deadline_promise
from spotctl.control.billing import cost_so_far
from spotctl.control.estimation import prior_scaling
from spotctl.control.evolve import evolve, initial_state
from spotctl.control.run_spec import MarketOption, RunSpec
from spotctl.control.state import State
from spotctl.engines.command_model import SimulatedProgram
from tests.spotctl.build import START, changed, random_trace, redecided, replay, scripted_trace, terms

TRUTH = ScalingModel(0.9, Seconds(40), Seconds(90), stage2_above=1, stage3_above=4)
CONFIGURED = replace(TRUTH, phi=0.99, sigma_s=Seconds(5), lambda_s=Seconds(5))


def seen_by(of: RunSpec) -> State:
    """What a core with the terms ``of`` makes of the facts of a run that scales as TRUTH says.

    For an hour no zone can be afforded, and the reliable machine works alone: two sizes of footprint.
    """
    away = [(zone, 2 * HOUR_S, 5.0) for zone in range(3)]
    trace = scripted_trace(*away, *((zone, 3 * HOUR_S, 0.035) for zone in range(3)))
    _, entries = replay(changed(terms(clocks=300), scaling=TRUTH), trace)
    first = entries[0]
    assert isinstance(first, e.JobStarted)
    return reduce(evolve, entries[1:], initial_state(structs.replace(first, terms=of), trace))


def test_what_progress_shows_is_believed_and_the_rest_is_as_configured() -> None:
    state = seen_by(changed(terms(clocks=300), scaling=CONFIGURED, measure=True))
    assert state.knowledge.measured is not None
    found = state.knowledge.measured.fit_scaling(CONFIGURED)
    assert build_observation(state).scaling == found
    assert found.phi == pytest.approx(TRUTH.phi, abs=0.02)
    assert (found.stage2_above, found.stage3_above) == (CONFIGURED.stage2_above, CONFIGURED.stage3_above)


def test_a_file_that_does_not_ask_for_it_is_taken_at_its_word() -> None:
    state = seen_by(changed(terms(clocks=300), scaling=CONFIGURED))
    assert state.knowledge.measured is None
    assert build_observation(state).scaling == CONFIGURED


@pytest.mark.parametrize("seed", range(3))
def test_a_run_that_measures_is_decided_again_alike(seed: int) -> None:
    """What was measured is folded from the ledger, like everything else."""
    of = changed(terms(clocks=200, work=1200.0), measure=True)
    trace = random_trace(seed)
    state, entries = replay(of, trace)
    first = entries[0]
    assert isinstance(first, e.JobStarted)
    assert (
        reduce(evolve, entries[1:], initial_state(first, trace)).knowledge.measured
        == state.knowledge.measured
    )
    assert state.knowledge.measured != prior_scaling(of)
    assert redecided(entries, trace) == list(entries)


# ---- how fast each type is -------------------------------------------------------------------------

ONE, OTHER = (Market("aws", "us-east-1", "us-east-1a", kind) for kind in ("one", "other"))


class AsFastAs(SimulatedProgram):
    """A program that finds its machines slower or faster than their cores say."""

    def __init__(self, of: RunSpec, truth: Mapping[str, int]) -> None:
        assert of.recovery.checkpoints is not None
        super().__init__(of, of.recovery.checkpoints)
        self._truth = truth

    def send_command(self, number: int, command: e.Tell) -> None:
        if isinstance(command, e.TellJoin):
            assert command.market is not None
            command = structs.replace(command, cores=self._truth[command.market.instance_type])
        super().send_command(number, command)


def of_two_types(**changes: Any) -> RunSpec:
    """A program of 120 steps of five minutes, on one machine of either type: eight cores each."""
    spot = tuple(MarketOption(market, UsdPerHour(0.4), 8) for market in (ONE, OTHER))
    made = changed(
        terms(AWS, clocks=120, work=2400.0),
        reliable_count=0,
        reliable=spot[0],
        spot=spot,
        limits=Limits(1, 1),
        checkpoints=Checkpointing(Seconds(600.0), 0.0, Seconds(30.0)),
        start_s=Seconds(60.0),
    )
    return changed(made, **changes)


def constant(*prices: tuple[Market, float]) -> PriceHistory:
    times = np.array([START - 7 * 86400])
    return PriceHistory.from_series({market: Series(times, np.array([price])) for market, price in prices})


def run(of: RunSpec, truth: Mapping[str, int], trace: PriceHistory) -> tuple[State, tuple[e.Entry, ...]]:
    return replay(of, trace, training=AsFastAs(of, truth))


def test_a_type_that_proves_slow_is_left_for_another() -> None:
    """One is two percent cheaper and, as it turns out, half as fast."""
    trace, truth = constant((ONE, 0.1), (OTHER, 0.102)), {"one": 4, "other": 8}
    (plain, _), (learned, entries) = (
        run(of_two_types(measure=measure), truth, trace) for measure in (False, True)
    )
    assert {a.market for a in plain.allocations.values()} == {ONE}
    assert [a.market for a in learned.allocations.values()] == [ONE, OTHER]
    assert cost_so_far(learned).total < 0.65 * cost_so_far(plain).total
    assert learned.knowledge.measured is not None
    found = learned.knowledge.measured.fit_speeds()
    assert found["one"].value == pytest.approx(4, rel=0.05)
    assert found["other"].low < 8 < found["other"].high
    assert redecided(entries, trace) == list(entries), "from the ledger alone, and never from what came later"


@pytest.mark.parametrize("slack", [1.35, 1.5, 2.0])
def test_a_job_that_proves_slow_is_in_time_all_the_same(slack: float) -> None:
    """Everything does three quarters of what its cores say. Nothing promised knew; the net takes it up.

    At 1.35 machines on demand alone would do, and little else.
    """
    trace, truth = constant((ONE, 0.1), (OTHER, 0.102)), {"one": 6, "other": 6}
    far = of_two_types(measure=True, deadline_s=Seconds(30 * 86400.0))
    promise = deadline_promise(initial_state(e.JobStarted(START, far), trace))
    assert promise is not None
    deadline_s = Seconds(promise.least_deadline_s * slack)
    outages = [*(START - day * 86400 for day in range(20, 0, -1)), START + HOUR_S]
    begins = [START - 21 * 86400, *(at + HOUR_S for at in outages[:-1])]
    away = Observations.from_spells(
        {m: Spells.from_columns(begins, outages, [True] * len(outages)) for m in (ONE, OTHER)}
    )
    of = changed(far, deadline_s=deadline_s)
    state, _ = replay(of, trace, capacity=away, training=AsFastAs(of, truth))
    assert state.training.training_over_at is not None
    assert state.training.training_over_at - START <= deadline_s
    assert any(a.on_demand for a in state.allocations.values())
