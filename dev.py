#!/usr/bin/env python3
"""All that a fresh machine with Python and git needs: ``python3 dev.py quickstart`` and ``... test``.

Installs the pinned, hashed requirements into ``.venv`` beside this file when they changed, and spotctl
itself in place. Uses nothing but the standard library.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent
ENVIRONMENT = ROOT / ".venv"
PACKAGES = ("spotctl", "bidbrain", "agileml", "pricing_data")
CHECKS = (
    ("ruff", "format", "--check", "."),
    ("ruff", "check", "."),
    ("mypy",),
    ("lint-imports",),
)
TESTS = ("pytest", "--numprocesses", "logical", "--dist", "loadfile")
"""A process for each core; tests of one file share what its fixtures started."""
ALONE = ("pytest", "--last-failed", "--last-failed-no-failures", "none", "--alone")
"""Tests that wait for real processes, on a machine that does much else, may fail for want of time. Those
few are run once more with the machine to themselves, and named; tests/conftest.py refuses it to others."""
FAILED = 1  # pytest's exit status where tests ran and some failed


def main() -> int:
    """Run one of the two commands; the exit status of the first step that failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("quickstart", help="train the example on spot machines of this computer")
    test = verbs.add_parser("test", help="formatting, lint, types, import contracts and tests")
    test.add_argument("pytest", nargs="*", help="only run pytest, with these arguments")
    arguments, more = parser.parse_known_args()
    if sys.version_info < (3, 11):  # noqa: UP036 - said before anything fails obscurely
        parser.error(f"Python 3.11 or newer is needed, this is {sys.version.split()[0]}")
    if arguments.verb == "quickstart":
        install("run")
        return run("spotctl", "launch", str(ROOT / "examples" / "quickstart.yaml"), "--yes", *more)
    install("dev")
    only = [*arguments.pytest, *more]
    if only:
        return run("pytest", *only)
    for check in CHECKS:
        if status := run(*check):
            return status
    status = run(*TESTS)
    return run(*ALONE) if status == FAILED else status


def install(which: str) -> None:
    """Bring ``.venv`` up to date with requirements/``which``.txt; quick when it is."""
    requirements = ROOT / "requirements" / f"{which}.txt"
    wanted = hashlib.sha256(requirements.read_bytes() + (ROOT / "pyproject.toml").read_bytes()).hexdigest()
    stamp = ENVIRONMENT / f"installed-{which}"
    if stamp.exists() and stamp.read_text() == wanted:
        return
    print(f"installing into {ENVIRONMENT} ...", file=sys.stderr, flush=True)
    if not executable("python").exists():
        venv.create(ENVIRONMENT, with_pip=True)
    pip("install", "--require-hashes", "-r", str(requirements))
    pip("install", "--no-deps", "--no-build-isolation", "--editable", str(ROOT))
    run("python", "-m", "compileall", "-q", *(str(ROOT / package) for package in PACKAGES))
    stamp.write_text(wanted)


def pip(*arguments: str) -> None:
    quiet = ("--quiet", "--disable-pip-version-check")
    subprocess.run([str(executable("python")), "-m", "pip", *arguments, *quiet], check=True)


def run(program: str, *arguments: str) -> int:
    """Run a program of the environment in the repository's root; its exit status."""
    if program != "spotctl":
        print("$", program, *arguments, file=sys.stderr, flush=True)
    return subprocess.run([str(executable(program)), *arguments], cwd=ROOT, check=False).returncode


def executable(program: str) -> Path:
    return ENVIRONMENT / ("Scripts" if os.name == "nt" else "bin") / program


if __name__ == "__main__":
    sys.exit(main())
