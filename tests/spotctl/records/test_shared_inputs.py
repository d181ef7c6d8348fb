"""Cut input: each content is cut once, is never stale, and stays as long as a run may need it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pytest

from agileml.api import ApplicationError
from agileml.data.shards import ShardReader
from agileml.job import TrainingJob
from agileml.protocol.events import Setup
from spotctl.prune import Retention, find_unneeded, free_unneeded
from spotctl.records.shared_inputs import InputStore, claim_of

APP = '''
import time
from dataclasses import dataclass
from pathlib import Path
import numpy as np
from agileml.api import Columns, Kind, Outcome, Survey
from agileml.protocol.messages import Patch
from agileml.api import Shape

@dataclass(frozen=True, slots=True)
class Noting:
    """Notes each survey in a file; waits there, and before it prepares, while other files exist."""
    metric = "none"
    columns = Columns({"x": Kind.NUMBER})
    notes: str = ""
    extra: int = 0

    def survey(self, table, shards):
        with Path(self.notes).open("a") as notes:
            notes.write("x")
        self.wait("wait")
        return Survey(Shape(table.rows, 1), {}, {}, key="x", splits=np.full(shards - 1, 1.0))

    def prepare(self, rows, numbers, survey):
        self.wait("hold")
        return {"x": rows["x"]}

    def wait(self, file):
        while Path(f"{self.notes}.{file}").exists():
            time.sleep(0.01)

    def initial(self, rows, shape):
        return np.zeros((len(rows), 1), np.float32)

    def rows(self, shard):
        return np.zeros(1, np.int64)

    def process(self, shard, values, seed):
        return Outcome(Patch(self.rows(shard), values), 0.0, 0.0)

    def objective(self, total, count):
        return 0.0
'''


class Bench:
    """A store, an application that notes how often it surveys, and runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = InputStore(folder)
        self.notes = folder / "notes"
        self.notes.touch()
        self.source = folder / "a.csv"
        self.source.write_text("x\n1\n2\n")
        (folder / "app.py").write_text(APP)

    def job(self, **more: Any) -> TrainingJob:
        setup = Setup(partitions=1, shards=more.pop("shards", 2), clocks=1, staleness=0)
        program = str(self.folder / "app.py")
        arguments = {"notes": str(self.notes), **more}
        return TrainingJob(f"{program}:Noting", arguments, setup, program=program)

    def run(self, name: str, source: str = "", **more: Any) -> str:
        """Where a run finds its input."""
        folder = self.folder / "jobs" / "job" / name
        folder.mkdir(parents=True, exist_ok=True)
        place, _ = self.store.cut_input(self.job(**more), source or str(self.source), folder)
        return place

    @property
    def cuts(self) -> int:
        return len(self.notes.read_text())


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_runs_of_the_same_content_share_one_cut(bench: Bench) -> None:
    first = bench.run("1")
    copy = bench.folder / "elsewhere" / "a.csv"
    copy.parent.mkdir()
    shutil.copy(bench.source, copy)
    assert (bench.run("2"), bench.run("3", str(copy))) == (first, first)
    assert bench.cuts == 1
    assert ShardReader(first).read_shard(0)["x"].tolist() == [1.0]


def rewrite(bench: Bench) -> None:
    """Same size, same date of change: only the content is another."""
    before = bench.source.stat()
    bench.source.write_text("x\n1\n3\n")
    os.utime(bench.source, ns=(before.st_atime_ns, before.st_mtime_ns))


def edit_application(bench: Bench) -> None:
    (bench.folder / "app.py").write_text(f"{APP}\n# edited\n")


CHANGES: dict[str, tuple[Callable[[Bench], None], dict[str, Any]]] = {
    "content": (rewrite, {}),
    "application": (edit_application, {}),
    "an argument": (lambda _: None, {"extra": 1}),
    "shards": (lambda _: None, {"shards": 3}),
}


@pytest.mark.parametrize("settled", [False, True])
@pytest.mark.parametrize("change", CHANGES)
def test_whatever_cutting_depends_on_makes_it_another(change: str, settled: bool, bench: Bench) -> None:
    """``settled``: the digest was remembered, of a file that had not changed for long."""
    if settled:
        os.utime(bench.source, (1e9, 1e9))
    first = bench.run("1")
    act, more = CHANGES[change]
    act(bench)
    assert bench.run("2", **more) != first
    assert bench.cuts == 2


def test_remote_files_without_an_identifier_go_by_their_content(bench: Bench) -> None:
    memory = fsspec.filesystem("memory")
    memory.pipe_file(f"/{bench.folder.name}/a.csv", b"x\n1\n")
    url = f"memory://{bench.folder.name}/a.csv"
    first = bench.run("1", url)
    assert bench.run("2", url) == first
    memory.pipe_file(f"/{bench.folder.name}/a.csv", b"x\n2\n")
    assert bench.run("3", url) != first


