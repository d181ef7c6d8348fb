"""Options that are read without pydantic mean what Typer makes of them."""

from __future__ import annotations

import subprocess
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

from spotctl.cli.app import _Verbs


class Color(StrEnum):
    RED = "red"
    BLUE = "blue"


def verbs(cls: Any) -> tuple[typer.Typer, list[dict[str, Any]]]:
    """The same verb of a group of the product's or of Typer's, and what it was called with."""
    app, called = typer.Typer(cls=cls, rich_markup_mode=None), list[dict[str, Any]]()

    @app.callback()
    def _root() -> None: ...

    @app.command()
    def paint(
        where: Path,
        color: Color = Color.RED,
        coats: Annotated[int, typer.Option(min=1, max=9)] = 1,
        speed: Annotated[float, typer.Option(min=1.0)] = 600.0,
        name: Annotated[str | None, typer.Option(envvar="PAINT_NAME")] = None,
        also: Annotated[list[str] | None, typer.Option()] = None,
        dry: bool = False,
    ) -> None:
        called.append(locals().copy())

    return app, called


@pytest.mark.parametrize(
    "arguments",
    [
        ("wall",),
        ("wall", "--color", "blue", "--coats", "3", "--speed", "1e3", "--dry"),
        ("", "--coats", "+4", "--speed", "12", "--also", "a", "--also", "b=c"),
        ("wall", "--coats", "10"),
        ("wall", "--coats", "0"),
        ("wall", "--coats", "2.5"),
        ("wall", "--coats", "1_0"),
        ("wall", "--coats", " 7 "),
        ("wall", "--coats", "1" * 30),
        ("wall", "--speed", "nan"),
        ("wall", "--speed", "inf"),
        ("wall", "--speed", "0.5"),
        ("wall", "--speed", "fast"),
        ("wall", "--color", "green"),
        ("wall", "--color", "RED"),
        ("wall", "--name", ""),
        (),
    ],
)
def test_values_and_messages_are_those_of_typer(
    arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAINT_NAME", "from outside")
    (quick, quickly), (plain, plainly) = verbs(_Verbs), verbs(typer.core.TyperGroup)
    ours, theirs = (CliRunner().invoke(app, ["paint", *arguments]) for app in (quick, plain))
    assert (ours.exit_code, ours.output) == (theirs.exit_code, theirs.output)
    assert repr(quickly) == repr(plainly)


def test_another_version_of_typer_reads_options_itself() -> None:
    hidden = (
        "import sys; sys.modules['spotctl.cli.commands.option_values'] = None;"
        "from spotctl.__main__ import main; main()"
    )
    command = [sys.executable, "-c", hidden, "report", "--by", "nothing"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert "Invalid value for '--by'" in result.stderr
