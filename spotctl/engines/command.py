"""Connects a world to a real command job, which gets nominal time and is awaited in real time.

The supervisor lives in this process and keeps a journal of all that it was told and all that machines said,
in the order it took them up. A restarted process folds the journal again. So it gives the same orders under
the same numbers, of which each machine says what it still lacks, and the same facts, of which the ledger has
the first ``heard``. Machines share nothing with this process but their links, and the checkpoint store.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, assert_never

from agileml.node.liveness import SilenceTimer
from agileml.node.programs import messages as m
from agileml.node.programs import supervisor as s
from agileml.node.programs.checkpoint_store import WorkEnd
from agileml.node.programs.job_folder import ProgramFolder
from agileml.node.programs.jsonl_log import JsonlReader, JsonlWriter
from agileml.node.programs.machine_agent import REPEAT_S
from agileml.node.transport.link_hub import LinkHub
from pricing_data.model.units import Instant
from spotctl.control import entries as e
from spotctl.control.run_spec import RunSpec
from spotctl.engines.base import end_effect, join_effect, notice_s, noticed_eviction, safe_effect
from spotctl.records.outputs import OutputNotStored
from spotctl.timesource import Effect, stopwatch

JOIN_FLOOR_S: Final = 120.0
"""Real seconds that a machine may take for the job's files and ``setup``, however fast time runs."""
STOP_S: Final = 30.0
"""Real seconds that a program gets to stop when the job is cancelled."""
SILENCE_S: Final = 20.0
"""Real seconds without a sign of life after which a machine's agent counts as hung, and its machine is ended.
"""
FIRST_SIGN_S: Final = 120.0
"""The same limit for a machine whose agent has shown no sign yet: it takes its time to start."""
_STOP: Final = "/stop"
"""The name of the effect that the program ends, beside those of machines."""
_LOOK_EVERY_S: Final = 0.1
_LONGEST_WAIT_S: Final = 2.0
"""The longest time between two turns of a process that runs: what is beyond was a stop (decision 24)."""


