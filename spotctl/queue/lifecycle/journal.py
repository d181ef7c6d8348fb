"""Records what a queue does, and finds its records. Its jobs have ledgers of their own.

    ROOT/queues/NAME/lock               held by the process that runs the queue
    ROOT/queues/NAME/requests.jsonl     jobs to add and remove, from any process, numbered by line
    ROOT/queues/NAME/RUN/journal.jsonl  one run of the queue

Lines are JSON, whole or absent (``agileml.node.programs.jsonl_log``). Each is on the disk before anything
follows from it.
"""

from __future__ import annotations

import datetime as dt
import json
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Self, TypeAlias

from agileml.node.programs.jsonl_log import JsonlReader, JsonlWriter
from bidbrain.cluster.lease import Lease
from pricing_data.model.units import Instant, MicroUsd
from spotctl.errors import AlreadyRunning, LedgerError
from spotctl.job.choices import WorldKind
from spotctl.queue.lifecycle.requests import Request, RequestFile, RequestLine
from spotctl.records.codec import from_json, to_json
from spotctl.records.ledger import sync_folder
from spotctl.records.locks import JobLocked, hold_lock, is_held
from spotctl.records.run import default_root
from spotctl.timesource import wall_clock

_NEVER: Final = Instant(0)


@dataclass(frozen=True, slots=True)
class QueueStarted:
    """The queue began.

    ``request`` (the last one's number), ``added`` (jobs by name, as JSON) and ``removed`` (names of jobs in
    the file) sum up the requests so far.
    """

    # One note has all of this, so that no request is lost or done twice, wherever the process dies.
    at: Instant
    settings: str
    request: int = 0
    added: Mapping[str, str] = field(default_factory=dict)
    removed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class JobAdmitted:
    """The queue admitted a job, as its run ``run``.

    ``why``: why its deadline is not promised, "" if it is, or has none. ``allowance``: what its promise
    reserves of the queue's budget, None without a budget or a promise. ``reserved``: machines on demand that
    are reserved for it, by pool. ``member``: an added job as JSON; "" for one of the queue's file.
    """

    at: Instant
    job: str
    run: str
    promised: bool
    why: str
    allowance: MicroUsd | None
    reserved: Mapping[str, int]
    member: str = ""


@dataclass(frozen=True, slots=True)
class RoundAllocated:
    """The queue allocated a round.

    ``shares``: of time, by job and pool. ``received``: seconds of machine time by job and pool, faded, this
    round included. ``since``: when the hold of each job with a lease began.
    """

    at: Instant
    shares: Mapping[str, Mapping[str, float]]
    received: Mapping[str, Mapping[str, float]]
    leases: Mapping[str, Lease | None]
    since: Mapping[str, Instant] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class JobLeft:
    """A job ended, or never began (``run`` is "" then), or was removed before it began."""

    at: Instant
    job: str
    run: str
    exit_code: int
    why: str
    removed: bool = False


@dataclass(frozen=True, slots=True)
class RequestHandled:
    """The queue handled the requests up to this number.

    ``waiting``: an added job that is to be admitted, as JSON, by name. ``removed``: a removed job's name.
    """

    at: Instant
    request: int
    waiting: Mapping[str, str] = field(default_factory=dict)
    removed: str = ""


@dataclass(frozen=True, slots=True)
class Closed:
    at: Instant
    exit_code: int


Note: TypeAlias = QueueStarted | JobAdmitted | RoundAllocated | JobLeft | RequestHandled | Closed
_KINDS: Final[Mapping[str, type]] = {
    kind.__name__: kind
    for kind in (QueueStarted, JobAdmitted, RoundAllocated, JobLeft, RequestHandled, Closed)
}


@dataclass(frozen=True, slots=True)
class ServiceTime:
    """Counts seconds of a job's rounds: all (``whole``), with a lease (``got``), by its shares (``due``)."""

    whole: float = 0.0
    got: float = 0.0
    due: float = 0.0


