"""HTTP servers on 127.0.0.1 that misbehave on cue.

What a request deserves is the fake cloud's business; here it is only decided whether it gets it. Faults
are used up in order, each by the first request whose path contains its text.
"""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    """With its query."""
    body: bytes
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Reply:
    status: int = 200
    body: bytes = b"{}"
    headers: Mapping[str, str] = field(default_factory=dict)
    cut: bool = False
    """Whether the connection breaks in the middle of the body."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What one request gets instead of its answer, or (``cut``) how its answer ends."""

    path: str
    reply: Reply | None = None
    skip: int = 0
    """So many matching requests are answered well before."""


@dataclass(slots=True)
class FakeServer:
    """``answer`` is the fake; ``requests`` what it was asked; ``mistakes`` what no cloud would accept."""

    answer: Callable[[Request], Reply]
    faults: list[Fault] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    mistakes: list[Exception] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def reply(self, request: Request) -> Reply:
        with self.lock:
            self.requests.append(request)
            for place, fault in enumerate(self.faults):
                if fault.path not in request.path:
                    continue
                if fault.skip:
                    self.faults[place] = Fault(fault.path, fault.reply, fault.skip - 1)
                    break
                del self.faults[place]
                if fault.reply is not None:
                    return fault.reply
                whole = self._answer(request)
                return Reply(whole.status, whole.body, whole.headers, cut=True)
            return self._answer(request)

    def _answer(self, request: Request) -> Reply:
        try:
            return self.answer(request)
        except Exception as error:  # a thread's own would only break the connection
            self.mistakes.append(error)
            return Reply(500)

    @contextmanager
    def running(self, tls: ssl.SSLContext | None = None) -> Iterator[str]:
        """Its address. Raises at the end what was wrong about the requests."""
        server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield f"{'https' if tls else 'http'}://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
            server.server_close()
        if self.mistakes:
            raise self.mistakes[0]


def _handler(fake: FakeServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # one write per reply: the other end waits for the rest of a header-only segment

        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            reply = fake.reply(Request(self.command, self.path, body, dict(self.headers.items())))
            self.send_response(reply.status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(reply.body)))
            for name, value in reply.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(reply.body[: len(reply.body) // 2] if reply.cut else reply.body)
            self.close_connection = reply.cut

        do_GET = do_POST = _serve  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Nothing goes to stderr."""

    return Handler
