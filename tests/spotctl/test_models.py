"""Where a model goes, and what is said where it cannot go there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from spotctl.errors import UsageError
from spotctl.models import check_output


def test_a_folder_that_can_be_written_to_is_left_empty(tmp_path: Path) -> None:
    check_output(str(tmp_path / "new" / "models"))
    assert list((tmp_path / "new" / "models").iterdir()) == []
    check_output("memory://models")


@pytest.mark.parametrize("output", ["/proc/nowhere", "no-such-protocol://bucket/models"])
def test_one_that_cannot_is_refused_before_anything_starts(output: str) -> None:
    with pytest.raises(UsageError, match=f"^output: {output} cannot be written to: "):
        check_output(output)


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "models").write_text("")
    with pytest.raises(UsageError, match="models cannot be written to: File exists"):
        check_output(str(tmp_path / "models"))


def test_a_launch_that_cuts_no_input_waits_for_no_database() -> None:
    """One of a command job, or one that goes on: both libraries take longer to load than the rest."""
    loaded = "[name for name in ('duckdb', 'pandas', 'fsspec') if name in sys.modules]"
    code = f"import sys, spotctl.worlds.local; print({loaded})"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
