"""Runs the processes of a machine, as its agent starts them.

``python -m agileml.roles worker|server|controller FOLDER MACHINE INCARNATION CORES``, or a fork of the agent;
``ps -o comm`` says which role it is. A role ends when its agent does: it sees the end of its standard input,
which only the agent holds open. The other way it sends signs of life there, so that the agent notices one
that hangs as a whole. A role that hangs when its agent dies sees nothing, and is killed by Linux. What its
main loop takes long over is logged, and ends nobody.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import Final

from agileml.job import JobFolder
from agileml.node.agent.watchdog import Activities, StallLog, watch_activities

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_KEPT_BYTES: Final = 2**28
"""Freed memory that a role keeps: else arrays of every clock would be mapped anew, page by page."""
_PR_SET_NAME: Final = 15
"""prctl(2): what ``ps -o comm`` and ``top`` call the process; Linux keeps 15 bytes of it."""
_PR_SET_PDEATHSIG: Final = 1
"""prctl(2): the signal that a process gets when the thread that started it ends."""


def main(role: str, folder: str, machine: str, incarnation: str, cores: str) -> None:
    _set_process_name(role)
    _die_with_parent()
    _keep_freed_memory()
    job = JobFolder(Path(folder))
    timing = job.read_job().timing
    beat_s, after_s = timing.silence_s / 4, timing.told_after_s
    threading.Thread(target=_live_with_agent, args=[beat_s], daemon=True).start()
    activities, stall_log = Activities(), StallLog(job.machine_folder(machine), role)
    threading.Thread(
        target=watch_activities, args=[activities, stall_log, after_s / 8, after_s], daemon=True
    ).start()
    if role == "server":
        from agileml.server.process import ServerProcess

        ServerProcess(job, machine, int(incarnation), activities).run()
    elif role == "worker":
        from agileml.worker.process import WorkerProcess

        WorkerProcess(job, machine, int(incarnation), int(cores), activities).run()
    else:
        from agileml.controller.process import ControllerProcess

        ControllerProcess(job, machine).run()


def preload_roles() -> None:
    """Imports what the roles need, for an agent that forks into them."""
    import agileml.controller.process
    import agileml.server.process
    import agileml.worker.process  # noqa: F401


def _set_process_name(role: str) -> None:
    """Names the process after its role. The command line of a forked role is its agent's."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_NAME, f"agileml-{role}".encode())


def _die_with_parent() -> None:
    """Has Linux kill this process when its agent dies: SIGKILL reaches a stopped process as well. On other
    systems the pipe has to do.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _keep_freed_memory() -> None:
    """Keeps freed memory in the process; see mallopt(3). Other libraries than glibc have no such function,
    and their own ways.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _KEPT_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)


def _live_with_agent(beat_s: float) -> None:
    """Ends the process when its agent ends. It has a thread of its own, as a worker may compute for long and
    a server may read a large file.
    """
    with socket.socket(fileno=os.dup(sys.stdin.fileno())) as agent:
        agent.settimeout(beat_s)
        with contextlib.suppress(ConnectionError):  # an agent that died with signs of life unread
            while _send_beat(agent):
                pass
    # Not sys.exit, which would end this thread alone.
    os._exit(0)


def _send_beat(agent: socket.socket) -> bool:
    """Sends a sign of life, and waits. Returns whether the agent still lived ``beat_s`` later."""
    with contextlib.suppress(BlockingIOError):  # it does not listen just now
        agent.send(b".", socket.MSG_DONTWAIT)
    try:
        return bool(agent.recv(1))
    except TimeoutError:
        return True


if __name__ == "__main__":
    main(*sys.argv[1:])
