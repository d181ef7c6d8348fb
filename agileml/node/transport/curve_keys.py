"""Restricts a job's network links to holders of its key, and keeps others from reading them.

One CURVE key pair (CurveZMQ, ZeroMQ RFC 25 and 26) belongs to the job, made when it is prepared. Every
process of the job holds both halves. The listening end proves itself by it, and lets in only callers that
prove the same. Nothing here knows what is said.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import zmq
from zmq.utils import z85

_DOORKEEPER: Final = "inproc://zeromq.zap.01"
"""Where libzmq asks before it lets a caller in (ZAP, ZeroMQ RFC 27)."""
_DOMAIN: Final = b"agileml"
_ZAP_VERSION: Final = b"1.0"


@dataclass(frozen=True, slots=True)
class CurveKeys:
    """A key pair as Z85 text."""

    public: str
    secret: str

    @classmethod
    def make_pair(cls) -> CurveKeys:
        public, secret = zmq.curve_keypair()
        return cls(public.decode(), secret.decode())

    @classmethod
    def read(cls, path: Path) -> CurveKeys | None:
        """Reads the keys; None where there is no such file."""
        return cls(**json.loads(path.read_text())) if path.exists() else None

    def write(self, path: Path) -> None:
        """Writes the keys to a file that only its owner can read, from its first moment on."""
        # Removed first: the mode below counts only for a new file.
        path.unlink(missing_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            json.dump({"public": self.public, "secret": self.secret}, file)

    def secure_socket(self, socket: zmq.Socket[bytes], *, listens: bool) -> None:
        """Secures a socket before it is bound or connected."""
        socket.curve_publickey = self.public.encode()
        socket.curve_secretkey = self.secret.encode()
        if listens:
            socket.curve_server = True
            socket.setsockopt(zmq.ZAP_DOMAIN, _DOMAIN)
            socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)  # without an authenticator nobody is let in
        else:
            socket.curve_serverkey = self.public.encode()


class CurveAuthenticator:
    """Decides, for all sockets of a context, whether a caller may connect. ``socket`` is to be polled."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], keys: CurveKeys) -> None:
        self._known = z85.decode(keys.public)
        self.socket = context.socket(zmq.REP)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.bind(_DOORKEEPER)

    def answer_requests(self) -> None:
        """Answers all waiting requests."""
        while self.socket.poll(0):
            _, request, domain, _, _, mechanism, *credentials = self.socket.recv_multipart()
            known = (domain, mechanism, credentials) == (_DOMAIN, b"CURVE", [self._known])
            verdict = (b"200", b"welcome") if known else (b"400", b"not of this job")
            self.socket.send_multipart([_ZAP_VERSION, request, *verdict, b"", b""])
