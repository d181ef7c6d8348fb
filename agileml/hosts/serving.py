"""A server process: the loop around the pure server core."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import zmq

from agileml.app import Input
from agileml.events import (
    Advance,
    Create,
    Forget,
    Handover,
    ModelSaved,
    Restore,
    Rollback,
    SaveModel,
    ServerReady,
)
from agileml.hosts.job import JobFolder, partition_file
from agileml.hosts.sockets import ControlEnd, DataEnd
from agileml.messages import EndOfLife, Install, Outgoing, Peer, Push, Read, Reply, Save, Send, Update
from agileml.server import Server


class ServerProcess:
    def __init__(self, folder: JobFolder, machine: str, incarnation: int) -> None:
        job, data = folder.job(), Input(folder.input)
        app = job.make_application()
        endpoint = folder.endpoint(machine, incarnation)
        self._folder = folder
        self._machine = machine
        self._poller = zmq.Poller()
        context = zmq.Context(1)
        name = f"server/{machine}/{incarnation}"
        self._control = ControlEnd(context, folder.controller_endpoint(), name, job.timing.repeat_s)
        self._poller.register(self._control.socket, zmq.POLLIN)
        self._data = DataEnd(context, name, self._poller, listen=endpoint)
        shape = data.shape
        self._core = Server(Peer(machine, endpoint), job.setup, shape, lambda rows: app.initial(rows, shape))
        self._control.tell(ServerReady(machine, incarnation, endpoint))

    def run(self) -> None:
        while True:
            self._control.flush()
            self._poller.poll(self._control.wait_ms())
            for command in self._control.receive():
                match command:
                    case Create() | Handover() | Restore() | Rollback() | Forget() | Advance() | SaveModel():
                        self._carry_out(self._core.command(command))
            self._control.confirm()
            self._data.keep_only(self._core.peers)
            for sender, message in self._data.receive():
                match message:
                    case Read() | Update() | Push() | Install() | EndOfLife():
                        self._carry_out(self._core.handle(sender, message))

    def _carry_out(self, outgoing: Iterable[Outgoing]) -> None:
        for item in outgoing:
            match item:
                case Send() | Reply():
                    self._data.send(item)
                case Save():
                    self._control.tell(self._save(item))
                case event:
                    self._control.tell(event)

    def _save(self, save: Save) -> ModelSaved:
        """Whole files only: each is written under another name first."""
        for partition, values in save.partitions:
            path = partition_file(self._folder.model, partition)
            unfinished = path.with_suffix(f".{self._machine}.part")
            with unfinished.open("wb") as out:
                np.save(out, values)
            unfinished.replace(path)
        return ModelSaved(self._machine, str(self._folder.model))
