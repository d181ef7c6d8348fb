"""The PyTorch example: a run whose machine is taken away ends with the losses of an undisturbed one.

Runs wherever torch can be imported; it is no dependency of ours.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.scenarios.support.command import command
from tests.scenarios.support.product import ROOT

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(
        importlib.util.find_spec("torch") is None,
        reason="torch is not installed; pip install torch to run it",
    ),
]


def test_the_loss_curve_is_the_undisturbed_one(tmp_path: Path) -> None:
    with command(tmp_path) as job:
        job.patience_s = 300  # to import torch, twice
        shutil.copytree(ROOT / "examples" / "command", tmp_path / "command")
        text = (ROOT / "examples" / "command_pytorch.yaml").read_text()
        text = text.replace("name: pytorch", "name: scenario").replace("../models/pytorch", "kept")
        text = text.replace("run: python ", f"run: {sys.executable} ").replace(
            "objective: {deadline: 5h}", ""
        )
        (tmp_path / "scenario.yaml").write_text(text.replace("python -c", f"{sys.executable} -c"))
        job.launch()
        job.reach(30)
        job.host.kill(job.running_on)
        calm = tmp_path / "calm"
        calm.mkdir()
        told = {
            "SPOTCTL_CHECKPOINT_DIR": str(calm),
            "SPOTCTL_CHECKPOINT": "",
            "SPOTCTL_PROGRESS_FILE": str(calm / "progress"),
        }
        program = str(tmp_path / "command" / "torch_loop.py")
        subprocess.run([sys.executable, program], env={**os.environ, **told}, check=True, timeout=300)
        final = job.end()
        assert (final["exit_code"], final["clocks"], final["failures"]) == (0, 120, 1), job.chatter
        disturbed = json.loads((tmp_path / "kept" / "step-120" / "losses.json").read_text())
        assert disturbed == json.loads((calm / "step-120" / "losses.json").read_text())
        assert len(disturbed) == 120
