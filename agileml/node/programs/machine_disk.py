"""Lays out a machine's disk for a program: its files, its checkpoints, and files that serve as messages.

work/            the working folder: a copy of the job's, with the mounted files
checkpoints/     $SPOTCTL_CHECKPOINT_DIR
progress.jsonl   $SPOTCTL_PROGRESS_FILE: the program appends {"step": 120}, and optionally "objective"
eviction.json    $SPOTCTL_EVICTION_FILE: appears when the provider is about to take the machine
"""

from __future__ import annotations

import datetime as dt
import json
import math
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from agileml.node.programs.checkpoint_folder import STEP_DIGITS, Checkpoint, newest_checkpoint
from agileml.node.programs.messages import ProgramDescription, Reached


@dataclass(frozen=True, slots=True)
class MachineDisk:
    """A machine's disk. ``path``: the machine's own folder, which is lost with the machine."""

    path: Path

    @property
    def work(self) -> Path:
        return self.path / "work"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def progress(self) -> Path:
        return self.path / "progress.jsonl"

    @property
    def eviction(self) -> Path:
        return self.path / "eviction.json"

    def newest_checkpoint(self) -> Checkpoint | None:
        """Returns the newest complete checkpoint that the program has written here."""
        return newest_checkpoint(self.checkpoints) if self.checkpoints.is_dir() else None

    def place_files(self, description: ProgramDescription) -> None:
        """Copies the job's files, without records of runs. Raises OSError, or fsspec's errors for a URL."""
        shutil.rmtree(self.work, ignore_errors=True)
        self.checkpoints.mkdir(parents=True, exist_ok=True)
        if description.workdir is None:
            self.work.mkdir()
        else:
            ignore = _leave_out(description.left_out, *_BESIDE_THE_WORK)
            shutil.copytree(description.workdir, self.work, symlinks=True, ignore=ignore)
        for target, source in description.file_mounts.items():
            _mount_source(source, self.work / target, _leave_out(description.left_out))

    def announce_eviction(self, seconds: float) -> None:
        """Writes the eviction file, atomically."""
        deadline = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=seconds)
        content = {"deadline": deadline.isoformat(timespec="milliseconds"), "seconds_left": round(seconds, 3)}
        unfinished = self.eviction.with_suffix(".part")
        unfinished.write_text(json.dumps(content))
        unfinished.replace(self.eviction)

    def environment_variables(self, checkpoint: Checkpoint | None) -> Mapping[str, str]:
        """Returns the program's environment variables. ``checkpoint``: where it resumes, if anywhere."""
        return {
            "SPOTCTL_CHECKPOINT_DIR": str(self.checkpoints),
            "SPOTCTL_CHECKPOINT": "" if checkpoint is None else str(checkpoint.path),
            "SPOTCTL_PROGRESS_FILE": str(self.progress),
            "SPOTCTL_EVICTION_FILE": str(self.eviction),
            "SPOTCTL_NODE_RANK": "0",
            "SPOTCTL_NUM_NODES": "1",
            "SPOTCTL_NODE_IPS": "127.0.0.1",
        }


_Ignore: TypeAlias = Callable[[str, list[str]], set[str]]
_BESIDE_THE_WORK: Final = (".git", "__pycache__")


def _leave_out(records: str, *patterns: str) -> _Ignore:
    """Returns copytree's ``ignore``: for these patterns, and for the folder ``records``."""
    # The disk is inside of that folder: a copy that included it would contain itself, and never end.
    named = shutil.ignore_patterns(*patterns)
    left_out = os.path.realpath(records) if records else ""

    def ignore(folder: str, names: list[str]) -> set[str]:
        real = os.path.realpath(folder)
        return named(folder, names) | {name for name in names if os.path.join(real, name) == left_out}

    return ignore


def _mount_source(source: str, target: Path, ignore: _Ignore) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if "://" in source:
        from fsspec.core import url_to_fs

        files, path = url_to_fs(source)
        files.get(path, str(target), recursive=files.isdir(path))
    elif Path(source).is_dir():
        shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True, ignore=ignore)
    else:
        shutil.copyfile(source, target)


class ProgressFile:
    """Reads a program's progress file. Logs the first line that it cannot read, and goes on."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = path.stat().st_size if path.exists() else 0
        self._complained = False

    def read_latest(self) -> Reached | None:
        """Returns the last complete line that was not read before; None if there is none."""
        if not self._path.exists():
            return None
        with self._path.open("rb") as file:
            # Shorter than before: the program began the file anew instead of appending to it.
            if file.seek(0, os.SEEK_END) < self._offset:
                self._offset = 0
            file.seek(self._offset)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._offset += len(whole)
        return self._parse_line(whole.splitlines()[-1]) if whole else None

    def _parse_line(self, line: bytes) -> Reached | None:
        try:
            content = json.loads(line)
            step, objective = content["step"], content.get("objective")
            # Messages hold 64-bit integers: a longer one would end the agent when it is sent.
            if not isinstance(step, int) or not 0 <= step < 10**STEP_DIGITS:
                raise ValueError(f"step is not a whole number from 0 to {10**STEP_DIGITS - 1}")
            if objective is not None and not math.isfinite(objective):
                raise ValueError("objective is not a finite number")
            return Reached(step, None if objective is None else float(objective))
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
            if not self._complained:
                found = line[:80].decode(errors="replace")
                expected = 'expected lines like {"step": 120} or {"step": 120, "objective": 0.5}'
                print(
                    f"{self._path.name}: found {found!r} ({error}); {expected}", file=sys.stderr, flush=True
                )
            self._complained = True
            return None
