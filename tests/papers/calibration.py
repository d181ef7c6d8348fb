"""Is beta true? Eviction probabilities against what happened, later and elsewhere than they were learned.

The event: a machine that is up at a start is lost within the hour. In the capacity era a start is every five
minutes of a recorded spell of availability; in the auction era every instant, of a machine that bids delta
above the price.

Capacity era, the rule of the split: the markets (zone and type) of the published grids, in alphabetical
order, are dealt alternately. The first, third ... are learned from, in the first half of each of their
records, and judged in the second half. The others are unseen: judged over their whole record but its first
day. Settings were chosen by leaving out one market after the other of the training halves. What competes:

    conditioned   learned once on the training halves; a market's own record moves it as it goes
    lifetimes     Kaplan-Meier of the market's own spells so far, every midnight
    pooled        the training markets' and the market's own spells so far, every midnight
    chosen        each day the one that the market's last 14 days speak for (``scoring.choose_estimator``)
    hindsight     the share lost by age (20 classes) among the judged starts themselves: no forecast, but what
                  knowing the zone's hazard by age beforehand would have been worth
    base          the share lost among the market's own starts settled so far: what skill is measured against

Auction era: beta of each of 20 deltas from the first 60 % of a market's prices, against the exact share of
the rest; and, for a zone as if never seen, from the same type's prices in the region's other zones.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from bidbrain.arrays import Floats
from bidbrain.eviction.capacity.curves import CurveModel
from bidbrain.eviction.capacity.exposure import AGE_EDGES_S, exposure_rows
from bidbrain.eviction.capacity.lifetime_model import LifetimeModel
from bidbrain.eviction.capacity.pooled import PooledModel
from bidbrain.eviction.capacity.regime_hazard import LearnedHazard, MarketRecord, Memory, learn_hazard
from bidbrain.eviction.price.price_crossing import PriceCrossing
from bidbrain.eviction.scoring import (
    CHOICE_DAYS,
    CHOICE_STEP_S,
    Starts,
    base_rates,
    brier_score,
    brier_skill,
    find_starts,
    has_enough,
    log_loss,
    log_losses,
    prefer_least_loss,
    reliability_bins,
)
from pricing_data.formats.traces import read_trace
from pricing_data.model.capacity_spells import Observations
from pricing_data.model.market import PriceHistory
from pricing_data.model.units import HOUR_S, Instant
from tests.papers.protocols import auctions
from tests.papers.protocols.capacity import Zone, grids, machines, whole_groups

STEP_S: Final = 300
DAY_S: Final = 86400
ESTIMATORS: Final = ("conditioned", "lifetimes", "pooled", "chosen")


@dataclass(frozen=True, slots=True, eq=False)
class Scored:
    """One zone's judged starts and what each estimator gave them."""

    zone: Zone
    unseen: bool
    starts: Starts
    base: Floats
    given: Mapping[str, Floats]

    def skill(self, name: str) -> float:
        return brier_skill(self.given[name], self.base, self.starts.lost)

    @property
    def hindsight(self) -> float:
        """Skill of the share lost by age, fitted to the judged starts themselves."""
        borders = np.quantile(self.starts.ages_s, np.linspace(0, 1, 21)[1:-1])
        place = np.searchsorted(borders, self.starts.ages_s)
        sums = np.bincount(place, weights=self.starts.lost, minlength=20)
        shares = sums / np.maximum(np.bincount(place, minlength=20), 1)
        return brier_skill(shares[place], self.base, self.starts.lost)

    def interval(self, name: str, random: np.random.Generator, resamples: int = 500) -> tuple[float, float]:
        """95 % bootstrap interval of the skill, over days."""
        _, day = np.unique(self.starts.moments // DAY_S, return_inverse=True)
        ours = np.bincount(day, weights=(self.given[name] - self.starts.lost) ** 2)
        theirs = np.bincount(day, weights=(self.base - self.starts.lost) ** 2)
        drawn = random.integers(0, len(ours), size=(resamples, len(ours)))
        skills = 1 - ours[drawn].sum(axis=1) / np.maximum(theirs[drawn].sum(axis=1), 1e-12)
        low, high = np.percentile(skills, (2.5, 97.5))
        return float(low), float(high)


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """The published grids: what is learned from, and what is judged."""

    learned: LearnedHazard
    training: Observations
    zones: tuple[tuple[Zone, bool, Instant], ...]
    """(zone, unseen, judged from)."""


def split(zones: Sequence[Zone]) -> Split:
    """Splits by the rule above.

    Leaves out zones in which nothing was ever lost: no base rate is wrong there.
    """
    kept = [zone for zone in zones if bool(zone.spells.lost.any())]
    markets = sorted({zone.market for zone in kept})
    training = Observations()
    judged = []
    for zone in kept:
        unseen = markets.index(zone.market) % 2 == 1
        half = Instant((zone.begin + zone.end) // 2)
        if not unseen:
            known = Observations.from_spells({zone.market: zone.spells.as_of(half)})
            training = training.merge_with(known)
        judged.append((zone, unseen, Instant(zone.begin + DAY_S) if unseen else half))
    learned = learn_hazard(training, Instant(max(zone.end for zone in kept)), Memory())
    assert learned is not None
    return Split(learned, training, tuple(judged))


def score(found: Split, zone: Zone, unseen: bool, judged_from: Instant) -> Scored:
    """All estimators on one zone."""
    every = find_starts(zone.spells, STEP_S, HOUR_S)
    base = base_rates(every, HOUR_S)
    record = MarketRecord.from_rows(
        found.learned, exposure_rows(Observations.from_spells({zone.market: zone.spells}))
    )
    own = Observations.from_spells({zone.market: zone.spells})
    others = found.training if unseen else Observations()
    given = {
        "conditioned": -np.expm1(-record.hazards_at(every.moments, every.ages_s, HOUR_S)),
        "lifetimes": _daily(LifetimeModel(own), zone, every, base),
        "pooled": _daily(PooledModel(others.merge_with(own)), zone, every, base),
    }
    given["chosen"] = _choose_in_bulk(given, every)
    judged = every.moments >= judged_from
    return Scored(
        zone,
        unseen,
        every.select_period(judged_from, float("inf")),
        base[judged],
        {name: values[judged] for name, values in given.items()},
    )


def _daily(model: CurveModel, zone: Zone, every: Starts, fallback: Floats) -> Floats:
    """Fitted every midnight to what was known then; the base rate where it knew nothing."""
    given = fallback.copy()
    for day in np.unique(every.moments // DAY_S):
        midnight = Instant(int(day * DAY_S))
        today = every.moments // DAY_S == day
        known = model.fit(PriceHistory(), midnight).market_curve(zone.market)
        if known is not None:
            given[today] = -np.expm1(-known.curve.hazards_between(every.ages_s[today], HOUR_S))
    return given


def _choose_in_bulk(given: Mapping[str, Floats], every: Starts) -> Floats:
    """The rule of ``scoring.choose_estimator``, in bulk."""
    losses = {name: log_losses(values, every.lost) for name, values in given.items()}
    asked = every.moments % CHOICE_STEP_S == 0
    chosen = given["conditioned"].copy()
    for day in np.unique(every.moments // DAY_S):
        begin = day * DAY_S
        settled = asked & (every.moments + HOUR_S <= begin) & (every.moments >= begin - CHOICE_DAYS * DAY_S)
        today = every.moments // DAY_S == day
        if has_enough(every.lost[settled]):
            best = prefer_least_loss({name: values[settled] for name, values in losses.items()})
            chosen[today] = given[best][today]
    return chosen


def coverage(found: Split, random: np.random.Generator) -> tuple[int, int]:
    """(days, days within): the losses of each judged day against the interval of its hazard.

    A day's expected losses are the conditioned hazard over what then ran; the interval says what factor the
    hazard may be off by, and losses scatter around it by chance: 95 of 100 days should lie inside both.
    """
    inside = total = 0
    for zone, _, judged_from in found.zones:
        rows = exposure_rows(Observations.from_spells({zone.market: zone.spells}))
        record = MarketRecord.from_rows(found.learned, rows)
        hazard = record.hazards_at(rows.begins, AGE_EDGES_S[rows.cell], rows.at_risk_s)
        _, day = np.unique(rows.begins // DAY_S, return_inverse=True)
        judged = np.bincount(day, weights=rows.begins >= judged_from) > 0
        awaited, counted = np.bincount(day, weights=hazard), np.bincount(day, weights=rows.lost)
        shape = found.learned.shape
        factors = random.gamma(shape, 1 / shape, size=(4000, len(awaited)))
        low, high = np.percentile(random.poisson(factors * awaited), (2.5, 97.5), axis=0)
        inside += int(np.count_nonzero((counted >= low) & (counted <= high) & judged))
        total += int(np.count_nonzero(judged))
    return total, inside


def beside_prices(data: Path, found: Split) -> list[tuple[Scored, Mapping[float, float]]]:
    """The V100 zones of 2023 with their prices: Brier of price crossing by delta, fitted every midnight."""
    recording = read_trace(data / "aws-v100-prices-2023" / "spot_prices.csv.gz")
    compared: list[tuple[Scored, Mapping[float, float]]] = []
    for zone, unseen, judged_from in found.zones:
        if not zone.campaign.startswith("2023-02-15"):
            continue
        scored = score(found, zone, unseen, judged_from)
        briers = {}
        for delta in (0.0001, 0.001, 0.01, 0.1, 0.4):
            given = np.ones(len(scored.starts))
            for day in np.unique(scored.starts.moments // DAY_S):
                fitted = PriceCrossing().fit(recording.history, Instant(int(day * DAY_S)))
                today = scored.starts.moments // DAY_S == day
                given[today] = fitted.eviction_probability(zone.market, delta, 0.0, HOUR_S)
            briers[delta] = brier_score(given, scored.starts.lost)
        compared.append((scored, briers))
    return compared


def data_folder() -> Path:
    """``SPOTCTL_DATA``, or shared/data beside the repository."""
    beside = Path(__file__).resolve().parents[2].parent / "shared" / "data"
    return Path(os.environ.get("SPOTCTL_DATA") or beside)


def main() -> None:
    """Print all tables. ``--seed`` moves the bootstrap and the coverage's draws, nothing else."""
    parser = argparse.ArgumentParser(prog="python -m tests.papers calibration")
    parser.add_argument("--seed", type=int, default=1)
    seed = parser.parse_args(sys.argv[2:]).seed
    data, random = data_folder(), np.random.default_rng(seed)
    print(f"seed {seed}; event: up at a start, lost within the hour; a start every {STEP_S} s")
    found = split(grids(data))
    _print_learned(found)
    scored = [score(found, *zone) for zone in found.zones]
    _print_zones("published grids, one node or more", scored, random)
    _print_reliability(scored)
    days, inside = coverage(found, random)
    print(f"\nintervals: {inside} of {days} judged days within the 95 % interval of their hazard")
    _print_beside_prices(beside_prices(data, found))
    groups = [zone for zone in whole_groups(data) if bool(zone.spells.lost.any())]
    _print_zones("whole groups of 4 and 16 nodes", [_whole(found, zone) for zone in groups], random)
    lived = [score(found, zone, True, Instant(zone.begin + _warm_up(zone))) for zone in machines(data)]
    _print_zones("machines that ran until they were lost or given up", lived, random)
    auctions.report(data)


def _whole(found: Split, zone: Zone) -> Scored:
    return score(found, zone, True, Instant(zone.begin + DAY_S))


def _warm_up(zone: Zone) -> int:
    """A day, or a quarter of a record shorter than four."""
    return int(min(DAY_S, (zone.end - zone.begin) // 4))


def _print_learned(found: Split) -> None:
    learned = found.learned
    print(
        f"learned from {learned.losses} losses in {learned.at_risk_s / HOUR_S:.0f} h of {learned.markets} "
        f"markets; shape of daily hazards {learned.shape:.1f}"
    )


def _print_zones(title: str, scored: Sequence[Scored], random: np.random.Generator) -> None:
    names = "".join(f"{name:>12}" for name in (*ESTIMATORS, "hindsight"))
    print(f"\n{title}\n{'days':>58}{'losses':>7}{'share':>7}{'given':>7}{names}", end="")
    print("   95 % of skill     log loss: base, conditioned")
    for one in scored:
        late = one.zone.spells.ends >= one.starts.moments[0]
        losses = int(np.count_nonzero(one.zone.spells.lost & late))
        given, lost = one.given["conditioned"], one.starts.lost
        skills = "".join(f"{value:12.3f}" for value in (*map(one.skill, ESTIMATORS), one.hindsight))
        low, high = one.interval("conditioned", random)
        print(
            f"{'unseen' if one.unseen else 'later':7}{one.zone.name:46}{one.zone.days:5.1f}{losses:7d}"
            f"{lost.mean():7.3f}{given.mean():7.3f}{skills}   [{low:6.3f}, {high:6.3f}]"
            f"     {log_loss(one.base, lost):.3f}  {log_loss(given, lost):.3f}"
        )
    means = "".join(f"{np.mean([one.skill(name) for one in scored]):12.3f}" for name in ESTIMATORS)
    print(f"{'mean skill':79}{means}")


def _print_reliability(scored: Sequence[Scored]) -> None:
    given = np.concatenate([one.given["conditioned"] for one in scored])
    lost = np.concatenate([one.starts.lost for one in scored])
    print("\nreliability, conditioned, all zones\n      given    starts    given  happened")
    for row in reliability_bins(given, lost):
        print(f"{row.low:5.1f}-{row.high:3.1f} {row.count:9d} {row.given:8.3f} {row.happened:9.3f}")


def _print_beside_prices(compared: Sequence[tuple[Scored, Mapping[float, float]]]) -> None:
    print("\nV100 of 2023, with prices: Brier score of conditioned, and of price crossing at each delta")
    for scored, briers in compared:
        ours = brier_score(scored.given["conditioned"], scored.starts.lost)
        theirs = "  ".join(f"{delta}: {value:.3f}" for delta, value in briers.items())
        print(f"{scored.zone.name:46} {ours:.3f}   {theirs}   skill {1 - ours / min(briers.values()):.3f}")