@dataclass(frozen=True, slots=True)
class QueueRecord:
    """Holds the fold of a journal."""

    settings: str = ""
    at: Instant = _NEVER
    began: Instant = _NEVER
    entered: Mapping[str, JobAdmitted] = field(default_factory=dict)
    left: Mapping[str, JobLeft] = field(default_factory=dict)
    last: RoundAllocated | None = None
    rounds: int = 0
    past: Mapping[str, ServiceTime] = field(default_factory=dict)
    """Each job's seconds until the last round began, or until it left."""
    stale: bool = True
    """Whether jobs began or left since the last round."""
    handled: int = 0
    added: Mapping[str, str] = field(default_factory=dict)
    """Jobs that are not in the file: by name, as JSON."""
    removed: frozenset[str] = frozenset()
    """Names of jobs whose removal was requested."""
    closed: Closed | None = None

    def with_note(self, note: Note) -> Self:
        """Returns the record with one more note."""
        record = replace(self, at=max(self.at, note.at))
        match note:
            case QueueStarted():
                began = replace(record, settings=note.settings, began=note.at, at=note.at)
                return replace(began, handled=note.request, added=note.added, removed=frozenset(note.removed))
            case JobAdmitted():
                # A job that was removed before it began may be added again.
                entered = {**record.entered, note.job: note}
                return replace(record, entered=entered, removed=record.removed - {note.job}, stale=True)
            case RoundAllocated():
                # Before ``last`` changes: the past round's shares count until now.
                there = () if record.last is None else record.last.leases.keys() - record.left.keys()
                past = {**record.past, **{job: record.service_time(job, note.at) for job in there}}
                return replace(record, last=note, rounds=record.rounds + 1, past=past, stale=False)
            case JobLeft():
                past = {**record.past, note.job: record.service_time(note.job, note.at)}
                return replace(record, left={**record.left, note.job: note}, past=past, stale=True)
            case RequestHandled():
                added = {**record.added, **note.waiting}
                removed = (record.removed | ({note.removed} - {""})) - note.waiting.keys()
                return replace(record, handled=note.request, added=added, removed=removed)
            case Closed():
                return replace(record, closed=note)

    def received_s(self, job: str) -> Mapping[str, float]:
        """Returns the seconds of machine time that a job received lately, by pool."""
        return {} if self.last is None else self.last.received.get(job, {})

    def service_time(self, job: str, until: Instant) -> ServiceTime:
        """Returns a job's service until a moment of the current round, or in all once it left."""
        past, last = self.past.get(job, ServiceTime()), self.last
        if last is None or job in self.left or job not in last.leases:
            return past
        span = float(max(until - last.at, 0))
        share = min(sum(last.shares.get(job, {}).values()), 1.0)
        got = span if last.leases[job] is not None else 0.0
        return ServiceTime(past.whole + span, past.got + got, past.due + share * span)

    def hold_since(self, job: str) -> Instant | None:
        """Returns when a job's hold began; None if it has no lease."""
        return None if self.last is None else self.last.since.get(job)

    def reserved_machines(self, job: str) -> Counter[str]:
        entered = self.entered.get(job)
        return Counter() if entered is None else Counter(entered.reserved)


@dataclass(frozen=True, slots=True)
class QueueRun:
    """Locates one run of a queue: a folder."""

    folder: Path

    @property
    def id(self) -> str:
        return self.folder.name

    @property
    def journal_file(self) -> Path:
        return self.folder / "journal.jsonl"

    def read_record(self) -> QueueRecord:
        """Returns the fold of its journal. Raises LedgerError if the journal cannot be read."""
        # Strict, unlike requests: a note that is left out could mean a job that runs twice.
        record = QueueRecord()
        for number, line in JsonlReader(self.journal_file).read_lines():
            try:
                record = record.with_note(_parse_note(json.loads(line)))
            except (ValueError, KeyError, TypeError) as error:
                raise LedgerError(
                    f"{self.journal_file}:{number} cannot be read ({error}), so nobody can go on with this "
                    "run. Its jobs have records of their own: spotctl status shows them, spotctl down ends "
                    "them. "
                    f"With {self.folder} moved away the queue begins anew"
                ) from error
        return record

    def discard(self) -> None:
        """Deletes the run, which was refused before anything began."""
        shutil.rmtree(self.folder)


