"""How long a person waits for the command itself: ``--help``, ``plan``, beside a bare typer program.

Bytecode is compiled first, as an installation would have it. Aims on one quiet core: help 0.15 s,
plan 0.6 s. Ratios to the bare program hold on any machine.
"""

from __future__ import annotations

import compileall
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
RUNS = 15
BARE = """\
import typer
app = typer.Typer(rich_markup_mode=None)
@app.command()
def launch(job: str, yes: bool = False) -> None: ...
@app.command()
def plan(job: str) -> None: ...
app()
"""
SPOTCTL = "from spotctl.cli.app import main; main()"
PACKAGES = ("spotctl", "bidbrain", "agileml", "pricing_data")


def main() -> None:
    """Print medians of wall time and their ratio to the bare program's."""
    for package in PACKAGES:
        compileall.compile_dir(ROOT / package, quiet=2)
    plan = ("plan", str(ROOT / "examples" / "quickstart.yaml"))
    cases: dict[str, Sequence[str]] = {
        "an empty interpreter": ("-c", "pass"),
        "a bare typer program, --help": ("-c", BARE, "--help"),
        "a bare typer program, launch --help": ("-c", BARE, "launch", "--help"),
        "spotctl --help": ("-c", SPOTCTL, "--help"),
        "spotctl launch --help": ("-c", SPOTCTL, "launch", "--help"),
        "spotctl plan examples/quickstart.yaml": ("-c", SPOTCTL, *plan),
    }
    medians = {name: _median(arguments) for name, arguments in cases.items()}
    bare = medians["a bare typer program, --help"]
    for name, median in medians.items():
        print(f"{name:40} {median * 1000:7.0f} ms {median / bare:6.2f} x bare")


def _median(arguments: Sequence[str]) -> float:
    with tempfile.TemporaryDirectory() as home:
        return statistics.median(_seconds(arguments, home) for _ in range(RUNS))


def _seconds(arguments: Sequence[str], home: str) -> float:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "SPOTCTL_HOME": home}
    began = time.perf_counter()
    subprocess.run([sys.executable, *arguments], env=environment, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began
