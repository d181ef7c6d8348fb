"""spotctl with one more engine: command jobs whose machines are network namespaces with disks of their own.

``python -m tests.scenarios.support.machines_elsewhere ...`` is ``spotctl ...`` with it. The variable
``ELSEWHERE`` names a file that says where machines run. Of the scenario's folder a machine sees what is on
its own disk and nothing else: the folder of its disk is mounted over it.
"""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from agileml.node.hosts.local import HERE, MachineLocation
from agileml.node.programs.job_folder import ProgramFolder
from agileml.node.programs.local_host import ProgramHost
from agileml.node.run_folder import write_whole
from agileml.node.tier import Tier
from spotctl.cli.app import main
from spotctl.control import entries as e
from spotctl.control.engine_traits import CHECKPOINTING_PROGRAM
from spotctl.control.run_spec import RunSpec
from spotctl.engines.base import Training
from spotctl.engines.registry import ADAPTERS, Engine, EngineAdapter, register_engine
from spotctl.engines.simulated import MODELS
from spotctl.job.checks import JOB_CHECKS
from spotctl.job.file import JOB_TABLES
from spotctl.job.settings import Settings
from spotctl.job.spec import JobSpec
from spotctl.records.run import Run
from spotctl.schema.table import Section, Values
from spotctl.worlds.local import HOSTS

VARIABLE: Final = "ELSEWHERE"
TRAITS: Final = replace(CHECKPOINTING_PROGRAM, kind="elsewhere")
_OWN_DISK: Final = 'mount --bind "$1" "$2" && cd / && shift 2 && exec "$@"'


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """``here``: our's address; ``hidden``: the folder that machines do not see; ``disks``: theirs."""

    here: str
    machines: tuple[MachineLocation, ...]
    hidden: str
    disks: str

    def write(self, file: Path) -> None:
        file.write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls) -> Elsewhere:
        content: dict[str, Any] = json.loads(Path(os.environ[VARIABLE]).read_text())
        machines = (MachineLocation(m["address"], tuple(m["enter"])) for m in content["machines"])
        return cls(**{**content, "machines": tuple(machines)})


class NamespaceHost(ProgramHost):
    """Starts machines in one namespace after the other."""

    def __init__(self, folder: Path, where: Elsewhere) -> None:
        super().__init__(folder)
        self._shared = ProgramFolder(folder.resolve())
        self._where = where

    def start_machine(
        self, machine: str, tier: Tier, cores: int, where: MachineLocation = HERE, until: float = math.inf
    ) -> None:
        number = len(self._shared.machine_names())
        space = self._where.machines[number % len(self._where.machines)]
        mount = ("unshare", "--mount", "sh", "-c", _OWN_DISK, "sh", str(self._disk(machine)))
        enter = (*space.enter, *mount, self._where.hidden)
        super().start_machine(machine, tier, cores, MachineLocation(space.address, enter), until)
        # The agent writes its own down on its own disk, where a restarted spotctl does not see it.
        write_whole(self._shared.machine_folder(machine) / "group", str(self._started[machine].process_group))

    def prepare_machine(self, machine: str, tier: Tier) -> list[str]:
        """What a cloud's user data would carry is put on the machine's disk."""
        told = super().prepare_machine(machine, tier)
        given = self._shared.machine_folder(machine)
        there = self._disk(machine) / given.relative_to(self._where.hidden)
        there.mkdir(parents=True)
        shutil.copyfile(given / "link.json", there / "link.json")
        return told

    def _disk(self, machine: str) -> Path:
        return Path(self._where.disks) / machine


@dataclass(frozen=True, slots=True)
class _Adapter:
    """A command's, on other machines."""

    command: EngineAdapter
    folder: Path

    @property
    def is_prepared(self) -> bool:
        return self.command.is_prepared

    def prepare(self, check: Callable[[], None] = lambda: None) -> None:
        self.command.prepare(check)
        described = ProgramFolder(self.folder).read_description()
        ProgramFolder.prepare(self.folder, described, Elsewhere.read().here)

    def build_training(self, host: Any, on_record: Sequence[e.Entry]) -> Training:
        return self.command.build_training(host, on_record)

    def finished_at(self) -> float | None:
        return self.command.finished_at()

    def plan_scoring(self, state: Any) -> Any:
        return self.command.plan_scoring(state)


def adapt(settings: Settings, terms: RunSpec, run: Run) -> EngineAdapter:
    return _Adapter(ADAPTERS[CHECKPOINTING_PROGRAM.kind](settings, terms, run), run.training_folder)


def make_job(section: Section, values: Values) -> JobSpec:
    return replace(JOB_TABLES[CHECKPOINTING_PROGRAM.kind].make(section, values), engine=TRAITS)


if __name__ == "__main__":
    kind = CHECKPOINTING_PROGRAM.kind
    table = replace(JOB_TABLES[kind], make=make_job)
    HOSTS[TRAITS.kind] = lambda folder, _: NamespaceHost(folder, Elsewhere.read())
    register_engine(Engine(TRAITS, table, JOB_CHECKS[kind], MODELS[kind], adapt))
    main()
