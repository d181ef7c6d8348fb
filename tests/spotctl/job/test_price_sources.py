"""Where a job's prices come from: a name in its file, for plan, launch and backtest alike."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from pricing_data.snapshots import BUNDLED, bundled_market
from spotctl.control.entries import Entry
from spotctl.control.state import State
from spotctl.job.file import load_job
from spotctl.job.price_sources import (
    PRICE_SOURCES,
    STORE,
    open_source,
    prices_root,
    register_price_source,
)
from spotctl.job.resolve import PriceOptions, resolve_job
from spotctl.job.settings import LaunchOptions, Settings
from spotctl.records.run import Run, RunStore
from spotctl.session.open import create_run, reopen_run
from tests.fakes.listed_prices import ListedPrices
from tests.spotctl.cli.commandline import JOB, TRACE_START, spotctl, write_job

LAUNCH = ("--world", "replay", "--trace-start", TRACE_START, "--yes", "--json")


class Unheard:
    def on_start(self, run: Run, prices: str) -> None: ...

    def on_entry(self, state: State, entry: Entry) -> None: ...


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("SPOTCTL_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def job_with(folder: Path, prices: str) -> str:
    write_job(folder)
    (folder / "nightly.yaml").write_text(f"{JOB}prices: {prices}\n")
    return str(folder / "nightly.yaml")


def fill_store() -> None:
    """Imports what the bundled market has."""
    assert spotctl("prices", "import", str(BUNDLED)).exit_code == 0


@pytest.mark.usefixtures("home")
def test_a_job_runs_at_the_prices_of_the_store_as_at_those_of_the_file_it_was_filled_with(
    tmp_path: Path,
) -> None:
    fill_store()
    job = job_with(tmp_path, "store")
    planned = json.loads(spotctl("plan", job, "--trace-start", TRACE_START, "--json").stdout)
    assert planned["prices"] == "the price store"
    stored, recorded = (
        json.loads(spotctl("launch", job, *LAUNCH, *more).stdout.splitlines()[-1])
        for more in ((), ("--trace", str(BUNDLED)))
    )
    assert stored["state"] == "done"
    assert stored["cost"] == recorded["cost"]
    tested = spotctl("backtest", job, "--starts", "3", "--strategies", "proteus", "--json")
    assert json.loads(tested.stdout)["prices"] == "the price store"


@pytest.mark.usefixtures("home")
def test_an_empty_store_says_how_to_fill_it(tmp_path: Path) -> None:
    job = job_with(tmp_path, "store")
    for verb in (("plan", job), ("launch", job, *LAUNCH), ("backtest", job)):
        refused = spotctl(*verb)
        assert refused.exit_code == 2
        assert "the price store: found no price" in refused.stderr
        assert "spotctl prices fetch" in refused.stderr


@pytest.mark.usefixtures("home")
def test_a_store_without_the_jobs_markets_says_what_it_has(tmp_path: Path) -> None:
    fill_store()
    job = job_with(tmp_path, "store")
    Path(job).write_text(Path(job).read_text().replace("[c4.xlarge]", "[p3.2xlarge]"))
    refused = spotctl("plan", job)
    assert refused.exit_code == 2
    assert "no market of the price store has instance_types: p3.2xlarge; it has c4.2xlarge@" in refused.stderr


@pytest.mark.usefixtures("home")
def test_a_job_file_names_a_recorded_file_beside_it(tmp_path: Path) -> None:
    shutil.copy(BUNDLED, tmp_path / "june.csv.gz")
    job = job_with(tmp_path, "june.csv.gz")
    planned = json.loads(spotctl("plan", job, "--trace-start", TRACE_START, "--json").stdout)
    assert planned["prices"] == str(tmp_path / "june.csv.gz")


def test_prices_that_are_neither_named_nor_a_file_are_refused(tmp_path: Path) -> None:
    refused = spotctl("plan", job_with(tmp_path, "stroe"))
    assert refused.exit_code == 2
    assert "nightly.yaml:8:9: prices: found 'stroe', expected store or bundled" in refused.stderr


# ---- what a run keeps ---------------------------------------------------------------------------


@pytest.mark.usefixtures("home")
def test_a_run_goes_on_at_the_prices_it_began_with_whatever_became_of_the_store(tmp_path: Path) -> None:
    fill_store()
    settings = Settings.from_options(load_job(Path(job_with(tmp_path, STORE))), LaunchOptions())
    resolved = resolve_job(settings.spec, settings.prices, "", settings.seed)
    begun = create_run(RunStore(), settings, resolved, Unheard())
    shutil.rmtree(prices_root())
    again = reopen_run(begun.run, begun.ledger, settings)
    begun.ledger.close()
    assert again.inputs.terms == begun.state.terms
    assert again.inputs.trace.markets == resolved.trace.markets
    for market in resolved.trace.markets:
        kept, was = again.inputs.trace.series(market), resolved.trace.series(market)
        assert (kept.times.tolist(), kept.prices.tolist()) == (was.times.tolist(), was.prices.tolist())
        # Decisions see no more than what was known by now, although the run has the whole.
        known = again.state.history.series(market)
        assert 0 < len(known) < len(kept)
        assert known.times[-1] <= again.state.now


# ---- a source that the program has never heard of ------------------------------------------------


@pytest.fixture
def listed() -> Iterator[ListedPrices]:
    """A market whose price is known for five weeks: a cent an hour more every day."""
    market = next(m for m in bundled_market().series if m.instance_type == "c4.xlarge")
    begin = bundled_market().first
    source = ListedPrices({(market, begin + day * 86400): 0.01 + 0.001 * day for day in range(36)})  # type: ignore[misc]
    register_price_source("listed", lambda: source)
    yield source
    del PRICE_SOURCES["listed"]


@pytest.mark.usefixtures("home")
def test_another_source_is_planned_with_launched_and_backtested(listed: ListedPrices, tmp_path: Path) -> None:
    job = job_with(tmp_path, "listed")
    planned = json.loads(spotctl("plan", job, "--trace-start", TRACE_START, "--json").stdout)
    assert planned["prices"] == "a list"
    final = json.loads(spotctl("launch", job, *LAUNCH).stdout.splitlines()[-1])
    assert (final["state"], final["instances_left"]) == ("done", 0)
    tested = spotctl("backtest", job, "--starts", "3", "--strategies", "proteus", "--json")
    assert json.loads(tested.stdout)["prices"] == "a list"
    assert open_source("listed") is listed


@pytest.mark.usefixtures("listed")
def test_a_name_is_taken_once() -> None:
    with pytest.raises(ValueError, match="there are prices called 'listed' already"):
        register_price_source("listed", lambda: ListedPrices({}))


def test_the_bundled_market_needs_no_name(tmp_path: Path) -> None:
    write_job(tmp_path)
    spec = load_job(tmp_path / "nightly.yaml")
    assert spec.prices is None
    assert resolve_job(spec, PriceOptions(), "r", seed=0).recording.generated
