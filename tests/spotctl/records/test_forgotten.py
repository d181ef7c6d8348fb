"""A run that asked for no machine is nothing to bill, and ends without its input, its code or its trace."""

from __future__ import annotations

from pathlib import Path

import pytest

from spotctl.cli.watch.observers import RunLogLines
from spotctl.control import entries as e
from spotctl.errors import NothingToDo, SpotctlError
from spotctl.records.run import Run, RunStore
from spotctl.session import launch
from tests.spotctl.records.test_run import begun


def ended(run: Run, ask: e.UserRequest) -> SpotctlError:
    with pytest.raises(SpotctlError) as raised:
        launch.end_run(run, ask, RunLogLines())
    return raised.value


@pytest.mark.parametrize("ask", list(e.UserRequest))
def test_a_run_whose_process_died_before_it_asked_for_machines_is_forgotten(
    ask: e.UserRequest, tmp_path: Path
) -> None:
    runs = RunStore(tmp_path)
    run, other = begun(runs, "movies"), begun(runs, "songs")
    assert isinstance(ended(run, ask), NothingToDo)
    assert runs.list_runs() == (other,)


def test_one_that_has_machines_all_the_same_is_not(tmp_path: Path) -> None:
    run = begun(RunStore(tmp_path), "movies")
    (run.machines_folder / "r1-1").mkdir(parents=True)
    assert not isinstance(ended(run, e.UserRequest.DOWN), NothingToDo)
    assert run.folder.exists()


def test_one_that_another_process_is_about_to_start_is_left_to_it(tmp_path: Path) -> None:
    runs = RunStore(tmp_path)
    run = begun(runs, "movies")
    with runs.lock_job("movies"):
        assert launch.end_run(run, e.UserRequest.DOWN, RunLogLines()) is None
    assert run.folder.exists()
