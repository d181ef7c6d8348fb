"""What plan refuses, launch refuses too, in the same words and with the same exit code, leaving nothing."""

from __future__ import annotations

import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from spotctl.control.entries import Entry
from spotctl.control.state import State
from spotctl.job.file import load_job
from spotctl.job.resolve import resolve_job
from spotctl.job.settings import LaunchOptions, Settings
from spotctl.job.spec import JobSpec
from spotctl.records.run import Run, RunStore
from spotctl.session.open import create_run
from tests.spotctl.cli.commandline import JOB, spotctl

COMMAND = """\
name: nightly
run: "true"
engine: command
resources: {spot: {instance_types: [c4.xlarge]}}
work: {steps: 40, takes: 2h}
"""
BAD = {
    "a model that no machine can move": (
        JOB + "args: {rank: 1000000000}\n",
        2,
        "training.link_mbit_s: the model has",
    ),
    "a model that this computer cannot hold": (
        JOB + "args: {rank: 1000000000}\nobjective: {strategy: on-demand}\n",
        2,
        "args: the model has 4,000,000,008,000 MB; training it here takes 2 copies",
    ),
    "no such application": (
        JOB.replace("mf:MatrixFactorization", "mf:Matrix"),
        2,
        "app: agileml.apps.mf has no class Matrix",
    ),
    "an argument of the wrong kind": (JOB + "args: {rank: eight}\n", 2, "app: args.rank of"),
    "an argument that means nothing": (JOB + "args: {ranks: 8}\n", 2, "app: agileml.apps.mf:Matrix"),
    "a metric of another application": (
        JOB.replace("{clocks: 24}", "{clocks: 24, converged: {metric: log loss, delta: 1}}"),
        2,
        "stop.converged.metric: found 'log loss'",
    ),
    "data without the columns": (JOB.replace("ratings.csv", "pairs.csv"), 2, "data: "),
    "data without rows": (JOB.replace("ratings.csv", "empty.csv"), 2, "data: "),
    "data that is no number": (JOB.replace("ratings.csv", "words.csv"), 2, "found 'good', expected a finite"),
    "data of no known kind": (JOB.replace("ratings.csv", "file"), 2, "is of no known kind"),
    "an output below a file": (JOB + "output: file/model\n", 2, "output: "),
    "checkpoints below a file": (
        JOB + "checkpoint: {store: file/kept, every: 5}\n",
        2,
        "checkpoint.store: ",
    ),
    "a machine that nobody sells": (JOB.replace("c4.xlarge", "c9.huge"), 2, "resources.spot: no market"),
    "more work than a date can say": (
        JOB.replace("{clocks: 24}", "{clocks: 999999999}"),
        6,
        "would take over a hundred years",
    ),
    "more work than a number can say": (
        JOB.replace("core_seconds_per_clock: 2880", "core_seconds_per_clock: 1e308"),
        2,
        "core_seconds_per_clock: found '1e308', expected a number above 0 and at most 1e+12",
    ),
    "a deadline too short": (JOB + "objective: {deadline: 3m}\n", 6, "The shortest deadline that can"),
    "a budget too small": (JOB + "objective: {budget: 0.0001}\n", 6, "more than its budget of $0.0001"),
    "a strategy that needs a deadline": (JOB + "objective: {strategy: greedy}\n", 2, "objective.strategy: "),
    "several regions": (
        JOB.replace("instance_types: [c4.xlarge]", "regions: [us-east-1, us-west-2]"),
        2,
        "expected one: elastic training cannot span several",
    ),
    "two things at once": (JOB + "seeds: 1\nretries: 2\n", 2, "retries: belongs to a command"),
    "a command's secret that is not there": (
        COMMAND + "secrets: [NO_SUCH_TOKEN]\n",
        2,
        "secrets: NO_SUCH_TOKEN",
    ),
    "a command's checkpoints below a file": (
        COMMAND + "checkpoint: {store: file/kept}\n",
        2,
        "checkpoint.store: ",
    ),
    "a command's output below a file": (COMMAND + "output: file/results\n", 2, "output: "),
    "work on a machine that nobody sells": (
        COMMAND.replace("takes: 2h", "takes: 2h, on: c9.huge"),
        2,
        "work.on: the catalogue knows no instance type c9.huge",
    ),
    "a command's deadline too short": (
        COMMAND + "objective: {deadline: 1h}\n",
        6,
        "The shortest deadline that can",
    ),
}


