"""``docs/cli.md``: every verb's --help, as it is. ``python -m spotctl.cli.reference > docs/cli.md``."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import typer
from typer.main import get_command

from spotctl.cli.app import app

_WIDTH = 88


def written_by() -> str:
    """The layout of help is typer's own: only the same version writes the same text."""
    return f"<!-- typer {version('typer')} -->"


def reference() -> str:
    """The reference in Markdown."""
    root: Any = get_command(app)
    settings = {**root.context_settings, "terminal_width": _WIDTH, "max_content_width": _WIDTH}
    context = typer.Context(root, info_name="spotctl", **settings)
    parts = [
        "# Command line reference",
        written_by(),
        "Generated from `--help`; `python -m spotctl.cli.reference > docs/cli.md` writes it anew.",
        _section(root, context),
    ]
    for name, verb in root.commands.items():
        parts.append(_section(verb, typer.Context(verb, info_name=name, parent=context)))
    return "\n\n".join(parts) + "\n"


def _section(command: Any, context: typer.Context) -> str:
    lines = (line.rstrip() for line in command.get_help(context).splitlines())
    return "\n".join((f"## {context.command_path}", "", "```text", *lines, "```"))


if __name__ == "__main__":
    print(reference(), end="")
