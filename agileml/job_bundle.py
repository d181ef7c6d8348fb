"""A prepared job on its way to a machine that shares no disk with whoever prepared it.

Small: who is who, where the input and the model are, the keys, and the application's own file if it has one.
The input and the model themselves are where every machine can reach them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from agileml.job import Job, JobFolder
from agileml.node.transport.curve_keys import CurveKeys


@dataclass(frozen=True, slots=True)
class Shipment:
    """``program``: the application's file, where the job names one."""

    job: Job
    keys: CurveKeys
    program: bytes | None

    @classmethod
    def of(cls, folder: JobFolder) -> Shipment:
        """Raises ValueError for a job that is not on a network."""
        job, keys = folder.job(), folder.keys()
        if keys is None:
            raise ValueError(f"the job in {folder.path} is not on a network; prepare it with network=True")
        return cls(job, keys, Path(job.program).read_bytes() if job.program else None)

    def unpack(self, path: Path) -> JobFolder:
        """Make a job's folder of it on this machine, for its owner's eyes only; again is harmless."""
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        job, here = self.job, JobFolder(path).program
        if self.program is not None:
            here.write_bytes(self.program)
            job = replace(job, program=str(here))
        return JobFolder.set_up(path, job, self.keys)
