"""Command jobs, end to end: whatever happens to machines and stores, the result is the undisturbed one."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest

from pricing_data.model.units import format_instant
from spotctl.control import entries as e
from tests.scenarios.support.command import STEPS, CommandProduct, command, result, spikes
from tests.scenarios.support.market import SPIKE, START, ZONES
from tests.scenarios.support.product import ROOT

pytestmark = pytest.mark.process


def test_a_program_runs_to_its_end_on_all_its_cores_and_no_secret_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "hunter2-very-secret")
    (tmp_path / "table.csv").write_text("1,2\n")
    more = (
        "secrets: [TOKEN]\nfile_mounts: {data/in.csv: table.csv}\nsetup: cat data/in.csv; echo got $TOKEN;"
        " echo $SPOTCTL_CPUS cores, $OMP_NUM_THREADS threads, $MKL_NUM_THREADS of one library\n"
    )
    with command(tmp_path, more=more, MKL_NUM_THREADS="5") as job:
        job.launch()
        final = job.check_done()
        assert (final["engine"], final["evictions"], final["clocks_redone"]) == ("command", 0, 0)
        assert final["model"] == str(tmp_path / "kept" / final["run"] / "step-40")
        assert "got [TOKEN]" in job.log()
        assert "4 cores, 4 threads, 5 of one library" in job.log()
        assert not list(files_with(tmp_path, b"hunter2-very-secret"))


def files_with(folder: Path, text: bytes) -> Iterator[Path]:
    for path in folder.rglob("*"):
        if path.is_file() and text in path.read_bytes():
            yield path


def test_an_eviction_with_a_warning_costs_no_step(tmp_path: Path) -> None:
    with command(tmp_path, spikes(after=1800)) as job:
        job.launch()
        final = job.check_done()
        assert (final["evictions"], final["failures"], final["clocks_redone"]) == (1, 0, 0)
        assert final["seconds_redone"] == 0
        assert len(job.all(e.SafeToKill)) == 1
        assert "s left" in job.log(), "it was told how long it has"


def test_a_move_to_another_region_is_billed_for_what_was_carried(tmp_path: Path) -> None:
    """Two regions, two years later; a megabyte leaves Virginia, at 2 cents a gigabyte."""
    with command(tmp_path, [(ZONES[0], 1800, SPIKE)], BALLAST="1000000") as job:
        for name in ("prices.csv", "scenario.yaml"):
            text = (tmp_path / name).read_text().replace("2016-", "2018-").replace("c4.xlarge", "c5.xlarge")
            (tmp_path / name).write_text(text.replace(f"us-east-1,{ZONES[1]}", "us-east-2,us-east-2a"))
        job.price_options[-1] = format_instant(START).replace("2016-", "2018-")
        job.price_options += ["--rules", "aws-2016"]
        plan = json.loads(replayed(job, "plan"))
        assert plan["move"] == {"checkpoint_bytes": 0, "seconds": 0.0, "egress": "0.000000"}
        job.launch()
        final = job.end()
        assert (final["state"], final["clocks"], final["evictions"]) == ("done", 40, 1), job.chatter
        assert (Path(final["model"]) / "state").read_bytes() == result()
        (carried,) = job.all(e.CheckpointFetched)
        assert carried.size_bytes == 1_000_032
        assert (carried.stored_by, carried.instance) == ("s1-1", "s2-1")
        assert [stored.instance for stored in job.all(e.CheckpointStored)] == ["s1-1", "s2-1"]
        cost = final["cost"]
        assert cost["egress"] == "0.000020"
        assert Decimal(cost["total"]) == sum(Decimal(cost[k]) for k in ("spot", "on_demand", "egress"))
        job.check_nothing_left()


def test_a_program_that_ignores_the_warning_loses_what_came_after_its_newest_checkpoint(
    tmp_path: Path,
) -> None:
    """It has ten real seconds to leave, and needs longer than that."""
    with command(tmp_path, spikes(after=1800), EVERY="7", IGNORE="yes", PAUSE="0.4") as job:
        job.launch()
        final = job.check_done()
        assert (final["evictions"], final["failures"]) == (1, 0)
        first, second = (int(step) for step in re.findall(r"begins after step (\d+)", job.log()))
        assert first == 0 < second < STEPS
        assert second % 7 == 0
        evicted_at = min(entry.at for entry in job.all(e.InstancesEnded))
        reported = max(entry.clock for entry in job.all(e.Progressed) if entry.at < evicted_at)
        assert {back.to for back in job.all(e.RolledBack)} <= {second}
        assert final["clocks_redone"] >= reported - second


def test_a_program_that_keeps_and_says_nothing_is_known_to_have_run_for_nothing(tmp_path: Path) -> None:
    with command(tmp_path, spikes(after=1800)) as job:
        (tmp_path / "program" / "process.py").write_text("import time; time.sleep(3)")
        job.launch()
        final = job.end()
        assert (final["state"], final["clocks_redone"]) == ("done", 0), job.chatter
        stopped = {safe.instance: safe.at for safe in job.all(e.SafeToKill)}
        *again, last = job.all(e.ProgramBegan)
        assert {began.clock for began in (*again, last)} == {0}
        assert final["seconds_redone"] == sum(stopped[began.instance] - began.at for began in again) > 0


def test_a_program_that_fails_is_tried_again_and_then_its_last_words_are_told(tmp_path: Path) -> None:
    with command(tmp_path, more="retries: 1\n") as job:
        (tmp_path / "program" / "process.py").write_text("print('no such thing'); raise SystemExit(3)")
        job.launch()
        final = job.end()
        assert (final["state"], final["exit_code"], final["model"]) == ("failed", 1, None)
        assert (
            final["why"]
            == "the program failed 2 times, at last with status 3; its last output:\nno such thing"
        )
        job.check_nothing_left()


@pytest.mark.parametrize("how", ["cancel", "down"])
def test_ended_from_outside(how: str, tmp_path: Path) -> None:
    with command(tmp_path, PAUSE="1.5") as job:
        job.launch()
        job.reach(2)
        if how == "cancel":
            job.signal(signal.SIGTERM)
            final = job.end()
            assert (final["state"], final["exit_code"]) == ("cancelled", 7)
            assert final["model"] == str(tmp_path / "kept" / final["run"] / f"step-{final['clocks']}")
        else:
            assert job.command("down", "scenario").returncode == 0
            final = job.end()
            assert (final["state"], final["exit_code"], final["model"]) == ("taken down", 7, None)
        job.check_nothing_left()
        job.check_record(final)


def test_a_store_that_refuses_for_a_while_costs_nothing(tmp_path: Path) -> None:
    """Its folder is a file until the program is nearly done."""
    store = tmp_path / "store"
    with command(tmp_path, more="", PAUSE="0.1") as job:
        text = (tmp_path / "scenario.yaml").read_text()
        (tmp_path / "scenario.yaml").write_text(text.replace("restart: 30s", f"restart: 30s, store: {store}"))
        job.launch()
        job.reach(1)
        shutil.rmtree(store, ignore_errors=True)  # the first checkpoint makes it
        store.write_text("in the way")
        job.reach(25)
        store.unlink()
        job.check_done()
        assert "could not be" in (job.run.machines_folder / "s1-1" / "agent.log").read_text()


def test_a_store_that_refuses_from_the_start_is_refused_before_anything_is_bought(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with command(tmp_path) as job:
        text = (tmp_path / "scenario.yaml").read_text()
        (tmp_path / "scenario.yaml").write_text(text.replace("every: 20m", "every: 20m, store: file/below"))
        job.launch()
        assert job.exit_code() == 2
        assert "checkpoint.store" in (tmp_path / "stderr").read_text()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB."""
    place = tmp_path / "small"
    place.mkdir()
    if (
        os.geteuid() != 0
        or subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(place)], capture_output=True, check=False
        ).returncode
    ):
        pytest.skip("only who may mount a file system can fill one up")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_full_disk_loses_nothing_that_was_whole(small_disk: Path, tmp_path: Path) -> None:
    """The store fills up after the first checkpoints; the job says so, and what was whole still is."""
    from agileml.node.checkpoint_store import CheckpointError
    from agileml.node.programs.checkpoint_folder import Checkpoint
    from agileml.node.programs.checkpoint_store import CheckpointStore

    store = CheckpointStore(str(small_disk / "store"))
    good = tmp_path / "step-1"
    good.write_bytes(b"1" * 20_000)
    store.publish(Checkpoint(1, good))
    large = tmp_path / "step-2"
    large.write_bytes(b"2" * 60_000)
    with pytest.raises(CheckpointError, match="No space left on device"):
        store.publish(Checkpoint(2, large))
    assert [stored.step for stored in store.list_complete()] == [1]
    large.write_bytes(b"2" * 8_000)
    store.publish(Checkpoint(2, large))
    assert [stored.step for stored in store.list_complete()] == [2, 1], (
        "what was cut off does not stay in the way"
    )


