"""What is asked of a queue is done once, wherever the process that runs it dies."""

from __future__ import annotations

import json
import signal
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pricing_data.model.units import Instant
from spotctl.control import entries as e
from spotctl.control.state import State
from spotctl.errors import LedgerError, UsageError
from spotctl.job.choices import WorldKind
from spotctl.queue.lifecycle import journal as j
from spotctl.queue.lifecycle.planning import plan_queue
from spotctl.queue.lifecycle.requests import Request, RequestFile, UnreadableRequest
from spotctl.queue.lifecycle.run_queue import resume_queue, run_queue
from spotctl.queue.spec import QueueOptions, QueueSettings, member_text
from tests.spotctl.queue.build import Crash, Watching, command, queue

HEAD = "name: night\nround: 6m\nquotas: {c4.xlarge: 2}"


@pytest.fixture
def settings(tmp_path: Path) -> QueueSettings:
    """Jobs a and c, of four hours and of forty minutes."""
    jobs = [(command(tmp_path, "a", steps=4), ""), (command(tmp_path, "c", steps=4, takes=10), "")]
    return queue(tmp_path, HEAD, jobs).settings


@pytest.fixture
def folder(settings: QueueSettings) -> j.QueueFolder:
    return j.QueueFolder(settings.spec.name, j.root_of(WorldKind.REPLAY))


@dataclass
class Asking(Watching):
    """Somebody asks after so many entries."""

    folder: j.QueueFolder | None = None
    asks_after: int = 0
    request: Request | None = None

    def on_entry(self, state: State, entry: e.Entry) -> None:
        if self.seen == self.asks_after and self.folder is not None and self.request is not None:
            self.folder.leave_request(self.request)
        super().on_entry(state, entry)


def only_a(settings: QueueSettings) -> QueueSettings:
    return replace(settings, spec=replace(settings.spec, jobs=settings.spec.jobs[:1]))


def after_a(settings: QueueSettings) -> Request:
    _, job = settings.spec.jobs
    return Request(job.name, member_text(replace(job, after=("a",))))


def gone_on(settings: QueueSettings, folder: j.QueueFolder, first: Watching) -> Watching:
    """A run that dies, and is gone on with to its end."""
    with pytest.raises(Crash):
        run_queue(settings, first)
    second = Watching()
    with folder.lock():
        newest = folder.newest_run()
        assert newest is not None
        resume_queue(settings, folder, newest, second)
    second.runs = {**first.runs, **second.runs}
    return second


def test_a_job_that_was_removed_before_the_run_is_not_begun_by_whoever_goes_on(
    settings: QueueSettings, folder: j.QueueFolder
) -> None:
    folder.leave_request(Request("c"))
    ended = gone_on(settings, folder, Watching(dies_after=8))
    assert ended.left == {"a": 0}
    assert set(ended.runs) == {"a"}


def test_a_job_that_was_added_before_the_run_is_begun_by_whoever_goes_on(
    settings: QueueSettings, folder: j.QueueFolder
) -> None:
    folder.leave_request(after_a(settings))
    ended = gone_on(only_a(settings), folder, Watching(dies_after=8))
    assert ended.left == {"a": 0, "c": 0}


@pytest.mark.parametrize("dies_after", [12, 16, 20])
def test_a_job_that_was_added_while_it_ran_and_waits_is_begun_by_whoever_goes_on(
    settings: QueueSettings, folder: j.QueueFolder, dies_after: int
) -> None:
    first = Asking(dies_after=dies_after, folder=folder, asks_after=2, request=after_a(settings))
    assert gone_on(only_a(settings), folder, first).left == {"a": 0, "c": 0}


@pytest.mark.parametrize("dies_after", range(14, 24, 3))
def test_a_job_that_was_to_be_removed_while_it_ran_does_not_go_on(
    settings: QueueSettings, folder: j.QueueFolder, dies_after: int
) -> None:
    first = Asking(dies_after=dies_after, folder=folder, asks_after=4, request=Request("a"))
    ended = gone_on(settings, folder, first)
    assert {**first.left, **ended.left} == {"a": 7, "c": 0}


def test_requests_are_taken_up_once_wherever_the_next_run_dies(
    settings: QueueSettings, folder: j.QueueFolder
) -> None:
    folder.leave_request(after_a(settings))
    run_queue(only_a(settings), Watching())
    assert folder.handled_number() == 1
    j.QueueJournal(folder.create_run()).close()
    assert folder.handled_number() == 1, "of a run that never began nothing is known"
    again = Watching()
    run_queue(only_a(settings), again)
    assert again.left == {"a": 0}