@pytest.fixture
def folder(home: Path) -> Path:
    """A folder with data of every bad kind in it."""
    here = home.parent
    (here / "pairs.csv").write_text("user,item\n1,2\n")
    (here / "empty.csv").write_text("user,item,value\n")
    (here / "words.csv").write_text("user,item,value\n1,2,3\n1,3,good\n")
    (here / "file").write_text("x")
    return here


@pytest.mark.parametrize("case", BAD)
def test_a_bad_job_is_refused_alike_by_plan_and_launch_and_leaves_nothing(case: str, folder: Path) -> None:
    text, exit_code, told = BAD[case]
    (folder / "nightly.yaml").write_text(text)
    before = sorted(folder.rglob("*"))
    answers = [spotctl(*verb, "nightly.yaml") for verb in (("plan",), ("launch", "--yes"))]
    assert [answer.exit_code for answer in answers] == [exit_code] * 2, [a.stderr for a in answers]
    assert told in answers[0].stderr
    assert len({re.sub("probe-[0-9a-f]+", "", answer.stderr) for answer in answers}) == 1
    assert sorted(folder.rglob("*")) == before, "no run, no lock, no folder for what never came of it"


def test_what_only_the_whole_input_shows_is_refused_when_it_is_cut_and_leaves_nothing(folder: Path) -> None:
    """Nor is it in the way of a corrected file that somebody was killed while the input was cut."""
    rows = "".join(f"{n % 999},{n % 99},3\n" for n in range(400_000))
    (folder / "ratings.csv").write_text(f"{rows}1,2,good\n")
    before = sorted(folder.rglob("*"))
    assert spotctl("plan", "nightly.yaml").exit_code == 0
    killed = _killed_while_cutting(load_job(folder / "nightly.yaml"))
    (folder / "nightly.yaml").write_text(f"{JOB}seed: 7\n")
    refused = spotctl("launch", "nightly.yaml", "--yes")
    assert refused.exit_code == 2
    assert "row 400001, column value: found 'good'" in refused.stderr
    assert not killed.folder.exists()
    assert (
        sorted(file for file in folder.rglob("*") if folder / "home" not in (file, *file.parents)) == before
    )
    assert not (folder / "home" / "jobs").exists(), "what was read of prices and of the input is kept there"


@pytest.mark.parametrize("verb", ["cancel", "down"])
def test_a_launch_that_ends_before_it_began_as_it_was_asked_to_is_no_error(verb: str, folder: Path) -> None:
    """Whoever asked finds its record gone, or is told to wait for it."""
    run = _killed_while_cutting(load_job(folder / "nightly.yaml"))
    with ThreadPoolExecutor(1) as asking:
        with RunStore().lock_job("nightly"):
            answer = asking.submit(_ask_to_end, verb, folder)
            ledger = run.open_ledger()
            while not any(ledger.requests_after(after=0)):
                assert not answer.done(), answer.result()
            ledger.close()
            run.discard()
        told = answer.result()
    assert told.returncode in (0, 3), told.stderr
    assert "its run is forgotten" in told.stderr or "request sent; " in told.stderr


def _ask_to_end(verb: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "spotctl", verb, "nightly"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def _killed_while_cutting(spec: JobSpec) -> Run:
    """A run of which the beginning is on record, and nothing else."""

    class Unheard:
        def on_start(self, run: Run, prices: str) -> None: ...

        def on_entry(self, state: State, entry: Entry) -> None: ...

    settings = Settings.from_options(spec, LaunchOptions())
    resolved = resolve_job(spec, settings.prices, "", settings.seed)
    recorded = create_run(RunStore(), settings, resolved, Unheard())
    recorded.ledger.close()
    return recorded.run
