"""A job that scales otherwise than its file says is believed over its file, where that is asked for."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

import pytest

from bidbrain.model import Scaling
from pricing_data.units import HOUR_S, Seconds
from spotctl.control import events as e
from spotctl.control.deciding import observation
from spotctl.control.evolve import begin, evolve
from spotctl.control.state import State
from spotctl.control.terms import Terms
from tests.spotctl.build import random_trace, replay, scripted_trace, terms

TRUTH = Scaling(0.9, Seconds(40), Seconds(90), stage2_above=1, stage3_above=4)
CONFIGURED = replace(TRUTH, phi=0.99, sigma_s=Seconds(5), lambda_s=Seconds(5))


def seen_by(of: Terms) -> State:
    """What a core with the terms ``of`` makes of the facts of a run that scales as TRUTH says.

    For an hour no zone can be afforded, and the reliable machine works alone: two sizes of footprint.
    """
    away = [(zone, 2 * HOUR_S, 5.0) for zone in range(3)]
    trace = scripted_trace(*away, *((zone, 3 * HOUR_S, 0.035) for zone in range(3)))
    _, entries = replay(replace(terms(clocks=300), scaling=TRUTH), trace)
    first = entries[0]
    assert isinstance(first, e.JobStarted)
    return reduce(evolve, entries[1:], begin(replace(first, terms=of), trace))


def test_what_progress_shows_is_believed_and_the_rest_is_as_configured() -> None:
    state = seen_by(replace(terms(clocks=300), scaling=CONFIGURED, measure=True))
    assert state.measured is not None
    found = state.measured.scaling(CONFIGURED)
    assert observation(state).scaling == found
    assert found.phi == pytest.approx(TRUTH.phi, abs=0.02)
    assert (found.stage2_above, found.stage3_above) == (CONFIGURED.stage2_above, CONFIGURED.stage3_above)


def test_a_file_that_does_not_ask_for_it_is_taken_at_its_word() -> None:
    state = seen_by(replace(terms(clocks=300), scaling=CONFIGURED))
    assert state.measured is None
    assert observation(state).scaling == CONFIGURED


@pytest.mark.parametrize("seed", range(3))
def test_a_run_that_measures_is_decided_again_alike(seed: int) -> None:
    """What was measured is folded from the ledger, like everything else."""
    of = replace(terms(clocks=200, work=1200.0), measure=True)
    trace = random_trace(seed)
    state, entries = replay(of, trace)
    first = entries[0]
    assert isinstance(first, e.JobStarted)
    assert reduce(evolve, entries[1:], begin(first, trace)).measured == state.measured
