"""What docs/prices.md shows, runs; what it says of columns is so."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from spotctl.cli.app import app

TEXT = (Path(__file__).parents[2] / "docs" / "prices.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", TEXT, re.DOTALL)
ROWS = """\
timestamp_utc,region,zone,instance_type,product,price_usd_hour
2016-06-01T00:00:00Z,us-east-1,us-east-1a,m4.xlarge,Linux/UNIX,0.04
2016-06-02T00:00:00Z,us-east-1,us-east-1a,m4.xlarge,Linux/UNIX,0.05
2016-06-03T00:00:00Z,us-east-1,us-east-1b,m4.xlarge,Linux/UNIX,-1
2016-06-20T00:00:00Z,us-east-1,us-east-1a,m4.xlarge,Linux/UNIX,0.06
"""


@pytest.fixture
def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The names that the Python blocks leave behind, one after the other."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "prices-2016.csv.gz").write_text(ROWS)
    names: dict[str, Any] = {}
    for language, block in BLOCKS:
        if language == "python":
            exec(compile(block, "docs/prices.md", "exec"), names)
    return names


def test_the_examples_run(ran: dict[str, Any]) -> None:
    assert (ran["done"].added.new, ran["done"].added.quarantined) == (3, 1)
    assert ran["daily"]["m4.xlarge"].dropna().tolist() == [0.04, 0.05, 0.06]
    (market,) = ran["known"].markets
    assert len(ran["known"].series(market)) == 2


def test_the_columns_are_those_of_the_table(ran: dict[str, Any]) -> None:
    listed = re.findall(r"^\| (`[a-z_`, ]+`) \| (.+?) \|", TEXT, re.MULTILINE)
    named = {name: kind.strip("`") for names, kind in listed for name in re.findall(r"`(\w+)`", names)}
    frame = ran["frame"]
    assert list(frame.columns) == list(named)
    kinds = {
        name: "text" if str(kind) in ("str", "object") else str(kind) for name, kind in frame.dtypes.items()
    }
    assert kinds == named


def test_the_commands_exist() -> None:
    root: Any = get_command(app)
    (block,) = [block for language, block in BLOCKS if language == "sh"]
    for line in block.splitlines():
        _, verb, *rest = shlex.split(line, comments=True)
        command = root.commands[verb]
        if hasattr(command, "commands"):
            assert rest[0] in command.commands
        known = {name for option in command.params for name in option.opts}
        assert {word for word in rest if word.startswith("--")} <= known