def test_a_record_of_before_has_no_requests_in_its_beginning() -> None:
    old = {"note": "QueueStarted", "at": 5, "settings": "{}"}
    path = j.QueueFolder("old").create_run()
    path.journal_file.write_text(f"{old}\n".replace("'", '"'))
    assert path.read_record() == j.QueueRecord(settings="{}", at=Instant(5), began=Instant(5))


@dataclass
class Late(Watching):
    """Somebody asks when a has ended. ``cancelled_at``: SIGTERM comes at this entry."""

    folder: j.QueueFolder | None = None
    request: Request | None = None
    cancelled_at: int | None = None

    def on_entry(self, state: State, entry: e.Entry) -> None:
        super().on_entry(state, entry)
        if self.seen == self.cancelled_at:
            signal.raise_signal(signal.SIGTERM)

    def on_left(self, job: str, exit_code: int, why: str, final: dict[str, Any] | None) -> None:
        super().on_left(job, exit_code, why, final)
        if job == "a" and self.folder is not None and self.request is not None:
            self.folder.leave_request(self.request)


def test_what_is_asked_while_the_last_job_ends_is_done_by_the_queue_that_runs(
    settings: QueueSettings, folder: j.QueueFolder
) -> None:
    _, c = settings.spec.jobs
    watching = Late(folder=folder, request=Request("c", member_text(c)))
    run_queue(only_a(settings), watching)
    assert watching.left == {"a": 0, "c": 0}
    assert folder.requests_after(after=folder.handled_number()) == ()


def test_what_is_asked_of_a_queue_that_is_cancelled_is_left_to_the_next_run(
    settings: QueueSettings, folder: j.QueueFolder
) -> None:
    _, c = settings.spec.jobs
    asked = Request("c", member_text(c))
    watching = Late(folder=folder, request=asked, cancelled_at=9)
    run_queue(only_a(settings), watching)
    assert watching.left == {"a": 7}
    assert [request for _, request in folder.requests_after(after=folder.handled_number())] == [asked]


def test_who_is_to_wait_for_nobody_is_refused(settings: QueueSettings, folder: j.QueueFolder) -> None:
    text = after_a(settings).member.replace('"after": ["a"]', '"after": ["z"]')
    watching = Asking(folder=folder, asks_after=4, request=Request("c", text))
    run_queue(only_a(settings), watching)
    assert watching.left == {"a": 0, "c": 2}


# ---- damage -----------------------------------------------------------------------------------------


LINES = [
    "{",
    "",
    '"a"',
    '{"nobody": 1}',
    '{"job": 5}',
    '{"job": "c", "member": null}',
    "\udcff\udcfe",
    "{\r}",
]


SOME_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["job", "member", "spec", "weight"]), inner, max_size=4)
    ),
    max_leaves=6,
)


@given(junk=st.lists(st.binary(max_size=30) | SOME_JSON.map(lambda value: json.dumps(value).encode())))
def test_whatever_stands_in_the_file_the_last_line_is_read(
    junk: list[bytes], tmp_path_factory: pytest.TempPathFactory
) -> None:
    requests = RequestFile(tmp_path_factory.mktemp("junk") / "requests.jsonl")
    requests.path.write_bytes(b"".join(line + b"\n" for line in [*junk, b'{"job": "c"}']))
    *others, (number, last) = requests.requests_after(0)
    assert (number, last) == (len(others) + 1, Request("c"))
    for n, other in others:
        if isinstance(other, UnreadableRequest):
            assert str(other).startswith(f"{requests.path}:{n}: ")


@given(value=SOME_JSON)
def test_a_job_that_is_none_is_refused_and_breaks_nothing(value: object) -> None:
    with pytest.raises(LedgerError, match=r"requests\.jsonl:3: x cannot be added"):
        RequestFile(Path("requests.jsonl")).parse_added(3, Request("x", json.dumps(value)))


@dataclass
class Damaging(Watching):
    """After so many entries somebody leaves these lines, and then asks for c to be removed."""

    folder: j.QueueFolder | None = None
    after: int = 0
    lines: tuple[str, ...] = ()

    def on_entry(self, state: State, entry: e.Entry) -> None:
        if self.seen == self.after and self.folder is not None:
            with self.folder.request_file.path.open("ab") as file:
                file.write("".join(f"{line}\n" for line in self.lines).encode(errors="surrogateescape"))
            self.folder.leave_request(Request("c"))
        super().on_entry(state, entry)


