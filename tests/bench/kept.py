"""How fast jobs are run within a deadline, as a backtest does, beside the same jobs as a replay runs them.

The quickstart's job with six hours to spare, from three starts; every pair runs one after the other, three
times, and medians are compared. The backtest keeps no ledger and finds price crossings once for all jobs.
"""

from __future__ import annotations

import statistics
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from pricing_data.model.units import HOUR_S, Instant, Seconds
from spotctl.backtest.prepare import BacktestOptions, prepare_backtest
from spotctl.backtest.with_deadline import index_crossings, run_job
from spotctl.control import entries as e
from spotctl.control.drive import drive, start_run
from spotctl.control.state import State
from spotctl.job.file import load_job
from spotctl.job.resolve import ResolvedJob
from spotctl.records.ledger import Ledger
from spotctl.worlds.replay import replay_world
from tests.spotctl.build import Silent, changed

JOB = Path(__file__).parents[2] / "examples" / "quickstart.yaml"
SEED, STARTS, REPEATS = 0, 3, 3


def replayed(resolved: ResolvedJob) -> State:
    """As ``spotctl launch --world replay`` runs it, its ledger in memory."""
    begun = e.JobStarted(resolved.terms.start, resolved.terms)
    with closing(Ledger.in_memory()) as ledger:
        state = start_run(begun, resolved.trace, ledger, Silent(), resolved.capacity)
        return drive(state, replay_world(resolved, asks=lambda: ()).world, ledger, Silent())


def main() -> None:
    """Print processor time per job, by strategy."""
    spec = load_job(JOB)
    spec = replace(spec, objective=replace(spec.objective, deadline=Seconds(6.0 * HOUR_S)))
    job = prepare_backtest(spec, BacktestOptions(starts=STARTS, seed=SEED))
    model = index_crossings(job.resolved)
    print(f"seed {SEED}; processor time per job, medians of {STARTS} starts x {REPEATS}")
    for strategy in ("proteus", "tierml", "uniform-progress", "greedy"):
        took: dict[str, list[float]] = {"backtest": [], "replay": []}
        for begins in job.starts.tolist() * REPEATS:
            terms = changed(job.resolved.terms, strategy=strategy, start=Instant(begins))
            resolved, states = replace(job.resolved, terms=terms), []
            for name in took:
                began = time.process_time()
                states.append(run_job(resolved, model) if name == "backtest" else replayed(resolved))
                took[name].append(time.process_time() - began)
            assert states[0].instances == states[1].instances
        ours, theirs = (statistics.median(values) for values in took.values())
        times = f"backtest {ours * 1000:4.0f} ms, replay {theirs * 1000:4.0f} ms"
        print(f"{strategy:>18}: {times}, {theirs / ours:.1f} x")


if __name__ == "__main__":
    main()
