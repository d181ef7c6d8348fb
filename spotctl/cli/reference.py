"""Writes ``docs/cli.md`` from every verb's --help: ``python -m spotctl.cli.reference > docs/cli.md``."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

import typer
from typer.main import get_command

from spotctl.cli.app import EXIT_CODES, app

_WIDTH = 88


def written_by() -> str:
    """Returns a comment with the version of typer, since other versions lay help out differently."""
    return f"<!-- typer {version('typer')} -->"


def build_reference() -> str:
    """Returns the reference in Markdown."""
    root: Any = get_command(app)
    settings = {**root.context_settings, "terminal_width": _WIDTH, "max_content_width": _WIDTH}
    context = typer.Context(root, info_name="spotctl", **settings)
    parts = [
        "# Command line reference",
        written_by(),
        "Generated from `--help` by `python -m spotctl.cli.reference > docs/cli.md`.",
        _verb_section(root, context),
    ]
    parts += _list_sections(root, context)
    rows = [f"| {code} | {meaning} |" for code, meaning in EXIT_CODES]
    parts.append("\n".join(("## Exit codes", "", "| code | meaning |", "|---|---|", *rows)))
    return "\n\n".join(parts) + "\n"


def _list_sections(group: Any, context: typer.Context) -> Iterator[str]:
    """Yields the sections of the verbs of ``group``, with those of groups within it."""
    for name, verb in group.commands.items():
        own = typer.Context(verb, info_name=name, parent=context)
        yield _verb_section(verb, own)
        if hasattr(verb, "commands"):
            yield from _list_sections(verb, own)


def _verb_section(command: Any, context: typer.Context) -> str:
    lines = (line.rstrip() for line in command.get_help(context).splitlines())
    return "\n".join((f"## {context.command_path}", "", "```text", *lines, "```"))


if __name__ == "__main__":
    print(build_reference(), end="")
