"""A controller's journal: read again by the rules that wrote it, and by no others."""

from __future__ import annotations

import importlib
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

import agileml
from agileml.controller.journal import CONTROLLER, ControllerJournal, OtherRules, hash_rules
from agileml.controller.links import CLIENT, Entry
from agileml.node.tier import Tier
from agileml.protocol.commands import Failed
from agileml.protocol.events import MachineJoined, MachineLost
from tests.agileml.processes.real_jobs import PATIENCE_S, running_job

JOINED = Entry(CLIENT, 1, MachineJoined("r1", Tier.RELIABLE, 4))
LOST = Entry(CLIENT, 2, MachineLost("r1"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.jsonl"


def written(path: Path, *steps: tuple[Entry, ...], rules: str = "ours") -> None:
    journal = ControllerJournal(path, rules)
    for entries in steps:
        journal.record_step(entries)
    journal.close()


def read(path: Path, rules: str = "ours") -> list[tuple[Entry, ...]]:
    journal = ControllerJournal(path, rules)
    journal.close()
    return list(journal)


def test_what_was_recorded_is_read_again_step_by_step(path: Path) -> None:
    assert read(path) == []
    written(path, (JOINED, LOST), (LOST,))
    written(path, (JOINED,))
    assert read(path) == [(JOINED, LOST), (LOST,), (JOINED,)]


def test_a_line_that_was_being_written_was_never_acted_on(path: Path) -> None:
    written(path, (JOINED,))
    whole = path.read_bytes()
    written(path, (LOST,))
    for length in range(len(whole), path.stat().st_size):
        path.write_bytes(path.read_bytes()[:length])
        assert read(path) == [(JOINED,)]
        assert path.read_bytes() == whole
        written(path, (LOST,))


def test_one_whose_first_line_was_being_written_is_begun_again(path: Path) -> None:
    path.write_text('{"rul')
    written(path, (JOINED,))
    assert read(path) == [(JOINED,)]


def test_other_rules_do_not_read_on(path: Path) -> None:
    """Before, they gave other messages the numbers of those that peers had confirmed."""
    written(path, (JOINED,))
    before = path.read_bytes()
    with pytest.raises(OtherRules, match=r"written by another version of agileml.*restarts from the newest"):
        ControllerJournal(path, "others")
    assert path.read_bytes() == before


def test_a_journal_that_does_not_say_whose_rules_wrote_it_is_of_others(path: Path) -> None:
    path.write_text('[{"peer": "client", "number": 1, "event": {}}]\n')
    with pytest.raises(OtherRules):
        ControllerJournal(path, "ours")


def test_rules_are_the_modules_that_decide_and_not_those_that_carry_out(tmp_path: Path) -> None:
    package = tmp_path / "agileml"
    shutil.copytree(Path(agileml.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    before = hash_rules(package)
    assert before == hash_rules()
    for carries_out in ("server/process.py", "role_agent.py"):
        (package / carries_out).write_text("patience = 5")
    assert hash_rules(package) == before
    (package / "controller" / "placement" / "layout.py").write_text("lag = 3")
    assert hash_rules(package) != before


def test_rules_have_everything_that_the_pure_controller_imports() -> None:
    script = "import sys, agileml.controller.links; print(*(m for m in sys.modules if m[:8] == 'agileml.'))"
    imported = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    package = Path(agileml.__file__).parent
    for name in imported.stdout.split():
        module = Path(str(importlib.import_module(name).__file__))
        is_page = module.name == "__init__.py"
        assert is_page or any(module.is_relative_to(package / part) for part in CONTROLLER), name


@pytest.mark.process
def test_a_controller_of_another_version_ends_its_machine_and_says_why(tmp_path: Path) -> None:
    with running_job(tmp_path) as job:
        job.start("r1")
        job.reach(2)
        journal = job.folder.controller_folder / "journal.jsonl"
        _, _, steps = journal.read_text().partition("\n")
        journal.write_text(f"{json.dumps({'rules': 'of another version'})}\n{steps}")
        job.kill_role("controller", "r1")
        until = time.monotonic() + PATIENCE_S
        while job.host.is_alive("r1"):
            assert time.monotonic() < until
            job.listen(0.1)
        assert (
            "written by another version" in (job.folder.machine_folder("r1") / "controller.log").read_text()
        )
        job.client.send_events(MachineLost("r1"))
        job.wait(lambda said: isinstance(said, Failed))
