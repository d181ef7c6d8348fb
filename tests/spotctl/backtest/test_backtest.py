"""The verb: what it prints, what it draws, and what it refuses."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from pricing_data.formats.layouts import Semantics
from pricing_data.formats.traces import read_trace
from pricing_data.model.units import HOUR_S, Instant, format_instant, parse_instant
from spotctl.backtest.strategies import MENU, check_names, strategies_without_deadline
from spotctl.cli.app import app
from spotctl.errors import UsageError
from spotctl.job.price_sources import merge_recordings

JOB = Path(__file__).parents[3] / "examples" / "quickstart.yaml"


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A home of its own: the prices of whoever runs the tests are none of theirs."""
    monkeypatch.setenv("SPOTCTL_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["backtest", str(JOB), *arguments])


def test_json_has_every_promised_field() -> None:
    result = invoke("--starts", "20", "--json", "--strategies", "proteus,standard")
    assert result.exit_code == 0, result.output
    answer = json.loads(result.stdout)
    assert answer["schema"] == "spotctl.backtest/1"
    assert (answer["starts"], answer["seed"]) == (20, 0)
    assert list(answer["strategies"]) == ["on-demand", "proteus", "standard"]
    proteus = answer["strategies"]["proteus"]
    assert set(proteus["cost"]) == set(proteus["finish_seconds"]) == {"mean", "p5", "p50", "p95"}
    assert 0 < proteus["relative_cost"] < 1
    assert answer["strategies"]["on-demand"]["relative_cost"] == 1
    low, high = (float(proteus["cost_interval"][end]) for end in ("low", "high"))
    assert low <= float(proteus["cost"]["mean"]) <= high
    least = float(answer["oracle"]["cost"]["mean"])
    assert all(float(s["cost"]["mean"]) >= least for s in answer["strategies"].values())
    assert {"deadline_misses", "free_fraction", "evictions"} <= set(proteus)
    assert {"window", "elapsed_seconds"} <= set(answer)
    ways = proteus["baselines"]
    assert ways["as_fast"]["finish_seconds"] <= proteus["finish_seconds"]["mean"]
    assert float(ways["cheapest"]["cost"]) <= float(ways["as_fast"]["cost"])
    assert answer["strategies"]["standard"]["baselines"]["cheapest"] == ways["cheapest"]


def test_where_the_job_file_does_not_say_a_clocks_work_the_input_does_as_in_a_plan(tmp_path: Path) -> None:
    text = JOB.read_text(encoding="utf-8").replace("data/", f"{JOB.parent}/data/")
    job = tmp_path / "silent.yaml"
    job.write_text("".join(line for line in text.splitlines(True) if not line.startswith("local:")))
    asked = [str(job), "--json"]
    plan = json.loads(CliRunner().invoke(app, ["plan", *asked]).stdout)
    answer = json.loads(CliRunner().invoke(app, ["backtest", *asked, "--starts", "5"]).stdout)
    assert answer["work_source"] == plan["work_source"] == "estimated"
    assert answer["core_seconds_per_clock"] == plan["core_seconds_per_clock"]
    shown = CliRunner().invoke(app, ["backtest", str(job), "--starts", "5"]).stdout
    assert "right within a factor of 3" in shown
    compared = "no job can be launched with them: standard, failover, bidbrain-checkpoints"
    assert compared in " ".join(shown.split())


def test_the_same_seed_is_the_same_backtest() -> None:
    first, second, other = (
        json.loads(invoke("--starts", "10", "--json", "--seed", seed, "--strategies", "proteus").stdout)
        for seed in ("4", "4", "5")
    )
    assert first["strategies"] == second["strategies"]
    assert first["strategies"] != other["strategies"]


def test_the_table_and_the_picture(tmp_path: Path) -> None:
    drawn = tmp_path / "costs.svg"
    result = invoke("--starts", "20", "--plot", str(drawn))
    assert result.exit_code == 0, result.output
    assert all(name in result.stdout for name in MENU)
    assert "seed 0" in result.stdout
    texts = [text.text for text in ElementTree.parse(drawn).iter("{http://www.w3.org/2000/svg}text")]
    assert set(MENU) <= set(texts)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--strategies", "protus"), "did you mean proteus?"),
        (("--from", "2031-01-01"), "--from 2031-01-01T00:00:00Z is outside"),
        (("--to", "2016-05-01"), "has prices until"),
        (("--from", "2016-07-05T20:00:00Z"), "no room"),
        (("--plot", "costs.png"), "ends in .svg"),
        (("--from", "soon"), "is not a time"),
    ],
)
def test_what_is_wrong_is_said(arguments: tuple[str, ...], said: str) -> None:
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert said in result.stderr


def _write(path: Path, first: str, days: int, price: str) -> Path:
    """An m4.xlarge in one zone, a price each hour."""
    begin = parse_instant(first)
    rows = [
        f"{format_instant(Instant(begin + hour * HOUR_S))},us-east-1,us-east-1a,m4.xlarge,Linux/UNIX,{price}"
        for hour in range(days * 24)
    ]
    header = "timestamp_utc,region,zone,instance_type,product,price_usd_hour"
    path.write_text("\n".join([header, *rows, ""]))
    return path


def test_prices_may_be_in_several_files(tmp_path: Path) -> None:
    early = _write(tmp_path / "early.csv", "2016-05-01", 40, "0.0400")
    late = _write(tmp_path / "late.csv", "2016-06-05", 40, "0.0500")
    asked = ("--trace", str(early), "--trace", str(late), "--from", "2016-06-20", "--starts", "5", "--json")
    result = invoke(*asked, "--strategies", "standard")
    assert result.exit_code == 0, result.output
    answer = json.loads(result.stdout)
    assert answer["window"] == {"from": "2016-06-20T00:00:00Z", "to": "2016-07-14T23:00:00Z"}
    assert str(early) in answer["prices"]
    assert str(late) in answer["prices"]
    assert answer["strategies"]["standard"]["cost"]["p95"] == "2.400000", "4 h begun x 12 machines at 0.05"


def test_without_a_file_the_store_is_read_where_it_holds_a_month(tmp_path: Path) -> None:
    asked = ("--starts", "5", "--json", "--strategies", "standard")
    for days, label in ((10, "bundled market (generated)"), (50, "the price store")):
        prices = _write(tmp_path / "prices.csv", "2016-05-01", days, "0.0500")
        imported = CliRunner().invoke(app, ["prices", "import", str(prices)])
        assert imported.exit_code == 0, imported.output
        result = invoke(*asked)
        assert result.exit_code == 0, result.output
        assert json.loads(result.stdout)["prices"] == label


def test_files_of_two_kinds_are_not_mixed(tmp_path: Path) -> None:
    events = read_trace(_write(tmp_path / "events.csv", "2016-05-01", 2, "0.0500"))
    polled = replace(events, label="polled.csv", semantics=Semantics.POLLED)
    with pytest.raises(UsageError, match=r"polled\.csv: prices there are another kind"):
        merge_recordings([events, polled])


def test_the_baseline_is_always_run() -> None:
    assert strategies_without_deadline(("proteus", "on-demand")) == ("on-demand", "proteus")
    assert strategies_without_deadline(()) == tuple(MENU)
    assert strategies_without_deadline(())[0] == "auto"
    with pytest.raises(UsageError, match="there are: auto, on-demand"):
        check_names(("nonsense",))
