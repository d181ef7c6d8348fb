"""How fast jobs are backtested, beside the full control core replaying one of them in the same run.

Three markets, jobs of some six hours. Both sides take the same decisions (a test holds them to it), but
for beta: the core fits it hourly and exactly, the backtest reads it from tables. Memory: the whole process.
"""

from __future__ import annotations

import resource
import time

import numpy as np

from bidbrain.backtest.beta_grid import BetaTables
from bidbrain.backtest.job import BacktestJob
from bidbrain.backtest.price_tape import PriceTape
from bidbrain.backtest.run import backtest
from bidbrain.eviction.price.price_crossing import PriceCrossing
from bidbrain.strategies.proteus import BidBrain
from pricing_data.model.units import HOUR_S, Instant
from spotctl.backtest.prepare import setting_of
from tests.spotctl.build import START, random_trace, replay, terms

CLOCKS = 240


def main() -> None:
    """Print jobs per second, by how many are run at once."""
    trace, of = random_trace(0), terms(clocks=CLOCKS)
    began = time.perf_counter()
    state, _ = replay(of, trace)
    core_s = time.perf_counter() - began
    assert state.training.clock == CLOCKS
    print(f"control core: {core_s:.2f} s for one job")
    setting = setting_of(of)
    tape = PriceTape.from_history(trace, setting.markets, START, Instant(START + 72 * HOUR_S))
    began = time.perf_counter()
    fitted = PriceCrossing().fit(trace.as_of(START), START)
    tables = BetaTables.from_fitted(fitted, setting.markets, setting.limits.bid_deltas)
    print(f"tables of {len(setting.markets)} markets: {time.perf_counter() - began:.2f} s")
    job = BacktestJob(CLOCKS * of.work.core_seconds_per_clock, 60, of.work.core_seconds_per_clock)
    for count in (1, 100, 1000, 10_000):
        starts = np.random.default_rng(0).integers(START, START + 24 * HOUR_S, count)
        began = time.perf_counter()
        found = backtest(BidBrain(), setting, job, tape, lambda _: tables, starts)
        took = time.perf_counter() - began
        assert np.isfinite(found.outcomes.finish_s).all()
        print(
            f"{count:>6} jobs at once: {took:7.2f} s, {count / took:7.0f} jobs/s, "
            f"{core_s * count / took:7.0f} times the control core"
        )
    print(f"at most {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")


if __name__ == "__main__":
    main()