def test_lines_that_are_damaged_are_named_once_and_end_nothing(
    settings: QueueSettings, folder: j.QueueFolder
) -> None:
    watching = Damaging(folder=folder, after=4, lines=tuple(LINES))
    run_queue(settings, watching)
    assert watching.left == {"a": 0, "c": 7}, "what was asked after them is done"
    places = [told.partition(": ")[0] for told in watching.troubles]
    assert places == [f"{folder.request_file.path}:{number + 1}" for number in range(len(LINES))]
    assert all("nothing was done for it" in told and "ask again" in told for told in watching.troubles)
    again = Watching()
    run_queue(settings, again)
    assert (again.left, again.troubles) == ({"a": 0, "c": 0}, []), "they have been dealt with"


def test_a_file_of_requests_that_cannot_be_opened_is_named_once_and_ends_nothing(
    settings: QueueSettings, folder: j.QueueFolder
) -> None:
    folder.request_file.path.mkdir(parents=True)
    with pytest.raises(LedgerError, match=r"requests\.jsonl cannot be read"):
        run_queue(settings, Watching())
    folder.request_file.path.rmdir()
    watching = Unopened(folder=folder)
    run_queue(settings, watching)
    assert watching.left == {"a": 0, "c": 0}
    (told,) = watching.troubles
    assert f"{folder.request_file.path} cannot be read: " in told


@dataclass
class Unopened(Watching):
    """From its fifth entry on there is a folder where the file was."""

    folder: j.QueueFolder | None = None

    def on_entry(self, state: State, entry: e.Entry) -> None:
        super().on_entry(state, entry)
        if self.seen == 5 and self.folder is not None:
            self.folder.request_file.path.mkdir()


@pytest.mark.parametrize("line", LINES)
def test_a_queue_does_not_begin_while_nobody_knows_what_was_asked_of_it(
    line: str, settings: QueueSettings, folder: j.QueueFolder
) -> None:
    folder.leave_request(Request("c"))
    with folder.request_file.path.open("ab") as file:
        file.write(f"{line}\n".encode(errors="surrogateescape"))
    with pytest.raises(LedgerError, match=r"requests\.jsonl:2: .*nothing was started\. Take that line out"):
        run_queue(settings, Watching())
    whole = folder.request_file.path.read_bytes().split(b"\n")[0]
    folder.request_file.path.write_bytes(whole + b"\n")
    ended = Watching()
    run_queue(settings, ended)
    assert ended.left == {"a": 0}


@pytest.mark.parametrize("change", [("{", "["), ('"envs": {}', '"envs": 5'), ('"weight"', '"heft"')])
def test_a_job_of_another_version_is_named_with_its_line(
    change: tuple[str, str], settings: QueueSettings, folder: j.QueueFolder
) -> None:
    text = member_text(settings.spec.jobs[1])
    assert change[0] in text
    folder.leave_request(Request("c", text.replace(*change, 1)))
    with pytest.raises(LedgerError, match=r"requests\.jsonl:1: c cannot be added"):
        run_queue(only_a(settings), Watching())


def test_a_job_that_is_added_under_another_name_is_named_with_its_line(
    settings: QueueSettings, folder: j.QueueFolder
) -> None:
    folder.leave_request(Request("x", member_text(settings.spec.jobs[1])))
    with pytest.raises(LedgerError, match=r"requests\.jsonl:1: x cannot be added"):
        run_queue(settings, Watching())


def test_what_is_asked_after_the_file_was_lost_is_done(
    settings: QueueSettings, folder: j.QueueFolder
) -> None:
    for _ in range(3):
        folder.leave_request(Request("c"))
    run_queue(settings, Watching())
    folder.request_file.path.unlink()
    folder.leave_request(Request("a"))
    ended = Watching()
    run_queue(settings, ended)
    assert ended.left == {"c": 0}


def test_a_job_that_was_removed_before_the_start_cannot_keep_the_others_from_starting(tmp_path: Path) -> None:
    """Its machines have no prices, which matters to nobody any more."""
    nowhere = command(tmp_path, "b").replace("instance_types: [c4.xlarge]", "instance_types: [none.large]")
    of = queue(tmp_path, "name: night", [(command(tmp_path, "a"), ""), (nowhere, "")])
    settings = replace(of.settings, options=QueueOptions(WorldKind.REPLAY))
    with pytest.raises(UsageError, match="b: "):
        plan_queue(settings)
    j.QueueFolder("night", j.root_of(WorldKind.REPLAY)).leave_request(Request("b"))
    assert list(plan_queue(settings).members) == ["a"]
