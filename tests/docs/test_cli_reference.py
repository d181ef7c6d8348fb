"""The command reference is what ``--help`` says today."""

from __future__ import annotations

from pathlib import Path

import pytest

from spotctl.cli.reference import build_reference, written_by

CLI_MD = Path(__file__).parents[2] / "docs" / "cli.md"


def test_the_reference_is_fresh() -> None:
    text = CLI_MD.read_text(encoding="utf-8")
    if written_by() not in text:
        pytest.skip("docs/cli.md was written by another version of typer, whose layout differs")
    assert text == build_reference(), "run: python -m spotctl.cli.reference > docs/cli.md"


def test_every_verb_is_in_the_reference() -> None:
    """Whatever version of typer lays it out."""
    headings = {line for line in CLI_MD.read_text(encoding="utf-8").splitlines() if line.startswith("## ")}
    assert headings == {line for line in build_reference().splitlines() if line.startswith("## ")}
