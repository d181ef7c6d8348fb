"""Reads the part of a job file that only ``engine: command`` has: program, files, checkpoints, work.

Names are SkyPilot's where it has the concept. Where they promise more than this version does (several nodes,
mounts anywhere), the file is refused and the message says what it does instead.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import yaml

from spotctl.job.readers import (
    ABOVE_ZERO,
    DURATION,
    FROM_0,
    FROM_1,
    ON_OR_OFF,
    PLACE,
    SHARE,
    SPAN,
    TYPE,
    VARIABLE,
    YES_OR_NO,
    absolute_location,
    own_keys,
)
from spotctl.job.spec import CommandCheckpoints, CommandSpec, CoreGains, WorkSpec
from spotctl.job.yaml_reader import (
    Mismatch,
    Section,
    describe_node,
    list_of,
    one_of,
    size,
    word,
)

KEYS: Final = (
    "secrets",
    "workdir",
    "file_mounts",
    "setup",
    "run",
    "num_nodes",
    "work",
    "retries",
)
"""Keys of the outermost mapping that a job of another engine does not have."""
NOT_ITS: Final = ("app", "args", "data", "columns", "stop", "training", "score")
"""Keys of AgileML's jobs that a command does not have."""
DEFAULT_STRATEGY: Final = "proteus"
"""A program runs on one machine at a time, so there is no footprint to keep up."""
STRATEGY: Final = one_of(DEFAULT_STRATEGY, "on-demand", "uniform-progress", "greedy")
"""The other strategies are ways to run an elastic trainer."""
_NAME: Final = "the name of a variable"
_INSIDE: Final = r"(?!.*(^|/)\.\.(/|$))[^/~\s][^\n]*"


def read_command(root: Section, folder: Path) -> CommandSpec:
    """Reads what to run. Problems are reported to the document of ``root``."""
    nodes = root.get("num_nodes", FROM_1, 1)
    if nodes != 1:
        message = f"found {nodes}, expected 1: a command job of this version runs on one machine at a time"
        root.reject("num_nodes", message)
    shell, expected = word("a line of shell", r"(?s).*\S.*"), "the command to run, like python train.py"
    return CommandSpec(
        run=root.get("run", shell, "", expected),
        setup=root.get("setup", shell, ""),
        workdir=_read_workdir(root, folder),
        file_mounts=_read_file_mounts(root, folder),
        secrets=root.get("secrets", _read_secrets, ()),
        checkpoint=_read_checkpoint(root, folder),
        work=_read_work(root.section("work")) if root.has("work") else None,
        retries=root.get("retries", FROM_0, 1),
    )


def read_gains(section: Section) -> CoreGains:
    """Reads what the program gains from more cores, as ``scaling`` says. Problems go to its document."""
    found = CoreGains(
        section.get("cores", FROM_1, None),
        section.get("phi", SHARE, None),
    )
    if found.cores is not None and found.phi is not None:
        section.reject("phi", "found beside cores; expected one: it uses so many cores, or gains by phi")
        return CoreGains(found.cores)
    return found


def _read_workdir(root: Section, folder: Path) -> str | None:
    written = root.get("workdir", word("a folder"), None)
    if written is None:
        return None
    place = absolute_location(written, folder)
    if not Path(place).is_dir():
        root.reject("workdir", f"found {written!r}, but there is no folder {place}")
    return place


def _read_file_mounts(root: Section, folder: Path) -> Mapping[str, str]:
    section = root.section("file_mounts")
    expected = (
        "a path below the working folder, like data/train.csv: machines of this computer share its disk"
    )
    mounts = own_keys(section, word("a file, a folder or a URL"), _INSIDE, expected)
    found = {target: absolute_location(source, folder) for target, source in mounts.items()}
    for target, source in found.items():
        if "://" not in source and not Path(source).exists():
            section.reject(target, f"found {mounts[target]!r}, but there is nothing at {source}")
    return found


def _read_secrets(node: yaml.Node) -> tuple[str, ...]:
    """Reads names alone. A value is refused without being shown."""
    if not isinstance(node, yaml.MappingNode):
        return list_of(word(_NAME, VARIABLE), f"a list of secrets, each {_NAME}")(node)
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode) or re.fullmatch(VARIABLE, key.value) is None:
            raise Mismatch(key, f"found {describe_node(key)}, expected {_NAME}")
        if not isinstance(value, yaml.ScalarNode) or value.tag != "tag:yaml.org,2002:null":
            told = f"expected nothing: export {key.value} before you launch, so that no file has it"
            raise Mismatch(value, f"found a value for the secret {key.value}, {told}")
    return tuple(key.value for key, _ in node.value)


def _read_checkpoint(root: Section, folder: Path) -> CommandCheckpoints:
    default = CommandCheckpoints()
    if not root.has("checkpoint"):
        return default
    if root.is_word("checkpoint"):
        keeps = root.get("checkpoint", ON_OR_OFF, True)
        return CommandCheckpoints(keeps=keeps, on_warning=keeps)
    section = root.section("checkpoint")
    store = section.get("store", PLACE, None)
    if store is not None and store.startswith("memory://"):
        section.reject("store", "found memory://, expected a place that outlives a machine")
    return CommandCheckpoints(
        None if store is None else absolute_location(store, folder),
        section.get("every", SPAN, default.every),
        section.get("restart", DURATION, default.restart),
        section.get("on_warning", YES_OR_NO, default.on_warning),
        section.get("size", size(), default.size_bytes),
        section.get("link_mbit_s", ABOVE_ZERO, default.link_mbit_s),
        keeps=True,
    )


def _read_work(section: Section) -> WorkSpec:
    return WorkSpec(
        section.get("steps", FROM_1, 1, "how many steps the program takes, as it counts them"),
        section.get("takes", SPAN, CommandCheckpoints().every, "how long that takes, like 3h"),
        section.get("on", TYPE, None),
    )
