"""Writes ``docs/cli.md``: every verb's --help, as it is. ``python -m spotctl.cli.reference >
docs/cli.md``.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

import typer
from typer.main import get_command

from spotctl.cli.app import app

_WIDTH = 88
_EXIT_CODES = """\
## Exit codes

| code | means |
|---|---|
| 0 | done |
| 1 | the job failed, or something went wrong that is not the user's doing |
| 2 | wrong use, or a bad file: the message names file, line, field and what was expected |
| 3 | nothing to do: the job runs already (`--if-running skip`), has ended, or the plan was declined |
| 4 | a cloud refused: credentials or permission |
| 5 | no capacity or quota anywhere allowed |
| 6 | a deadline or a budget cannot be met, or was missed |
| 7 | interrupted; the message says whether the job goes on or was torn down |
| 8 | the job runs already, and nothing was started (`--if-running skip`: 3; `attach` follows it) |
| 130 | Ctrl-C, SIGTERM or a closed terminal before anything was started |"""


def written_by() -> str:
    """Returns the version of typer, whose layout help has: only the same version writes the same text."""
    return f"<!-- typer {version('typer')} -->"


def build_reference() -> str:
    """Returns the reference in Markdown."""
    root: Any = get_command(app)
    settings = {**root.context_settings, "terminal_width": _WIDTH, "max_content_width": _WIDTH}
    context = typer.Context(root, info_name="spotctl", **settings)
    parts = [
        "# Command line reference",
        written_by(),
        "Generated from `--help`; `python -m spotctl.cli.reference > docs/cli.md` writes it anew.",
        _verb_section(root, context),
    ]
    parts += _list_sections(root, context)
    parts.append(_EXIT_CODES)
    return "\n\n".join(parts) + "\n"


def _list_sections(group: Any, context: typer.Context) -> Iterator[str]:
    """Yields the sections of the verbs of ``group``, and of theirs."""
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
