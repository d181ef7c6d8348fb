"""Runs a server process: the loop around the pure server core."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from typing import Final

import numpy as np
import zmq

from agileml.data.checkpoint_store import read_partition
from agileml.data.model_files import partition_file
from agileml.job import JobFolder
from agileml.node.agent.watchdog import Activities
from agileml.node.arrays import Matrix, Rows
from agileml.node.checkpoint_store import CheckpointError
from agileml.protocol.commands import (
    Advance,
    BackUp,
    Create,
    DropCheckpoints,
    Forget,
    Handover,
    Restore,
    Rollback,
    SaveModel,
    SealCheckpoint,
    WriteCheckpoint,
)
from agileml.protocol.endpoints import ControlEnd, DataEnd
from agileml.protocol.events import CheckpointUnreadable, ModelSaved, ServerReady
from agileml.protocol.messages import Outgoing, Peer, Reply, Request, Save, Send, Snapshot, Transfer
from agileml.protocol.meters import ServerMeter
from agileml.protocol.telemetry import Control
from agileml.server.checkpoint_writer import CheckpointWriter
from agileml.server.server import Server
from agileml.sync.bounded_staleness import make_barrier

_SAVE_AGAIN_S: Final = 5.0
"""The pause after a model could not be written: this machine may hold all that is left of the training."""


class ServerProcess:
    def __init__(self, folder: JobFolder, machine: str, incarnation: int, activities: Activities) -> None:
        self._activity = activities.add_thread("starting: making the application, opening the input")
        job, data = folder.read_job(), folder.open_input()
        app = job.make_application()
        self._model = folder.saved_model()
        self._machine = machine
        self._meter = ServerMeter(machine, incarnation, time.monotonic()) if job.setup.automatic else None
        self._ask_after_s = job.timing.ask_after_s
        self._look_back_at = time.monotonic() + self._ask_after_s
        self._saving = activities.add_thread("")
        self._save_again: list[SaveModel] = []
        self._save_again_at = 0.0
        self._poller = zmq.Poller()
        context = zmq.Context(1)
        name = f"server/{machine}/{incarnation}"
        self._control = ControlEnd(context, folder, name, job.timing.repeat_s)
        self._poller.register(self._control.socket, zmq.POLLIN)
        listen = folder.machine_endpoint(machine, incarnation)
        self._data = DataEnd(context, name, self._poller, folder.read_keys(), listen)
        shape = data.shape
        self._writer = CheckpointWriter(machine, job.setup, shape, activities.add_thread(""))
        me = Peer(machine, self._data.endpoint)

        def initial(rows: Rows) -> Matrix:
            with self._activity.while_doing("making initial values of {} rows", len(rows)):
                return app.initial(rows, shape)

        self._core = Server(me, job.setup, make_barrier(job.setup), shape, initial, self._read_stored)
        self._control.queue_message(ServerReady(machine, incarnation, self._data.endpoint))

    def run(self) -> None:
        while True:
            self._activity.start_turn()
            self._data.flush()  # first what somebody waits for
            self._control.flush()
            self._poller.poll(self._control.wait_ms())
            for sender, message in self._data.receive():  # before the rest: workers stand still meanwhile
                if isinstance(message, Request | Transfer):
                    if self._meter is not None:
                        self._meter.count_received(message)
                    self._dispatch_outgoing(self._core.handle_message(sender, message))
            for command in self._control.receive():
                self._handle_command(command)
            for event in self._writer.finished_outcomes():
                self._control.queue_message(event)
            self._control.confirm()
            # Servers come and go with every stage; a socket to each of the past would pile up.
            if self._data.has_server_sockets:
                self._data.close_all_but(self._core.open_endpoints)
            if self._save_again and time.monotonic() >= self._save_again_at:
                again, self._save_again = self._save_again, []
                for command in again:
                    self._handle_command(command)
            if time.monotonic() >= self._look_back_at:
                self._look_back_at = time.monotonic() + self._ask_after_s
                self._dispatch_outgoing(self._core.retry_unanswered())
            if self._meter is not None and (load := self._meter.make_report(time.monotonic())) is not None:
                self._control.queue_message(load)

    def _handle_command(self, command: Control) -> None:
        match command:
            case Create():
                try:
                    self._dispatch_outgoing(self._core.handle_command(command))
                except CheckpointError as error:
                    self._control.queue_message(
                        CheckpointUnreadable(self._machine, command.generation, str(error))
                    )
            case Handover() | BackUp() | Restore() | Rollback() | Forget() | Advance() | SaveModel():
                self._dispatch_outgoing(self._core.handle_command(command))
            case WriteCheckpoint():
                self._dispatch_outgoing(self._core.handle_command(command))
            case SealCheckpoint() | DropCheckpoints():
                self._writer.submit_task(command)

    def _dispatch_outgoing(self, outgoing: Iterable[Outgoing]) -> None:
        for item in outgoing:
            if self._meter is not None:
                self._meter.count_sent(item)
            match item:
                case Send() | Reply():
                    self._data.queue_message(item)
                case Save():
                    self._save_model(item)
                case Snapshot():
                    self._writer.submit_task(item)
                case event:
                    self._control.queue_message(event)

    def _read_stored(self, folder: str, partition: int) -> Matrix:
        with self._activity.while_doing("reading partition {} of {}", partition, folder):
            return read_partition(folder, partition)

    def _save_model(self, save: Save) -> None:
        """Writes complete files only. Where that fails, as on a full disk, the order is tried again later."""
        try:
            for partition, values in save.partitions:
                with (
                    self._activity.while_doing(
                        "writing partition {} of the model to {}", partition, self._model
                    ),
                    self._model.open_for_writing(partition_file(partition)) as out,
                ):
                    np.save(out, values)
        except Exception as error:  # file systems have error types of their own
            why = f"{type(error).__name__}: {error}"
            print(f"the model cannot be written yet: {why}", file=sys.stderr, flush=True)
            if not self._saving.current_activity[1]:
                self._saving.set_activity("writing the model to {}, which failed: {}", self._model, why)
            self._save_again_at = time.monotonic() + _SAVE_AGAIN_S
            numbers = tuple(number for number, _ in save.partitions)
            self._save_again.append(SaveModel(self._machine, save.generation, save.clock, numbers))
            return
        self._saving.set_activity("")
        self._control.queue_message(ModelSaved(self._machine, save.generation, str(self._model)))
