"""The example's program by itself: interrupted anywhere, its last step included, it ends as it should."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).parents[2] / "examples" / "command" / "regression.py"
LAST = "step-240"


def run(folder: Path, begin_from: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "SPOTCTL_CHECKPOINT_DIR": str(folder),
        "SPOTCTL_CHECKPOINT": begin_from,
        "SPOTCTL_PROGRESS_FILE": str(folder / "progress"),
        "SECONDS_PER_STEP": "0",
    }
    return subprocess.run(
        [sys.executable, str(PROGRAM)], env=environment, capture_output=True, text=True, check=False
    )


def test_a_program_that_is_begun_from_its_last_checkpoint_is_done(tmp_path: Path) -> None:
    assert run(tmp_path, "").returncode == 0
    weights = (tmp_path / LAST / "weights.npy").read_bytes()
    again = run(tmp_path, str(tmp_path / LAST))
    assert (again.returncode, again.stderr) == (0, "")
    assert again.stdout == "done after step 240\n"
    assert (tmp_path / LAST / "weights.npy").read_bytes() == weights
