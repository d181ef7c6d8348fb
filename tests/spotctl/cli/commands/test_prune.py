"""``prune`` frees what it says, and nothing that may still be needed."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from spotctl.records.run import Run, RunStore
from tests.spotctl.cli.commandline import spotctl


@pytest.fixture
def history(home: Path) -> RunStore:
    """Twelve runs of one job that have ended, one that has not, and cut inputs of three of them."""
    launched = spotctl("launch", "nightly.yaml", "--yes", "--world", "replay", "--json")
    assert launched.exit_code == 0, launched.output
    (replayed,) = (run.folder for run in RunStore(home / "replays").list_runs())
    for number in range(1, 14):
        shutil.copytree(replayed, home / "jobs" / "nightly" / f"202611{number:02}T020000Z")
    shutil.rmtree(home / "replays")
    runs = RunStore(home)
    unfinished = runs.list_runs()[0]
    with closing(sqlite3.connect(unfinished.ledger_path)) as database, database as ledger:
        ledger.execute("delete from entries where type = 'Close'")
    for key, run in (("aa", unfinished), ("bb", runs.list_runs()[1]), ("cc", runs.list_runs()[-1])):
        (run.folder / "input").write_text(key)
        cut = home / "inputs" / key
        cut.mkdir(parents=True)
        (cut / "about.json").write_text(json.dumps({"data": f"{key}.csv"}))
        (cut / "shard-00000.npz").write_bytes(bytes(100_000))
    return runs


def used(folder: Path) -> int:
    return sum(file.lstat().st_size for file in folder.rglob("*") if file.is_file())


def pruned(*arguments: str) -> dict[str, Any]:
    result = spotctl("prune", *arguments, "--json")
    assert result.exit_code == 0, result.output
    said: dict[str, Any] = json.loads(result.stdout)
    return said


def names(said: dict[str, Any], what: str) -> list[str]:
    return [item["name"] for item in said["items"] if item["what"] == what]


@pytest.mark.parametrize(
    ("keep", "records", "inputs"), [("5", 7, ["bb.csv"]), ("0", 12, ["bb.csv", "cc.csv"]), ("1h", 0, [])]
)
def test_it_frees_what_it_says(
    keep: str, records: int, inputs: list[str], history: RunStore, home: Path
) -> None:
    before = used(home)
    said = pruned("--keep", keep, "--dry-run")
    assert (len(names(said, "run")), names(said, "input")) == (records, inputs)
    assert used(home) == before, "a dry run frees nothing"
    told = sum(item["bytes"] for item in said["items"])
    done = pruned("--keep", keep, "--yes")
    assert all(item["freed"] for item in done["items"])
    assert before - used(home) == done["freed_bytes"] == told
    assert len(history.list_runs()) == 13 - records
    assert history.list_runs()[0].fold_state().ending.closed is None, "the unfinished run stays"
    assert (home / "inputs" / "aa").is_dir(), "and so does its input"


def test_without_keep_no_record_is_touched(history: RunStore) -> None:
    assert names(pruned("--yes"), "input") == ["bb.csv", "cc.csv"]
    assert len(history.list_runs()) == 13


def test_nothing_is_left_of_a_job_whose_last_record_went(history: RunStore, home: Path) -> None:
    shutil.rmtree(history.list_runs()[0].folder)
    (home / "jobs" / "nightly" / "lock").touch()
    pruned("--keep", "0", "--yes")
    assert not (home / "jobs").exists(), "else the shell would complete its name"


def test_a_run_of_an_unfinished_queue_stays(history: RunStore, home: Path) -> None:
    run: Run = history.list_runs()[5]
    with closing(sqlite3.connect(run.ledger_path)) as database, database as ledger:
        (text,) = ledger.execute("select value from notes where key = 'settings'").fetchone()
        settings = {**json.loads(text), "queue": "all"}
        ledger.execute("update notes set value = ? where key = 'settings'", (json.dumps(settings),))
    (home / "queues" / "all" / "run").mkdir(parents=True)
    (home / "queues" / "all" / "run" / "journal.jsonl").write_text("damaged\n")
    pruned("--keep", "0", "--yes")
    assert [left.id for left in history.list_runs()] == [history.list_runs()[0].id, run.id]


@pytest.mark.usefixtures("history")
def test_people_are_asked_and_scripts_have_to_say_yes() -> None:
    refused = spotctl("prune", "--keep", "5")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "add --yes" in refused.stderr
    listed = spotctl("prune", "--keep", "5", "--dry-run")
    assert listed.stdout.count("record of nightly/") == 7
    assert listed.stdout.count(": ended less than a day ago") == 7
    assert "in all" in listed.stderr


@pytest.mark.usefixtures("home")
def test_a_keep_that_is_none_is_refused() -> None:
    refused = spotctl("prune", "--keep", "monthly", "--yes")
    assert refused.exit_code == 2
    assert "--keep: found 'monthly', expected a number of runs" in refused.stderr


@pytest.mark.usefixtures("history")
def test_status_says_how_much_is_kept() -> None:
    assert "kept on disk: 300 kB of cut input for 3 data sets" in spotctl("status").stderr
    assert json.loads(spotctl("status", "--json").stdout)["kept"]["inputs"] == 3
    one = spotctl("status", "20261113T020000Z")
    assert "kept on disk:" in one.stderr
    assert "100 kB of cut input" in one.stderr
