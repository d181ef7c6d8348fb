"""Summaries of runs that ended: the same as the fold, made anew where they are not to be relied on."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from spotctl.control.entries import Woke
from spotctl.records.ledger import Ledger
from spotctl.records.run import Run, RunStore
from spotctl.records.run_history import fold_summary, summarize_runs, summary_of
from spotctl.report.summary import VERSION
from tests.spotctl.cli.commandline import TRACE_START, Launched, spotctl, write_job


@pytest.fixture
def run(launched: Launched, tmp_path: Path) -> Run:
    """A run that ended, of which nobody asked anything yet."""
    shutil.copytree(launched.home, tmp_path / "home", ignore=shutil.ignore_patterns("summary.json"))
    (found,) = RunStore(tmp_path / "home").list_runs()
    return found


def head(run: Run) -> list[int]:
    found: list[int] = json.loads(run.summary_path.read_bytes().partition(b"\n")[0])
    return found


def test_what_is_kept_is_what_the_fold_gives(run: Run) -> None:
    assert not run.summary_path.exists()
    made = summary_of(run)
    assert run.summary_path.exists()
    assert summary_of(run) == made
    assert json.dumps(summary_of(run).to_document()) == json.dumps(fold_summary(run).to_document())
    assert made.total == sum(sums.total for sums in made.markets) > 0
    assert made.is_compared


def test_a_launch_keeps_what_the_fold_gives(launched: Launched, tmp_path: Path) -> None:
    """It knows prices from before the start, which the fold of a ledger alone does not."""
    write_job(tmp_path)
    asked = (
        "launch",
        str(tmp_path / "nightly.yaml"),
        "--world",
        "replay",
        "--yes",
        "--trace-start",
        TRACE_START,
    )
    assert spotctl(*asked, home=tmp_path / "home").exit_code == 0
    (found,) = RunStore(tmp_path / "home" / "replays").list_runs()
    assert found.summary_path.exists()
    assert summary_of(found) == fold_summary(found)
    (other,) = RunStore(launched.home).list_runs()
    assert summary_of(found).markets == summary_of(other).markets


def test_a_summary_is_read_and_not_the_ledger(run: Run) -> None:
    made = summary_of(run)
    stamp = run.ledger_path.stat()
    run.ledger_path.write_bytes(b"\0" * stamp.st_size)  # the same size and time, and no ledger any more
    os.utime(run.ledger_path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert summary_of(run) == made


def _truncated(run: Run) -> None:
    run.summary_path.write_bytes(run.summary_path.read_bytes()[:-40])


def _changed(run: Run) -> None:
    run.summary_path.write_bytes(
        run.summary_path.read_bytes().replace(b'"clocks_redone": 0', b'"clocks_redone": 7')
    )


def _older(run: Run) -> None:
    """Of a version that knew other fields."""
    _, _, body = run.summary_path.read_bytes().partition(b"\n")
    run.summary_path.write_bytes(json.dumps([VERSION - 1, *head(run)[1:]]).encode() + b"\n" + body)


def _emptied(run: Run) -> None:
    run.summary_path.write_bytes(b"")


def _of_other_fields(run: Run) -> None:
    import zlib

    body = b'{"markets": []}'
    run.summary_path.write_bytes(
        json.dumps([VERSION, zlib.crc32(body), *head(run)[2:]]).encode() + b"\n" + body
    )


def _removed(run: Run) -> None:
    run.summary_path.unlink()


def _of_another_ledger(run: Run) -> None:
    os.utime(run.ledger_path, ns=(1, 1))


@pytest.mark.parametrize(
    "harm", [_truncated, _changed, _older, _emptied, _of_other_fields, _removed, _of_another_ledger]
)
def test_what_cannot_be_relied_on_is_made_anew(run: Run, harm: Callable[[Run], None]) -> None:
    made = summary_of(run)
    before = run.summary_path.read_bytes()
    harm(run)
    assert summary_of(run) == made
    kept = run.summary_path.read_bytes()
    assert kept.partition(b"\n")[2] == before.partition(b"\n")[2], "and kept again"


def test_a_run_that_goes_on_has_no_summary(run: Run) -> None:
    began = Ledger.open_file(run.ledger_path)
    first, *_ = began.read_entries()
    began.close()
    going = Run(run.folder.with_name("20990101T000000Z"))
    going.folder.mkdir()
    ledger = Ledger.open_file(going.ledger_path)
    ledger.append(first)
    ledger.commit()
    found = summary_of(going)
    assert (found.outcome, found.no_savings_reason) == (None, "it has not ended")
    assert not going.summary_path.exists()
    ledger.append(Woke(first.at))
    ledger.commit()
    ledger.close()
    assert summary_of(going).outcome is None


def test_a_home_that_cannot_be_written_to_is_read_all_the_same(run: Run) -> None:
    run.summary_path.mkdir()  # nothing can be written there, not even by root
    assert summary_of(run).outcome == "done"
    assert not list(run.folder.glob("*.partial"))


def test_a_record_that_cannot_be_read_is_named_beside_the_others(run: Run) -> None:
    broken = run.folder.with_name("20990101T000000Z")
    broken.mkdir()
    (broken / "ledger.db").write_bytes(b"no database" * 100)
    found, failures = summarize_runs([run, Run(broken)])
    assert list(found) == [run]
    assert len(failures) == 1


def test_a_home_that_was_moved_says_where_its_records_are(run: Run, tmp_path: Path) -> None:
    summary_of(run)
    shutil.copytree(tmp_path / "home", tmp_path / "moved")
    (moved,) = RunStore(tmp_path / "moved").list_runs()
    assert summary_of(moved).status["ledger"] == str(moved.ledger_path)


@pytest.mark.parametrize(
    "verb", [("status",), ("status", "--json"), ("report", "--by", "day"), ("report", "--json")]
)
def test_verbs_that_only_show_ended_runs_load_nothing_heavy(
    run: Run, tmp_path: Path, verb: tuple[str, ...]
) -> None:
    summary_of(run)
    looks = (
        "import sys; from spotctl.cli.app import app; app(prog_name='spotctl', standalone_mode=False);"
        "heavy = {'numpy', 'msgspec', 'rich', 'pydantic', 'yaml', 'sqlite3', 'spotctl.control'};"
        "heavy &= sys.modules.keys();"
        "assert not heavy, heavy"
    )
    environment = {**os.environ, "SPOTCTL_HOME": str(tmp_path / "home")}
    done = subprocess.run(
        [sys.executable, "-c", looks, *verb], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "nightly" in done.stdout or "--by" in verb


def test_status_and_report_are_the_same_with_and_without_summaries(run: Run, tmp_path: Path) -> None:
    def shown() -> list[str]:
        verbs = (("status", "--json"), ("report", "--json"), ("status",), ("report", "--by", "month"))
        return [spotctl(*verb, home=tmp_path / "home").stdout for verb in verbs]

    without = shown()
    assert run.summary_path.exists()
    assert shown() == without
    run.summary_path.unlink()
    assert shown() == without
