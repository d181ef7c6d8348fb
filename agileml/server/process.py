"""A server process: the loop around the pure server core."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from typing import Final

import numpy as np
import zmq

from agileml.data.checkpoint_store import CheckpointError, read_partition
from agileml.data.model_files import partition_file
from agileml.job import JobFolder
from agileml.node.agent.watchdog import Doings
from agileml.node.arrays import Matrix, Rows
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
from agileml.protocol.wire import Control
from agileml.server.checkpoint_writer import CheckpointWriter
from agileml.server.server import Server

_SAVE_AGAIN_S: Final = 5.0
"""After a model could not be written: what is on this machine may be all that the training has left."""


class ServerProcess:
    def __init__(self, folder: JobFolder, machine: str, incarnation: int, doings: Doings) -> None:
        self._at = doings.new("starting: making the application, opening the input")
        job, data = folder.job(), folder.cut_input()
        app = job.make_application()
        self._model = folder.saved_model()
        self._machine = machine
        self._meter = ServerMeter(machine, incarnation, time.monotonic()) if job.setup.automatic else None
        self._ask_after_s = job.timing.ask_after_s
        self._look_back_at = time.monotonic() + self._ask_after_s
        self._saving = doings.new("")
        self._save_again: list[SaveModel] = []
        self._save_again_at = 0.0
        self._poller = zmq.Poller()
        context = zmq.Context(1)
        name = f"server/{machine}/{incarnation}"
        self._control = ControlEnd(context, folder, name, job.timing.repeat_s)
        self._poller.register(self._control.socket, zmq.POLLIN)
        listen = folder.endpoint(machine, incarnation)
        self._data = DataEnd(context, name, self._poller, folder.keys(), listen)
        shape = data.shape
        self._writer = CheckpointWriter(machine, job.setup, shape, doings.new(""))
        me = Peer(machine, self._data.endpoint)

        def initial(rows: Rows) -> Matrix:
            with self._at.named("making initial values of {} rows", len(rows)):
                return app.initial(rows, shape)

        self._core = Server(me, job.setup, shape, initial, self._stored)
        self._control.tell(ServerReady(machine, incarnation, self._data.endpoint))

    def run(self) -> None:
        while True:
            self._at.turned()
            self._data.flush()  # first what somebody waits for
            self._control.flush()
            self._poller.poll(self._control.wait_ms())
            for sender, message in self._data.receive():  # before the rest: workers stand still meanwhile
                if isinstance(message, Request | Transfer):
                    if self._meter is not None:
                        self._meter.received(message)
                    self._carry_out(self._core.handle(sender, message))
            for command in self._control.receive():
                self._command(command)
            for event in self._writer.finished():
                self._control.tell(event)
            self._control.confirm()
            if self._data.calls:
                self._data.keep_only(self._core.peers)
            if self._save_again and time.monotonic() >= self._save_again_at:
                again, self._save_again = self._save_again, []
                for command in again:
                    self._command(command)
            if time.monotonic() >= self._look_back_at:
                self._look_back_at = time.monotonic() + self._ask_after_s
                self._carry_out(self._core.look_back())
            if self._meter is not None and (load := self._meter.report(time.monotonic())) is not None:
                self._control.tell(load)

    def _command(self, command: Control) -> None:
        match command:
            case Create():
                try:
                    self._carry_out(self._core.command(command))
                except CheckpointError as error:
                    self._control.tell(CheckpointUnreadable(self._machine, command.generation, str(error)))
            case Handover() | BackUp() | Restore() | Rollback() | Forget() | Advance() | SaveModel():
                self._carry_out(self._core.command(command))
            case WriteCheckpoint():
                self._carry_out(self._core.command(command))
            case SealCheckpoint() | DropCheckpoints():
                self._writer.take(command)

    def _carry_out(self, outgoing: Iterable[Outgoing]) -> None:
        for item in outgoing:
            if self._meter is not None:
                self._meter.sent(item)
            match item:
                case Send() | Reply():
                    self._data.put(item)
                case Save():
                    self._save(item)
                case Snapshot():
                    self._writer.take(item)
                case event:
                    self._control.tell(event)

    def _stored(self, folder: str, partition: int) -> Matrix:
        with self._at.named("reading partition {} of {}", partition, folder):
            return read_partition(folder, partition)

    def _save(self, save: Save) -> None:
        """Whole files only. Where that cannot be done, as on a full disk, the order is taken anew later."""
        try:
            for partition, values in save.partitions:
                with (
                    self._at.named("writing partition {} of the model to {}", partition, self._model),
                    self._model.writing(partition_file(partition)) as out,
                ):
                    np.save(out, values)
        except Exception as error:  # file systems have kinds of their own
            why = f"{type(error).__name__}: {error}"
            print(f"the model cannot be written yet: {why}", file=sys.stderr, flush=True)
            if not self._saving.now[1]:
                self._saving.at("writing the model to {}, which failed: {}", self._model, why)
            self._save_again_at = time.monotonic() + _SAVE_AGAIN_S
            numbers = tuple(number for number, _ in save.partitions)
            self._save_again.append(SaveModel(self._machine, save.generation, save.clock, numbers))
            return
        self._saving.at("")
        self._control.tell(ModelSaved(self._machine, save.generation, str(self._model)))
