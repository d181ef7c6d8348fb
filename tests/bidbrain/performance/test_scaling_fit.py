"""Tests measurements of synthetic jobs whose truth is known, with noise, stragglers and changes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bidbrain.model import ScalingCurve, ScalingModel
from bidbrain.performance.scaling_fit import FootprintChange, MeasuredScaling, RobustEstimate, Stamp
from pricing_data.model.units import Seconds

GUESS = ScalingModel(phi=1.0, sigma_s=Seconds(60), lambda_s=Seconds(60), stage2_above=1, stage3_above=15)
GUESSED_RATES = {"small": 4.0, "large": 8.0}


@dataclass
class Job:
    """A job that behaves as told: stamps every ``every_s`` seconds, some of them late."""

    phi: float
    sigma_s: float
    lambda_s: float
    rates: Mapping[str, float]
    measured: MeasuredScaling
    noise: np.random.Generator
    late: float = 0.0
    every_s: float = 20.0
    now_s: float = 0.0
    work: float = 0.0

    def run(self, machines: Mapping[str, int], stamps: int, change: FootprintChange | None = None) -> None:
        """Change to ``machines`` (losing sigma or lambda), then report ``stamps`` times."""
        stalled_s = 0.0
        if change is not None:
            self.measured = self.measured.change_footprint(self.now_s, change, machines)
            stalled_s = self.sigma_s if change is FootprintChange.JOINED else self.lambda_s
        count = sum(machines.values())
        speed = self.phi ** math.log2(count) * sum(k * self.rates[name] for name, k in machines.items())
        for _ in range(stamps):
            worked_s = max(self.every_s - stalled_s, 0.0)
            stalled_s = max(stalled_s - self.every_s, 0.0)
            self.now_s += self.every_s
            self.work += speed * worked_s
            delay_s = self.noise.exponential(15) if self.noise.random() < self.late else 0.0
            self.measured = self.measured.add_stamp(Stamp(self.now_s + min(delay_s, 19.0), self.work))


def job(seed: int = 0, late: float = 0.0, phi: float = 0.93) -> Job:
    rates = {"small": 3.1, "large": 7.4}
    begun = MeasuredScaling.from_configured(GUESS, GUESSED_RATES, {"small": 2})
    return Job(phi, 35.0, 110.0, rates, begun, np.random.default_rng(seed), late)


def grown_and_shrunk(running: Job) -> None:
    running.run({"small": 2}, 20)
    for _ in range(3):
        running.run({"small": 8}, 25, FootprintChange.JOINED)
        running.run({"small": 8, "large": 8}, 25, FootprintChange.JOINED)
        running.run({"small": 4}, 25, FootprintChange.LOST)
        running.run({"small": 32}, 25, FootprintChange.JOINED)
        running.run({"small": 2}, 25, FootprintChange.LOST)


def test_an_undisturbed_job_is_measured_exactly() -> None:
    running = job()
    running.rates = {"small": 4.0, "large": 8.0}
    grown_and_shrunk(running)
    found = running.measured.fit_scaling(GUESS)
    assert found.phi == pytest.approx(0.93, abs=1e-6)
    assert found.sigma_s == pytest.approx(35, abs=1e-6)
    assert found.lambda_s == pytest.approx(110, abs=1e-6)
    assert (found.stage3_above, found.curve) == (GUESS.stage3_above, ScalingCurve.PER_DOUBLING)


@pytest.mark.parametrize("seed", range(5))
def test_late_stamps_and_wrong_rates_hardly_matter(seed: int) -> None:
    """A tenth of the stamps is up to 19 s late, and the types are not as fast as configured."""
    running = job(seed, late=0.1)
    grown_and_shrunk(running)
    found = running.measured.fit_scaling(GUESS)
    assert found.phi == pytest.approx(0.93, abs=0.02)
    assert found.sigma_s == pytest.approx(35, abs=8)
    assert found.lambda_s == pytest.approx(110, abs=12)


@pytest.mark.parametrize("late", [0.0, 0.1])
def test_how_fast_each_type_is_shows_in_spells_of_different_footprints(late: float) -> None:
    """Neither type is as fast as its cores: 3.1 instead of 4, 7.4 instead of 8."""
    running = job(late=late)
    grown_and_shrunk(running)
    found = running.measured.fit_speeds()
    for name, truth in running.rates.items():
        assert found[name].low < truth < found[name].high
        assert found[name].value == pytest.approx(truth, rel=0.1)


@pytest.mark.parametrize("ratio", [0.6, 1.3])
def test_a_promise_takes_an_unseen_type_for_as_slow_as_the_slowest_that_was_seen(ratio: float) -> None:
    """Its mean, which is drawn to its cores, may say more: that is no ground for a promise."""
    running = job(phi=1.0)
    assert running.measured.safe_speeds() == GUESSED_RATES, "nothing is seen yet"
    running.rates = {name: ratio * rate for name, rate in GUESSED_RATES.items()}
    running.run({"small": 2}, 40)
    means, surely = running.measured.fit_speeds(), running.measured.safe_speeds()
    assert surely["small"] == means["small"].value
    share = means["small"].value / GUESSED_RATES["small"]
    assert share == pytest.approx(ratio, rel=0.02)
    assert surely["large"] == pytest.approx(min(means["large"].value, share * GUESSED_RATES["large"]))
    assert (surely["large"] < means["large"].value) == (ratio < 1)


def test_until_something_is_seen_the_configuration_holds() -> None:
    measured = MeasuredScaling.from_configured(GUESS, GUESSED_RATES, {"small": 2})
    assert measured.fit_scaling(GUESS) == GUESS
    short = (
        measured.add_stamp(Stamp(0, 0))
        .change_footprint(5, FootprintChange.LOST, {"small": 1})
        .add_stamp(Stamp(10, 1))
    )
    assert short.fit_scaling(GUESS) == GUESS


def test_one_footprint_tells_nothing_of_phi() -> None:
    running = job()
    running.run({"small": 2}, 40)
    assert running.measured.fit_scaling(GUESS).phi == 1.0


def test_a_type_without_a_rate_is_refused() -> None:
    with pytest.raises(KeyError, match="no rate for huge"):
        job().measured.change_footprint(1.0, FootprintChange.JOINED, {"huge": 1})


def test_folding_leaves_the_old_value_alone() -> None:
    running = job()
    before = running.measured
    grown_and_shrunk(running)
    assert before == MeasuredScaling.from_configured(GUESS, GUESSED_RATES, {"small": 2})


def test_a_long_stretch_keeps_a_bounded_number_of_stamps_and_its_loss() -> None:
    running = replace(job())
    running.run({"small": 2}, 20)
    running.run({"small": 8}, 2000, FootprintChange.JOINED)
    assert len(running.measured.now.stamps) <= 64
    assert running.measured.now.lost_s == pytest.approx(35, abs=1e-6)


@given(st.lists(st.floats(-1e6, 1e6), max_size=50), st.floats(-1e3, 1e3), st.integers(1, 5))
def test_a_robust_value_lies_among_what_was_seen(values: list[float], prior: float, weight: int) -> None:
    robust = RobustEstimate(prior, weight)
    for value in [*values, math.nan]:
        robust = robust.with_seen(value)
    assert min([*values, prior]) <= robust.value <= max([*values, prior])
    assert len(robust.seen) <= 32


def test_progress_that_no_machine_of_now_has_made_says_nothing() -> None:
    """Reports of machines that are gone by then may still come in."""
    measured = MeasuredScaling.from_configured(GUESS, GUESSED_RATES, {})
    for second in range(20):
        measured = measured.add_stamp(Stamp(float(second), 10.0 * second))
    assert measured.fit_scaling(GUESS) == GUESS