class CommandTraining:
    """Runs one command job.

    ``keep() -> where`` puts the newest whole checkpoint where the job wants it, "" where there is none;
    raises OutputNotStored: then the job has failed.
    ``end`` takes a hanging machine away. ``heard``: how many facts of this training are on record.
    ``clock``: seconds that only ever grow.
    """

    def __init__(
        self,
        folder: ProgramFolder,
        terms: RunSpec,
        speed: float,
        retries: int,
        keep: Callable[[], str],
        end: Callable[[str], None],
        heard: int = 0,
        clock: Callable[[], float] = stopwatch,
    ) -> None:
        self._folder = folder
        self._terms = terms
        self._speed = speed
        self._keep = keep
        self._end = end
        self._state = s.SupervisorState(folder.read_description(), terms.work.stop.clocks, retries)
        self._told = 0
        self._news: deque[s.News] = deque()
        self._effects: dict[str, Effect] = {}
        self._clock = clock
        self._listening = SilenceTimer(clock(), _LONGEST_WAIT_S)
        endpoint = folder.coordinator_endpoint()
        assert endpoint is not None, "a prepared job says where its supervisor listens"
        self._hub: LinkHub[m.Message] = LinkHub(endpoint, folder.read_keys(), REPEAT_S, m.CODEC)
        folder.write_coordinator_endpoint(self._hub.endpoint)  # the same again after a restart
        self._journal = self._replay_journal()
        # The ledger has these facts already; replaying the journal made them again.
        for _ in range(min(heard, len(self._news))):
            self._news.popleft()

    # ---- Training ---------------------------------------------------------------------------

    def send_command(self, number: int, command: e.Tell) -> None:
        # Repeated commands go through this loop too: making their events sets up the effects to await.
        for event in self._to_events(command):
            if number > self._told:
                self._journal.send({"told": number, "event": m.to_json(event)})
                self._apply_event(event)
        self._told = max(self._told, number)

    def take_facts(self, now: Instant) -> tuple[e.Fact, ...]:
        facts = tuple(self._to_fact(now, news) for news in self._news)
        self._news.clear()
        return facts

    def next_change(self, after: Instant) -> Instant | None:
        return None

    def pending_effects(self) -> tuple[Effect, ...]:
        return tuple(self._effects.values())

    def poll(self, timeout_s: float) -> bool:
        until = self._clock() + timeout_s
        while True:
            self._hub.flush()
            left_s = until - self._clock()
            self._hub.wait(0.0 if self._news else max(0.0, left_s))
            self._take_words()
            if self._news or left_s <= 0:
                self._hub.flush()
                return bool(self._news)

    def catch_up(
        self, is_alive: Callable[[str], bool], read_end: Callable[[], WorkEnd | None], within_s: float
    ) -> None:
        """Takes up what was said while no process listened, so that nothing is bought for work that is done.

        The machine that runs the program says it itself, within ``within_s`` real seconds, or is gone: then
        the store knows whether the work was done before. ``read_end`` may raise.
        """
        name, until = self._state.active, self._clock() + within_s
        if name is None or self._state.over:
            return
        while is_alive(name) and self._clock() < until:
            self._hub.flush()
            self._hub.wait(_LOOK_EVERY_S)
            if name in self._take_words() and not self._hub.link_to(name).has_gap:
                return
        end = None if self._state.over else read_end()
        if end is not None:
            if end.steps is not None:
                self._take_up(name, 0, m.Reached(end.steps))
            self._take_up(name, 0, m.Ended("run", 0, ""))

    def close(self) -> None:
        self._journal.close()
        self._hub.close()

    # ---- the journal ------------------------------------------------------------------------

    def _replay_journal(self) -> JsonlWriter:
        for _, entry in JsonlReader(self._folder.journal_file).receive():
            if "told" in entry:
                self._told = int(entry["told"])
                self._apply_event(m.from_json(entry["event"]))
            else:
                name, number = entry["machine"], int(entry["number"])
                self._hub.link_to(name).mark_replayed(number)
                self._apply_event(m.Said(name, number, m.from_json(entry["word"])))
        return JsonlWriter(self._folder.journal_file)

    def _apply_event(self, event: m.Event) -> None:
        """Folds one journalled event, and passes on what follows from it."""
        self._state, effects = s.step(self._state, event)
        for effect in effects:
            if isinstance(effect, s.SentOrder):
                self._hub.link_to(effect.machine).send(effect.order)
            else:
                self._drop_effects(effect)
                self._news.append(effect)

    def _take_up(self, name: str, number: int, word: m.Word) -> None:
        """Writes a word down, and acts on it."""
        self._journal.send({"machine": name, "number": number, "word": m.to_json(word)})
        self._apply_event(m.Said(name, number, word))

    def _take_words(self) -> frozenset[str]:
        """Takes up what machines said, and ends those that hang: nothing replaces a hung machine.

        Returns who was heard.
        A machine that was stopped together with this process, as on a laptop that sleeps, does not hang.
        """
        self._listening.wake_up(self._clock())
        heard, messages = self._hub.receive()
        for name in heard:
            self._listening.mark_heard(name)
        for received in messages:
            if isinstance(received.message, m.Word):
                self._take_up(received.sender, received.number, received.message)
        self._hub.confirm_all()
        for name in self._state.machines:
            if self._listening.silent_s(name) > SILENCE_S:
                self._end(name)
        return heard

    # ---- what it is told --------------------------------------------------------------------

    def _to_events(self, command: e.Tell) -> Iterator[m.Told]:
        match command:
            case e.TellJoin():
                for name in command.instances:
                    effect = join_effect(name, command, self._terms.work.scaling.sigma_s, JOIN_FLOOR_S)
                    self._await_effect(name, effect, ready=True)
                    self._listening.mark_heard(name, FIRST_SIGN_S - SILENCE_S)
                yield m.Joined(command.instances)
            case e.TellWarning():
                for name in command.instances:
                    self._await_effect(name, safe_effect(name, command), ready=False)
                yield m.Warned(command.instances, notice_s(command, self._speed))
            case e.TellLost() | e.TellReleased():
                for name in command.instances:
                    self._effects.pop(name, None)
                yield m.Gone(command.instances)
            case e.TellStop():
                if not self._state.over:
                    self._effects[_STOP] = end_effect(command.at, self._terms)
                yield m.Stop(STOP_S)
            case e.TellRestart():
                raise ValueError("a command is begun again by its supervisor, not by the core")
            case _:
                assert_never(command)

    def _await_effect(self, name: str, effect: Effect, *, ready: bool) -> None:
        """Awaits an effect, unless it has happened: a restarted process hears again of what is long over."""
        machine = self._state.machines.get(name)
        done = machine is not None and (machine.ready if ready else machine.safe)
        if not done and not self._state.over:
            self._effects[name] = effect
        else:
            self._effects.pop(name, None)

    # ---- what it says -----------------------------------------------------------------------

    def _drop_effects(self, news: s.News) -> None:
        if isinstance(news, s.MachineReady | s.MachineSafeToKill):
            self._effects.pop(news.machine, None)
        elif isinstance(news, s.ProgramFinished | s.ProgramFailed):
            self._effects.clear()

    def _to_fact(self, now: Instant, news: s.News) -> e.Fact:
        match news:
            case s.MachineReady(machine):
                return e.MachineJoined(now, machine)
            case s.MachineSafeToKill(machine):
                return e.SafeToKill(now, machine)
            case s.ProgramBegun(machine, step):
                return e.ProgramBegan(now, machine, step)
            case s.ProgramProgress(step, saved):
                return e.Progressed(now, step, saved)
            case s.NewestStored(machine, step, size_bytes):
                return e.CheckpointStored(now, machine, step, size_bytes)
            case s.FetchedFromStore(machine, stored_by, step, size_bytes):
                return e.CheckpointFetched(now, machine, stored_by, step, size_bytes)
            case s.NoticeHeard(machine, seconds):
                return noticed_eviction(now, machine, seconds, self._speed)
            case s.ProgramObjective(step, value):
                return e.ObjectiveReported(now, step, value)
            case s.WentBack(to, redone):
                return e.RolledBack(now, to, redone)
            case s.ProgramFinished(step):
                try:
                    return e.TrainingFinished(now, step, self._keep())
                except OutputNotStored as error:
                    return e.TrainingFailed(now, str(error))
            case s.ProgramFailed(why):
                return e.TrainingFailed(now, why)
            case _:
                assert_never(news)
