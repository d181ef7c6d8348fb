"""Hazards by age of spell, and what watching teaches."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bidbrain.deadline.availability_belief import PRIOR, Belief, BeliefBatch, LomaxLaw
from pricing_data.model.units import Seconds
from spotctl.records.codec import from_json, to_json

LOOKS = st.lists(st.tuples(st.booleans(), st.integers(0, 10_000)), max_size=30)


def test_the_hazard_is_the_law_s_own() -> None:
    law = LomaxLaw(2.0, Seconds(100))
    ages = np.array([0.0, 50.0])

    survival = (100 / (100 + np.array([0.0, 50.0, 25.0, 75.0]))) ** 2

    assert law.hazard(ages, 25.0) == pytest.approx(1 - survival[2:] / survival[:2])


@settings(deadline=None)
@given(st.floats(0.1, 5), st.floats(1, 1e5), st.floats(0, 1e7), st.floats(1, 1e6))
def test_hazards_fall_with_age(shape: float, scale: float, age: float, within: float) -> None:
    law = LomaxLaw(shape, Seconds(scale))

    younger, older = law.hazard(np.array([age, age + within]), within)

    assert 0 < older <= younger <= 1


@settings(deadline=None)
@given(st.booleans(), LOOKS)
def test_weights_stay_chances(first: bool, looks: list[tuple[bool, int]]) -> None:
    beliefs = BeliefBatch.first_look(PRIOR, np.array([first]))
    for up, after_s in looks:
        beliefs = beliefs.observe(np.array([up]), after_s)

    assert beliefs.pair_weights.sum() == pytest.approx(1)
    assert (beliefs.pair_weights > 0).all()


@settings(deadline=None)
@given(st.booleans(), LOOKS)
def test_a_live_belief_is_a_row_of_many(first: bool, looks: list[tuple[bool, int]]) -> None:
    live = Belief.first_look(PRIOR, first, Seconds(0))
    rows = BeliefBatch.first_look(PRIOR, np.array([first, not first]))
    now = 0
    for up, after_s in looks:
        now += after_s
        live = live.observe(up, Seconds(now))
        rows = rows.observe(np.array([up, not up]), after_s)

    assert live.as_batch().pair_weights[0].tolist() == rows.pair_weights[0].tolist()
    assert live.age_s == rows.age_s[0]


def test_long_spells_speak_for_heavy_tails_and_short_ones_against() -> None:
    calm = Belief.first_look(PRIOR, True, Seconds(0))
    for tick in range(1, 50):
        calm = calm.observe(True, Seconds(600 * tick))
    restless = Belief.first_look(PRIOR, True, Seconds(0))
    for tick in range(1, 50):
        restless = restless.observe(tick % 6 != 0, Seconds(600 * tick))

    assert calm.up_weights[0] > 0.5 > restless.up_weights[0]
    assert calm.down_weights == pytest.approx([1 / 3] * 3)


def test_evidence_fades() -> None:
    belief = Belief.first_look(PRIOR, True, Seconds(0))
    for tick in range(1, 50):
        belief = belief.observe(True, Seconds(600 * tick))

    # One look at the end of a long blindness: the spell ended some time, which every law foresees.
    blind = belief.observe(False, Seconds(belief.seen_at_s + 20 * PRIOR.memory_s))

    assert blind.up_weights == pytest.approx([1 / 3] * 3, abs=1e-6)


def test_a_belief_is_plain_data() -> None:
    belief = Belief.first_look(PRIOR, True, Seconds(0)).observe(False, Seconds(600))

    assert from_json(Belief, json.loads(json.dumps(to_json(belief)))) == belief


def test_looks_are_folded_in_order() -> None:
    belief = Belief.first_look(PRIOR, True, Seconds(600))

    with pytest.raises(ValueError, match="in order"):
        belief.observe(True, Seconds(0))


@pytest.mark.parametrize(("shape", "scale"), [(0.0, 1.0), (1.0, 0.0), (-1.0, 1.0)])
def test_a_law_needs_a_shape_and_a_scale(shape: float, scale: float) -> None:
    with pytest.raises(ValueError, match="above 0"):
        LomaxLaw(shape, Seconds(scale))
