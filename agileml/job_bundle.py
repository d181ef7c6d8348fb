"""Carries a prepared job to a machine that shares no disk with the one that prepared it.

It is small: it has addresses, the locations of input and model, the keys, and the application's own file if
it has one. The input and the model themselves are where every machine can reach them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from agileml.job import JobFolder, TrainingJob
from agileml.node.transport.curve_keys import CurveKeys


@dataclass(frozen=True, slots=True)
class JobBundle:
    """A prepared job. ``program``: the application's file, where the job names one."""

    job: TrainingJob
    keys: CurveKeys
    program: bytes | None

    @classmethod
    def from_folder(cls, folder: JobFolder) -> JobBundle:
        """Makes a bundle of a job's folder. Raises ValueError for a job that is not on a network."""
        job, keys = folder.read_job(), folder.read_keys()
        if keys is None:
            raise ValueError(f"the job in {folder.path} is not on a network; prepare it with network=True")
        return cls(job, keys, Path(job.program).read_bytes() if job.program else None)

    def unpack(self, path: Path) -> JobFolder:
        """Makes a job's folder of it on this machine, for its owner's eyes only. Harmless when repeated."""
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        job, here = self.job, JobFolder(path).program_file
        if self.program is not None:
            here.write_bytes(self.program)
            job = replace(job, program=str(here))
        return JobFolder.set_up(path, job, self.keys)