def test_the_numpy_example_ends_as_if_nothing_had_happened(tmp_path: Path) -> None:
    """The very weights of the undisturbed loop, although its machine is taken away on the way."""
    with command(tmp_path, spikes(after=1200)) as job:
        shutil.copytree(ROOT / "examples" / "command", tmp_path / "command")
        text = (ROOT / "examples" / "command_numpy.yaml").read_text()
        text = text.replace("name: regression", "name: scenario").replace("../models/regression", "kept")
        (tmp_path / "scenario.yaml").write_text(text.replace('"0.05"', '"0.01"').replace("3h", "1h"))
        job.launch()
        calm = undisturbed(tmp_path / "command" / "regression.py", tmp_path / "calm")
        final = job.end()
        assert (final["exit_code"], final["clocks"], final["evictions"]) == (0, 240, 1), job.chatter
        weights = (tmp_path / "kept/latest/step-240/weights.npy").read_bytes()
        assert weights == (calm / "weights.npy").read_bytes()


def undisturbed(program: Path, folder: Path) -> Path:
    """Run ``program`` by itself; its last checkpoint."""
    folder.mkdir()
    told = {
        "SPOTCTL_CHECKPOINT_DIR": str(folder),
        "SPOTCTL_CHECKPOINT": "",
        "SPOTCTL_PROGRESS_FILE": str(folder / "progress"),
    }
    subprocess.run([sys.executable, str(program)], env={**os.environ, **told}, check=True, timeout=60)
    return folder / "step-240"


def test_plan_and_replay_know_command_jobs(tmp_path: Path) -> None:
    with command(tmp_path, spikes(after=1800)) as job:
        plan = json.loads(replayed(job, "plan"))
        assert plan["reliable"]["count"] == 0
        assert plan["expected_seconds"] > 75 * 60
        final = json.loads(replayed(job, "launch", "--world", "replay", "--yes").splitlines()[-1])
        assert (final["state"], final["clocks"], final["evictions"]) == ("done", 40, 1)
        assert final["clocks_redone"] == 0


def replayed(job: CommandProduct, verb: str, *options: str) -> str:
    done = job.command(verb, str(job.folder / "scenario.yaml"), "--json", *options, *job.price_options)
    assert done.returncode == 0, done.stderr
    return done.stdout
