"""Strategies kept within a deadline, beside those that are run alone."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from bidbrain.backtest.statistics import Outcomes
from bidbrain.strategies.registry import LIVE
from pricing_data.model.units import HOUR_S, Instant, Seconds, parse_instant
from spotctl.backtest.prepare import BacktestOptions, PreparedBacktest, prepare_backtest
from spotctl.backtest.result import run_backtest
from spotctl.backtest.strategies import row_name, strategies_with_deadline
from spotctl.backtest.with_deadline import MOST_STARTS, index_crossings, run_job, run_with_deadline, starts_of
from spotctl.cli.app import app
from spotctl.control import entries as e
from spotctl.control.billing import instance_bills
from spotctl.control.drive import drive, start_run
from spotctl.errors import UsageError
from spotctl.job.file import load_job
from spotctl.records.ledger import Ledger
from spotctl.worlds.replay import replay_world
from tests.spotctl.build import Silent, changed, redecided

JOB = Path(__file__).parents[3] / "examples" / "quickstart.yaml"


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A home of its own: the prices of whoever runs the tests are none of theirs."""
    monkeypatch.setenv("SPOTCTL_HOME", str(tmp_path / "home"))


def prepared(hours: float | None, options: BacktestOptions) -> PreparedBacktest:
    spec = load_job(JOB)
    deadline = None if hours is None else Seconds(hours * HOUR_S)
    return prepare_backtest(replace(spec, objective=replace(spec.objective, deadline=deadline)), options)


def unheard(done: int, total: int) -> None:
    assert done <= total


def test_with_time_enough_greedy_is_failover_alone_to_the_micro_dollar() -> None:
    """The batches and the control core, on the same starts: one strategy, one bill."""
    options = BacktestOptions(starts=3, strategies=("failover-agileml", "greedy"))
    result = run_backtest("test", prepared(24.0, options), options, 0.0, unheard)
    free, kept = result.strategy_result("failover-agileml"), result.strategy_result("greedy")
    assert (free.kept, kept.kept) == (False, True)
    assert np.array_equal(free.costs, kept.costs)
    assert free.finish_s == kept.finish_s
    assert free.relative_cost == kept.relative_cost
    assert (free.evictions, free.free_fraction) == (kept.evictions, kept.free_fraction)


def test_a_deadline_that_presses_is_kept_and_costs() -> None:
    options = BacktestOptions(starts=4, strategies=("failover-agileml", "uniform-progress"))
    result = run_backtest("test", prepared(1.92, options), options, 0.0, unheard)
    kept = result.strategy_result("uniform-progress")
    assert (kept.deadline_misses, kept.unfinished) == (0, 0)
    assert result.refused == ""
    assert kept.cost is not None
    assert kept.cost.mean > result.oracle_paid.mean


def test_a_deadline_that_cannot_be_promised_says_so() -> None:
    options = BacktestOptions(starts=1, strategies=("greedy",))
    result = run_backtest("test", prepared(1.0, options), options, 0.0, unheard)
    assert result.strategy_result("greedy").deadline_misses == 1
    assert "the least that works is" in result.refused


def test_jobs_that_the_window_cuts_off_are_unfinished_and_late() -> None:
    """What begins an hour before the window ends goes on after it, and does not count."""
    options = BacktestOptions(starts=2, last=parse_instant("2016-07-01T12:00:00Z"))
    job = prepared(1.92, options)
    late = replace(job, starts=np.array([job.tape.end - HOUR_S]))
    (found,) = run_with_deadline(late, ("greedy",), unheard).values()
    assert isinstance(found, Outcomes)
    assert np.isinf(found.finish_s).all()
    assert found.late.all()


def test_several_processes_say_the_same_as_one() -> None:
    told: list[tuple[int, int]] = []
    job = prepared(6.0, BacktestOptions(starts=12))
    together = run_with_deadline(job, ("greedy",), lambda done, total: told.append((done, total)))["greedy"]
    one_by_one = [
        run_with_deadline(replace(job, starts=job.starts[n : n + 1]), ("greedy",), unheard)["greedy"]
        for n in (0, 11)
    ]
    assert [together.cost[0], together.cost[11]] == [o.cost[0] for o in one_by_one]
    assert told == [(0, 12), (10, 12), (12, 12)]


@pytest.mark.parametrize("strategy", [name for name in LIVE if name != "on-demand"])
def test_a_job_is_run_entry_by_entry_as_it_runs_live(strategy: str) -> None:
    """Neither what the backtest holds of the trace nor what it leaves out changes what is decided or paid."""
    prepared_job = prepared(4.0, BacktestOptions(starts=2, seed=4))
    begins = Instant(int(prepared_job.starts[0]))
    terms = changed(prepared_job.resolved.terms, strategy=strategy, start=begins)
    resolved = replace(prepared_job.resolved, terms=terms)
    quick = run_job(resolved, index_crossings(resolved))
    with closing(Ledger.in_memory()) as ledger:
        begun = start_run(e.JobStarted(begins, terms), resolved.trace, ledger, Silent(), resolved.capacity)
        live = drive(begun, replay_world(resolved, asks=lambda: ()).world, ledger, Silent())
        entries = ledger.read_entries()
    assert redecided(entries, resolved.trace) == list(entries)
    assert (quick.deciding.decisions, quick.deciding.last_decision) == (
        live.deciding.decisions,
        live.deciding.last_decision,
    )
    assert (quick.allocations, quick.instances) == (live.allocations, live.instances)
    assert list(instance_bills(quick)) == list(instance_bills(live))
    assert (quick.now, quick.training.worked, quick.knowledge.belief) == (
        live.now,
        live.training.worked,
        live.knowledge.belief,
    )


def test_the_starts_are_a_part_of_the_batches() -> None:
    starts = np.arange(0, 1000, 7)
    chosen = starts_of(starts)
    assert len(chosen) == MOST_STARTS
    assert (chosen[0], chosen[-1]) == (0, len(starts) - 1)
    assert starts_of(starts[:3]).tolist() == [0, 1, 2]


def test_which_are_kept() -> None:
    assert strategies_with_deadline(3600.0, (), "tierml") == ("auto", "tierml", "uniform-progress", "greedy")
    assert strategies_with_deadline(3600.0, ("standard", "tierml", "on-demand"), "proteus") == ("tierml",)
    assert strategies_with_deadline(None, ("tierml",), "proteus") == ()
    assert (row_name("tierml"), row_name("greedy")) == ("tierml, kept", "greedy")
    with pytest.raises(UsageError, match=r"greedy is a way to keep a deadline.*set objective\.deadline"):
        strategies_with_deadline(None, ("greedy",), "proteus")


def test_the_verb_shows_both(tmp_path: Path) -> None:
    job = tmp_path / "job.yaml"
    ratings = JOB.parent / "data" / "ratings.csv.gz"
    text = JOB.read_text().replace("data/ratings.csv.gz", str(ratings))
    job.write_text(text + "objective: {deadline: 1h}\n")
    asked = ("backtest", str(job), "--starts", "2", "--strategies", "standard,greedy")
    answer = json.loads(CliRunner().invoke(app, [*asked, "--json"]).stdout)
    assert {name: (s["kept"], s["starts"]) for name, s in answer["strategies"].items()} == {
        "on-demand": (False, 2),
        "standard": (False, 2),
        "greedy": (True, 2),
    }
    assert "cannot be promised" in answer["refused"]
    shown = CliRunner().invoke(app, list(asked)).stdout
    assert "kept within the deadline, as a run is: greedy; from 2 of the starts" in shown
    assert "a launch would be refused" in shown
