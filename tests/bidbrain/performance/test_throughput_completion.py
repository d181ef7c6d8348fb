"""Estimated throughputs: by hand, and on the published table with a job at a time held out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bidbrain.performance.throughput_completion import (
    MeasuredThroughput,
    References,
    Source,
    ThroughputEstimate,
    UnknownThroughput,
    complete_table,
    estimate_alone,
)
from tests.papers.protocols.sharing import V100, table

RATES = st.floats(0.01, 1e4)


@given(rates=st.lists(RATES, min_size=3, max_size=20))
def test_measurements_are_their_mean_and_its_error(rates: list[float]) -> None:
    seen = MeasuredThroughput()
    for rate in rates:
        seen = seen.with_measurement(rate)
    found = seen.estimate
    assert found.steps_per_s == pytest.approx(np.mean(rates))
    error = np.std(rates, ddof=1) / np.mean(rates) / np.sqrt(len(rates))
    assert found.error == pytest.approx(error, rel=1e-5, abs=1e-7)


def test_a_rate_that_is_none_is_refused() -> None:
    for rate in (-1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="expected a number of steps"):
            MeasuredThroughput().with_measurement(rate)


def test_measured_goes_before_the_catalogue() -> None:
    seen = {"k80": MeasuredThroughput().with_measurement(2.0)}
    speed = {"k80": 1.0, "v100": 5.0}
    assert estimate_alone(seen, speed, "k80").source is Source.MEASURED
    guessed = estimate_alone(seen, speed, "v100")
    assert guessed.steps_per_s == pytest.approx(10.0)
    assert guessed.source is Source.CATALOGUE
    assert guessed.error > estimate_alone(seen, speed, "k80").error
    assert str(guessed) == "10 steps/s ± 50% (catalogue)"


def test_of_what_nobody_knows_it_says_what_to_measure() -> None:
    with pytest.raises(UnknownThroughput, match="on tpu: run it there for a few minutes, or on any of k80"):
        estimate_alone({}, {"k80": 1.0}, "tpu")
    with pytest.raises(UnknownThroughput, match="a trial beside one reference job"):
        References(np.ones((2, 2))).find_nearest({})


@given(seed=st.integers(0, 1000))
def test_a_table_of_low_rank_is_completed(seed: int) -> None:
    chance = np.random.default_rng(seed)
    whole = chance.uniform(0.2, 1, (20, 1)) @ chance.uniform(0.2, 1, (1, 15))
    known = chance.random(whole.shape) < 0.7
    found = complete_table(whole, known, 2)
    assert (found[known] == whole[known]).all()
    assert np.sqrt(np.mean((found - whole) ** 2)) < 0.08


def test_a_job_like_a_reference_is_found_by_a_few_trials() -> None:
    part = np.array([[0.9, 0.5, 0.7], [0.5, 0.3, 0.4], [0.7, 0.4, 0.6]])
    match = References(part).find_nearest({0: 0.5, 1: 0.3})
    assert match.reference == 1
    own = ThroughputEstimate(10.0, 0.1, Source.MEASURED)
    beside = match.estimate_beside(2, own)
    assert beside.steps_per_s == pytest.approx(4.0)
    assert beside.error >= own.error


def test_four_trials_beat_knowing_only_the_others_means(recorded_data: Path) -> None:
    """The published pairs on a V100, each model in turn as the new job; the others are the references."""
    found = table(recorded_data)
    single = found.of(1)
    together = found.kinds.together
    assert together is not None
    rates = found.kinds.rates[single, V100]
    part = together[np.ix_(single, single)][:, :, V100] / rates[:, None]
    chance = np.random.default_rng(0)
    matched, means = [], []
    for new in range(len(single)):
        others = np.delete(np.arange(len(single)), new)
        references = References(part[np.ix_(others, others)])
        truth = part[new, others]
        tried = chance.choice(len(others), 4, replace=False)
        match = references.find_nearest({int(at): float(truth[at]) for at in tried})
        rest = np.setdiff1d(np.arange(len(others)), tried)
        matched.append(np.abs(match.part - truth)[rest].mean())
        means.append(np.abs(references.part.mean(axis=0) - truth)[rest].mean())
    print(f"seed 0; mean error {np.mean(matched):.3f}, by means {np.mean(means):.3f}")
    assert np.mean(matched) < 0.75 * np.mean(means)