class QueueJournal:
    """Writes a run's journal, as its only writer; ``record`` is the fold of what is on the disk."""

    def __init__(self, run: QueueRun) -> None:
        self.run = run
        self.record = run.read_record()
        self._notes = JsonlWriter(run.journal_file, durable=True)
        sync_folder(run.folder)

    def write_note(self, note: Note) -> None:
        """Writes a note, which is on the disk when this returns. Raises LedgerError if it cannot be."""
        try:
            self._notes.send({"note": type(note).__name__, **to_json(note)})
        except OSError as error:
            raise LedgerError(
                f"the record {self.run.journal_file} cannot be written: {error.strerror}. What it has is "
                "whole: mend that, and give the same command again to go on"
            ) from error
        # The fold follows only a write that succeeded.
        self.record = self.record.with_note(note)

    def close(self) -> None:
        self._notes.close()


class QueueFolder:
    """Finds all runs of one queue, its requests and its lock."""

    def __init__(self, name: str, root: Path | None = None) -> None:
        self.name = name
        self._folder = (root or default_root()) / "queues" / name

    def newest_run(self) -> QueueRun | None:
        """Returns the run that was created last; None if there is none."""
        # Folders are named after moments, so the last name is the newest run.
        found = sorted(self._folder.glob("*/journal.jsonl"))
        return QueueRun(found[-1].parent) if found else None

    def unfinished_run(self) -> QueueRun | None:
        """Returns the newest run if it began and was never closed; None otherwise."""
        newest = self.newest_run()
        record = None if newest is None else newest.read_record()
        return None if record is None or record.closed is not None or not record.settings else newest

    def create_run(self) -> QueueRun:
        """Creates a run, named after the moment, UTC. Raises LedgerError if it cannot be written."""
        stamp = dt.datetime.fromtimestamp(wall_clock(), dt.UTC).strftime("%Y%m%dT%H%M%S.%fZ")
        folder = self._folder / stamp
        with self._explain_write_errors():
            folder.mkdir(parents=True)
            sync_folder(folder.parent)
        return QueueRun(folder)

    def leave_request(self, request: Request) -> None:
        """Leaves a request, which the queue takes up at its next round, or when it runs next.

        Raises LedgerError if it cannot be written.
        """
        with self._explain_write_errors():
            self._folder.mkdir(parents=True, exist_ok=True)
            self.request_file.append_request(request, self.handled_number())

    def requests_after(self, after: int) -> tuple[tuple[int, RequestLine], ...]:
        """Returns requests with a number above ``after``. Raises LedgerError if the file cannot be read."""
        return self.request_file.requests_after(after)

    def handled_number(self) -> int:
        """Returns the number of the last request that any run handled."""
        # Runs handle requests in order, so the newest one that began handled the most.
        for journal in sorted(self._folder.glob("*/journal.jsonl"), reverse=True):
            record = QueueRun(journal.parent).read_record()
            if record.settings:  # else it was killed before it began
                return record.handled
        return 0

    def is_live(self) -> bool:
        """Tells whether a process runs the queue now."""
        return is_held(self._folder / "lock")

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Makes this the only process that runs the queue. Raises AlreadyRunning if another one does.

        Raises LedgerError if records cannot be written.
        """
        with self._explain_write_errors():
            self._folder.mkdir(parents=True, exist_ok=True)
            (self._folder / "lock").touch()
        with ExitStack() as stack:
            try:
                stack.enter_context(hold_lock(self._folder / "lock"))
            except JobLocked:
                raise AlreadyRunning(f"the queue {self.name} runs already; nothing was started") from None
            yield

    @property
    def request_file(self) -> RequestFile:
        """Returns the file of all requests ever made."""
        return RequestFile(self._folder / "requests.jsonl")

    @contextmanager
    def _explain_write_errors(self) -> Iterator[None]:
        """Turns an OSError inside into a LedgerError with the folder, the cause and the remedy."""
        try:
            yield
        except OSError as error:
            raise LedgerError(
                f"records of the queue {self.name} cannot be kept in {self._folder}: {error.strerror}; make "
                "room there, or let SPOTCTL_HOME name another folder"
            ) from error


def root_of(world: WorldKind) -> Path:
    """Returns the folder of a world's records; those of replays are kept apart."""
    return default_root() / "replays" if world is WorldKind.REPLAY else default_root()


def _parse_note(line: Mapping[str, Any]) -> Note:
    fields = dict(line)
    note: Note = from_json(_KINDS[fields.pop("note")], fields)
    return note
