"""What the README says can be done, is done."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from spotctl.job.file import parse_job

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", README, re.DOTALL)
COMMANDS = [line for language, block in BLOCKS if language == "sh" for line in block.splitlines()]


def run(*command: str, home: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "SPOTCTL_HOME": str(home)}
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=240, check=False
    )


def spotctl(line: str) -> list[str]:
    """A command of the README with the environment's own spotctl."""
    _, *arguments = shlex.split(line)
    return [sys.executable, "-m", "spotctl", *arguments]


def test_two_commands_start_everything() -> None:
    assert [line for line in COMMANDS if "dev.py" in line] == [
        "python3 dev.py quickstart",
        "python3 dev.py test",
    ]
    helped = subprocess.run(
        [sys.executable, "dev.py", "--help"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "quickstart" in helped.stdout
    assert "test" in helped.stdout


def test_an_installation_says_how_far_it_is() -> None:
    code = (
        "import dev; from pathlib import Path\nwith dev.progress(Path('requirements/run.txt')):\n    pass\n"
    )
    said = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert re.search(r"installing \d\d packages into", said.stderr)
    assert "installed in" in said.stderr


def test_the_ci_calls_the_test_command() -> None:
    assert (ROOT / ".ci" / "run").read_text().splitlines()[-1] == "exec python3 dev.py test"


@pytest.mark.process
def test_the_verbs_run_as_shown(tmp_path: Path) -> None:
    shown = [line for line in COMMANDS if line.startswith(".venv/bin/spotctl")]
    assert [shlex.split(line)[1] for line in shown] == [
        *("plan", "launch", "report", "backtest"),
        *("queue", "queue", "prices", "prices", "advise"),
    ]
    said = {}
    for line in shown:
        ran = run(*spotctl(f"{line} --help" if " fetch " in line else line), home=tmp_path)
        assert ran.returncode == 0, ran.stderr
        said[line] = ran.stdout
    assert "quickstart" in said[".venv/bin/spotctl report"]
    assert "proteus" in said[".venv/bin/spotctl backtest examples/quickstart.yaml --starts 100"]
    assert (
        "regression" in said[".venv/bin/spotctl queue run examples/nightly_batch.yaml --yes --world replay"]
    )
    assert "finish-time-fairness" in said[".venv/bin/spotctl queue policies"]
    assert "--cloud" in said[".venv/bin/spotctl prices fetch --cloud azure"]
    assert "bundled market (generated)" in said[".venv/bin/spotctl advise --cpus 4+"]


def test_the_job_file_shown_is_one(tmp_path: Path) -> None:
    (tmp_path / "ratings.csv.gz").touch()
    (job,) = [block for language, block in BLOCKS if language == "yaml"]
    spec = parse_job(job, "movies.yaml", tmp_path)
    assert (spec.name, spec.spot.max_instances) == ("movies", 8)


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_examples_run(example: Path, tmp_path: Path) -> None:
    ran = run(sys.executable, str(example), home=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout
    if example.name == "04_elastic_training.py":
        assert "spot-2 is safe to kill" in ran.stdout
        assert "finished after clock 60" in ran.stdout


def test_the_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)]+)\)", README + (ROOT / "ARCHITECTURE.md").read_text()):
        assert (ROOT / target).exists(), target
