"""The verb: what it prints, what it draws, and what it refuses."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from spotctl.backtest.menu import MENU, named
from spotctl.cli.app import app
from spotctl.errors import UsageError

JOB = Path(__file__).parents[3] / "examples" / "quickstart.yaml"


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


def test_the_baseline_is_always_run_and_first() -> None:
    assert named(("proteus", "on-demand")) == ("on-demand", "proteus")
    assert named(()) == tuple(MENU)
    with pytest.raises(UsageError, match="There are: on-demand"):
        named(("nonsense",))
