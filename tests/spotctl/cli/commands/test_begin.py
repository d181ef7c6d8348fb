"""What helps to begin: job files of ``init``, what ``doctor`` says, completion, and times in words."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pricing_data.model.units import Instant
from spotctl.cli.commands import options
from spotctl.errors import UsageError
from spotctl.job.file import load_job
from spotctl.session.computer_check import Verdict, diagnose
from tests.spotctl.cli.commandline import spotctl

DATA = {
    "mf": "user,item,value\n1,2,3.0\n2,1,4.0\n",
    "mlr": "label,x\na,1.0\nb,2.0\n",
    "lda": "text\nsome words\nsome word\nmany words\na sentence\n",
}


@pytest.mark.parametrize("app", DATA)
def test_init_writes_a_job_that_can_be_planned(app: str, home: Path) -> None:
    (home.parent / "in").mkdir()
    (home.parent / "in" / "d.csv").write_text(DATA[app])
    (home.parent / "jobs here").mkdir()
    file = "jobs here/new.yaml"
    made = spotctl("init", file, "--app", app, "--data", "in/d.csv")
    assert (made.exit_code, made.stdout) == (0, ""), made.output
    assert load_job(Path(file)).data == str(home.parent / "in" / "d.csv")
    planned = spotctl("plan", file)
    assert planned.exit_code == 0, planned.output
    assert "reads d.csv (with a header)" in planned.stdout
    assert "a clock is estimated at" in planned.stdout, "its work follows from the data"
    assert "spotctl plan new.yaml" in Path(file).read_text()


@pytest.mark.usefixtures("home")
def test_init_writes_any_command_so_that_it_is_read_back() -> None:
    command = """python train.py --name "a: b" # 'c' $HOME"""
    assert spotctl("init", "--app", "command", "--run", command).exit_code == 0
    spec = load_job(Path("job.yaml"))
    assert spec.command is not None
    assert spec.command.run == command
    again = spotctl("init", "--app", "command", "--run", "x")
    assert (again.exit_code, "exists already" in again.stderr) == (2, True)
    assert spotctl("init", "--app", "command", "--run", "x", "--force").exit_code == 0


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "there is no terminal to ask at; set --app"),
        (["--app", "mf"], "there is no terminal to ask at; set --data"),
        (["--app", "mf", "--data", "x", "--run", "y"], "--run: only for --app command"),
        (["--app", "command", "--data", "x"], "--data: a program finds its own data"),
    ],
)
def test_init_says_what_it_needs(arguments: list[str], told: str) -> None:
    refused = spotctl("init", "new.yaml", *arguments)
    assert (refused.exit_code, told in refused.stderr) == (2, True), refused.stderr
    assert not Path("new.yaml").exists()


def test_doctor_finds_nothing_wrong_where_the_tests_run(home: Path) -> None:
    said = spotctl("doctor", "--json")
    assert said.exit_code == 0, said.output
    found = {row["what"]: row for row in json.loads(said.stdout)["findings"]}
    assert {"python", "cores", "memory", "store", "sockets", "clock", "terminal", "numba"} <= found.keys()
    assert "files, locks and ledgers work" in found["store"]["found"]
    assert not home.exists(), "looking leaves nothing"


def test_doctor_says_what_to_do_about_a_store_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    root = Path("/proc/spotctl")
    broken = {one.what: one for one in diagnose(root)}["store"]
    assert broken.verdict is Verdict.FAIL
    assert "SPOTCTL_HOME" in broken.advice
    assert spotctl("doctor", home=root).exit_code == 1


def test_doctor_says_what_to_do_about_a_long_name_for_sockets(tmp_path: Path) -> None:
    long = tmp_path / ("x" * 90)
    long.mkdir()
    code = "from spotctl.session.computer_check import _check_sockets; print(_check_sockets())"
    environment = {**os.environ, "TMPDIR": str(long)}
    ran = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert "too long a name for sockets" in ran.stdout
    assert "shorter path" in ran.stdout


NOON = 1_760_000_400.0


def test_since_takes_spans_days_and_times() -> None:
    assert options.parse_since_option("--since", "7d", NOON) == NOON - 7 * 86400
    assert options.parse_since_option("--since", "2025-10-01", NOON) == 1_759_276_800
    assert options.parse_since_option("--since", None, NOON) is None
    today, yesterday = (
        options.parse_since_option("--since", "today", NOON),
        options.parse_since_option("--since", "yesterday", NOON),
    )
    assert today is not None
    assert yesterday is not None
    assert time.localtime(today)[3:6] == time.localtime(yesterday)[3:6] == (0, 0, 0)
    assert time.localtime(today)[:3] == time.localtime(NOON)[:3]
    assert Instant(today - 25 * 3600) <= yesterday <= Instant(today - 23 * 3600), "days of 23 and 25 hours"
    with pytest.raises(UsageError, match="--since: '7x' is not a time; write it like 7d, yesterday"):
        options.parse_since_option("--since", "7x", NOON)


def completed(home: Path, *words: str) -> list[str]:
    environment = {
        **os.environ,
        "SPOTCTL_HOME": str(home),
        "_SPOTCTL_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(("spotctl", *words)),
        "COMP_CWORD": str(len(words)),
    }
    code = "from spotctl.__main__ import main; main()"
    ran = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert ran.stderr == ""
    return ran.stdout.split()


def test_names_of_jobs_and_values_are_completed(home: Path) -> None:
    for name in ("movies", "music", "other[1]"):
        (home / "jobs" / name).mkdir(parents=True)
    assert completed(home, "status", "m") == ["movies", "music"]
    assert completed(home, "down", "other[") == ["other[1]"]
    assert completed(home, "plan", "x.yaml", "--rules", "az") == ["azure"]
    assert completed(home, "init", "--app", "ml") == ["mlr"]


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ("max_instances: 4", "max_instances: 100000000", "resources.spot.max_instances"),
        ("reliable: {", "reliable: {instances: 100000000, ", "resources.reliable.instances"),
        ("local:", "training: {shards: 100000000}\nlocal:", "training.shards"),
    ],
)
def test_more_than_any_job_has_is_refused_with_its_limit_and_line(old: str, new: str, field: str) -> None:
    text = Path("nightly.yaml").read_text()
    assert old in text
    Path("huge.yaml").write_text(text.replace(old, new))
    refused = spotctl("plan", "huge.yaml")
    assert refused.exit_code == 2
    assert f"{field}: found '100000000', expected a whole number of at least" in refused.stderr
    assert refused.stderr.count("at most") >= 1
    assert refused.stderr.startswith("spotctl: huge.yaml:")


@pytest.mark.usefixtures("home")
def test_the_last_lines_of_a_log_are_enough() -> None:
    assert spotctl("launch", "nightly.yaml", "--yes", "--world", "replay").exit_code == 0
    home = Path(os.environ["SPOTCTL_HOME"]) / "replays"
    every = spotctl("logs", "nightly", home=home).stdout.splitlines()
    assert len(every) > 3
    assert spotctl("logs", "nightly", "--tail", "3", home=home).stdout.splitlines() == every[-3:]
    assert spotctl("logs", "nightly", "--tail", "0", home=home).stdout == ""
