"""The processes of a machine, as its agent starts them.

``python -m agileml.hosts.roles worker|server|controller FOLDER MACHINE INCARNATION CORES``. A role ends when
its agent does: it sees the end of its standard input, which only the agent holds open.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

from agileml.hosts.job import JobFolder


def main(role: str, folder: str, machine: str, incarnation: str, cores: str) -> None:
    threading.Thread(target=_end_with_agent, daemon=True).start()
    job = JobFolder(Path(folder))
    if role == "server":
        from agileml.hosts.serving import ServerProcess

        ServerProcess(job, machine, int(incarnation)).run()
    elif role == "worker":
        from agileml.hosts.training import WorkerProcess

        WorkerProcess(job, machine, int(incarnation), int(cores)).run()
    else:
        from agileml.hosts.controlling import ControllerProcess

        ControllerProcess(job).run()


def _end_with_agent() -> None:
    while os.read(sys.stdin.fileno(), 1):
        pass
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
