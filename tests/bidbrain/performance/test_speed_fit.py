"""Speeds of types, learned from spells: against the closed form, and what a prior is for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bidbrain.performance.speed_fit import Speeds, SpeedSpell

NOMINAL = (("a", 4.0), ("b", 16.0), ("c", 8.0))
BEGUN = Speeds(NOMINAL)


def spell(seconds: float = 600.0, truth: tuple[float, ...] = (4.0, 16.0, 8.0), **machines: int) -> SpeedSpell:
    rates = dict(zip("abc", truth, strict=True))
    speed = sum(count * rates[name] for name, count in machines.items())
    return SpeedSpell(tuple(sorted(machines.items())), speed, seconds)


def speeds_after(*spells: SpeedSpell) -> Speeds:
    speeds = BEGUN
    for one in spells:
        speeds = speeds.with_spell(one)
    return speeds


def test_before_anything_is_seen_the_catalogue_holds_and_nobody_is_sure() -> None:
    for name, cores in NOMINAL:
        found = BEGUN.fit_speeds()[name]
        assert found.value == pytest.approx(cores)
        half = 1.96 * np.hypot(0.5, 0.25)
        assert found.low == pytest.approx(0.05 * cores)
        assert found.high == pytest.approx((1 + half) * cores)


def test_one_spell_by_hand() -> None:
    """One type, seen at half its speed for ten minutes: shrunk by noise / (noise + prior variance)."""
    found = Speeds((("a", 4.0),)).with_spell(spell(truth=(2.0, 0, 0), a=3)).fit_speeds()["a"]
    prior = 0.5**2 + 0.25**2
    noise = 0.05**2
    for _ in range(2):
        left = 0.5 * noise / (noise + prior)
        noise = (4 * 0.05**2 + left**2) / 5
    beyond = -0.5 * prior / (noise + prior)
    assert found.value == pytest.approx(4 * (1 + beyond), rel=1e-9)


def test_a_type_that_was_not_seen_moves_with_those_that_were() -> None:
    """The job's own count of work was too low: all types are half as fast."""
    found = speeds_after(spell(truth=(2.0, 8.0, 4.0), a=4), spell(truth=(2.0, 8.0, 4.0), b=2)).fit_speeds()
    assert found["c"].value == pytest.approx(4.0, rel=0.15)
    assert found["c"].high - found["c"].low > 2 * (found["a"].high - found["a"].low)


def test_footprints_of_several_types_tell_them_apart() -> None:
    truth = (4.0, 8.0, 8.0)
    mixed = [spell(truth=truth, a=n, b=m, c=1) for n, m in ((1, 1), (4, 1), (1, 4), (8, 0), (2, 6))]
    found = speeds_after(*mixed).fit_speeds()
    assert found["b"].value == pytest.approx(8.0, rel=0.05)
    assert found["a"].value == pytest.approx(4.0, rel=0.1)


def test_a_longer_spell_says_more() -> None:
    short, long = (
        speeds_after(spell(seconds, (2.0, 16.0, 8.0), a=2)).fit_speeds()["a"] for seconds in (20.0, 900.0)
    )
    assert long.value < short.value < 4.0
    assert long.high - long.low < short.high - short.low


def test_a_type_without_a_nominal_speed_is_refused() -> None:
    with pytest.raises(KeyError, match="no nominal speed of d"):
        BEGUN.with_spell(SpeedSpell((("d", 1),), 1.0, 600.0))


@given(
    st.lists(
        st.tuples(
            st.integers(0, 8), st.integers(0, 8), st.integers(1, 8), st.floats(0.2, 5), st.floats(1, 5000)
        ),
        max_size=80,
    )
)
def test_whatever_is_seen_speeds_are_positive_and_lie_in_their_intervals(
    seen: list[tuple[int, int, int, float, float]],
) -> None:
    speeds = BEGUN
    for a, b, c, factor, seconds in seen:
        machines = {name: count for name, count in (("a", a), ("b", b), ("c", c)) if count}
        one = spell(seconds, (4.0, 16.0, 8.0), **machines)
        speeds = speeds.with_spell(SpeedSpell(one.machines, one.speed * factor, seconds))
    assert len(speeds.spells) <= 64
    for found in speeds.fit_speeds().values():
        assert 0 < found.low <= found.value <= found.high


def test_the_intervals_hold_the_truth_about_as_often_as_they_say() -> None:
    """300 jobs drawn from the prior, ten spells each, their speeds off by 5 %."""
    rng = np.random.default_rng(20_261_120)
    inside = 0
    for _ in range(300):
        ratio = 1 + 0.5 * rng.normal() / 2 + 0.25 * rng.normal(size=3)
        truth = tuple((np.maximum(ratio, 0.2) * [4.0, 16.0, 8.0]).tolist())
        speeds = BEGUN
        for _ in range(10):
            a, b, c = rng.integers(0, 6, 3).tolist()
            one = spell(600.0, truth, a=a + 1, b=b, c=c)
            speeds = speeds.with_spell(SpeedSpell(one.machines, one.speed * (1 + 0.05 * rng.normal()), 600.0))
        found = speeds.fit_speeds()["b"]
        inside += found.low <= truth[1] <= found.high
    assert 0.88 <= inside / 300 <= 0.99, inside / 300