@pytest.mark.process
def test_input_that_changes_while_it_is_cut_is_refused_and_kept_nowhere(bench: Bench) -> None:
    wait = Path(f"{bench.notes}.wait")
    wait.touch()
    started = begin(bench, "1")
    until(lambda: bench.cuts == 1)
    bench.source.write_text("x\n5\n6\n7\n")
    wait.unlink()
    told = started.communicate(timeout=60)[1]
    assert "changed while it was read; launch again" in told
    assert bench.store.list_inputs() == []
    bench.run("1")
    assert bench.cuts == 2


# ---- several at once -----------------------------------------------------------------------------

CUT = """
import sys
from pathlib import Path
from tests.spotctl.records.test_shared_inputs import Bench
bench = Bench.__new__(Bench)
from spotctl.records.shared_inputs import InputStore
bench.folder, name = Path(sys.argv[1]), sys.argv[2]
bench.store, bench.notes = InputStore(bench.folder), bench.folder / "notes"
bench.source = bench.folder / "a.csv"
print(bench.run(name))
"""


def begin(bench: Bench, name: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", CUT, str(bench.folder), name],
        cwd=Path(__file__).parents[3],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def until(true: Callable[[], bool], seconds: float = 60.0) -> None:
    by = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < by
        time.sleep(0.01)


@pytest.mark.process
def test_launches_at_the_same_time_cut_once(bench: Bench) -> None:
    wait = Path(f"{bench.notes}.wait")
    wait.touch()
    started = [begin(bench, name) for name in ("1", "2", "3")]
    until(lambda: all(claim_of(bench.folder / "jobs" / "job" / name) for name in ("1", "2", "3")))
    until(lambda: bench.cuts == 1)
    wait.unlink()
    places = {process.communicate(timeout=60)[0].strip() for process in started}
    assert (len(places), bench.cuts) == (1, 1)
    assert [folder.name for folder in bench.store.folder.glob("*.part")] == []


@pytest.mark.process
def test_what_a_killed_launch_left_is_cut_again_and_freed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = bench.folder / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    hold = Path(f"{bench.notes}.hold")
    hold.touch()
    started = begin(bench, "1")
    until(lambda: list(bench.store.folder.glob("*.part/agileml-cut-*/*")) != [])
    started.send_signal(signal.SIGKILL)
    started.communicate()
    hold.unlink()
    assert list(temporary.iterdir()) == [], "nobody would ever remove it there"
    assert bench.store.list_inputs() == []
    place = bench.run("2")
    assert bench.cuts == 2
    assert len(bench.store.list_inputs()) == 1
    assert list(bench.store.folder.glob("*.part")) == []
    assert list(Path(place).glob("agileml-cut-*")) == []


@pytest.mark.process
def test_an_input_that_is_being_cut_or_claimed_is_never_removed(bench: Bench) -> None:
    """No ledger tells of a run that only begins: its claim does."""
    wait = Path(f"{bench.notes}.wait")
    wait.touch()
    started = begin(bench, "1")
    until(lambda: bench.cuts == 1)
    key = claim_of(bench.folder / "jobs" / "job" / "1")
    assert key is not None
    assert not bench.store.remove_input(key, lambda: False), "it is being cut"
    wait.unlink()
    place = started.communicate(timeout=60)[0].strip()
    found, _ = find_unneeded(bench.folder, None)
    assert [one.key for one in found] == [key], "its run never began, and nobody works with it"
    (bench.folder / "jobs" / "job" / "1" / "ledger.db").write_text("damaged")
    assert find_unneeded(bench.folder, None) == ([], []), "one that cannot be read may be gone on with"
    assert list(free_unneeded(bench.folder, found)) == [], (
        "what has come into use since it was looked for stays"
    )
    assert ShardReader(place).shape.rows == 2
    shutil.rmtree(bench.folder / "jobs")
    assert [one.key for one in free_unneeded(bench.folder, found)] == [key]
    assert bench.store.list_inputs() == []
    assert {file.name for file in bench.store.folder.iterdir()} <= {"digests.json"}


def test_keep_reads_numbers_and_spans() -> None:
    assert (Retention.parse("3"), Retention.parse("30d")) == (
        Retention(runs=3),
        Retention(seconds=Retention.parse("720h").seconds),
    )


def test_an_application_error_leaves_nothing(bench: Bench) -> None:
    bench.source.write_text("x\none\n")
    with pytest.raises(ApplicationError, match="found 'one'"):
        bench.run("1")
    assert not bench.store.list_inputs()
    assert not bench.store.folder.exists()
