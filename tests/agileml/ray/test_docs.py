"""Tests docs/ray.md: its code is the example's, its commands and settings are Ray's."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from tests.agileml.processes.ray_cluster import ENVIRONMENT

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "05_ray.py"
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", (ROOT / "docs" / "ray.md").read_text(encoding="utf-8"), re.DOTALL)


def test_the_code_is_the_example() -> None:
    (code,) = (block for language, block in BLOCKS if language == "python")
    assert code in EXAMPLE.read_text(encoding="utf-8")


def test_the_commands_and_the_settings_are_those_of_ray() -> None:
    from ray.scripts.scripts import cli

    (commands,) = (block for language, block in BLOCKS if language == "sh")
    exported, *starts = commands.splitlines()
    for line in starts:
        _, verb, *options = shlex.split(line)
        known = {name for parameter in cli.commands[verb].params for name in parameter.opts}
        assert {option.partition("=")[0] for option in options} <= known
    settings = dict(setting.split("=") for setting in exported.split()[1:])
    assert settings.items() <= ENVIRONMENT.items()
