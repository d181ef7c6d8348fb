#!/usr/bin/env python3
"""Installs and runs spotctl on a machine that has only Python: ``python3 dev.py quickstart``, ``... test``.

Installs the pinned, hashed requirements into ``.venv`` beside this file whenever they change, and spotctl
itself in place. Uses the standard library only.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event, Thread
from time import monotonic

ROOT = Path(__file__).resolve().parent
ENVIRONMENT = ROOT / ".venv"
OURS = [ROOT / package for package in ("spotctl", "bidbrain", "agileml", "pricing_data")]
CHECKS = (
    ("ruff", "format", "--check", "."),
    ("ruff", "check", "."),
    ("mypy", "--num-workers", "auto"),
    ("lint-imports",),
)
PROCESSES = str((os.cpu_count() or 1) + 1)
TESTS = ("pytest", "--numprocesses", PROCESSES, "--dist", "loadfile", "--no-loadscope-reorder")
"""One process more than cores, as many tests wait. The tests of a file share a process, and so its fixtures.
tests/conftest.py orders the files."""
AGAIN_ALONE = ("pytest", "--last-failed", "--last-failed-no-failures", "none", "--alone")
"""Tests that wait for real processes may run out of time on a busy machine. The few that fail run once more,
one at a time, and are named; tests/conftest.py allows this for no other test."""
UV_VARIABLES = {"index-url": "UV_DEFAULT_INDEX", "cert": "SSL_CERT_FILE"}
RARELY_IMPORTED = (
    r"site-packages/(.*/(aio|lexers|tests)|cvxpy|moto|mypyc?|narwhals|pip|pydantic"
    r"|ray/(data|llm|rllib|serve|train|tune)|scipy|setuptools|sklearn)/"
)
COMPILE = ("-W", "ignore", "-m", "compileall", "-qq", "-j", "0", "-x", RARELY_IMPORTED)
"""Compiles ahead of time, as many processes start at once. Leaves out what few of them import, half of all.
Files that are no Python 3 fail to compile, and no harm is done."""
FAILED = 1  # pytest's exit status where tests ran and some failed


def main() -> int:
    """Runs one of the two commands, and returns the exit status of the first step that fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("quickstart", help="train the example on spot machines of this computer")
    checks = "formatting, lint, types, import contracts and tests"
    verbs.add_parser("test", help=f"{checks}; with arguments: only pytest, with these")
    arguments, more = parser.parse_known_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # many processes share the compiled modules
    if sys.version_info < (3, 11):  # noqa: UP036 - a clear message first
        parser.error(f"Python 3.11 or newer is needed, this is {sys.version.split()[0]}")
    if arguments.verb == "quickstart":
        with installed("run"):
            pass
        return run("spotctl", "launch", str(ROOT / "examples" / "quickstart.yaml"), "--yes", *more)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # the tests use all cores already
    with installed("dev"):
        failed = 0 if more else run_together(*CHECKS)
    if more or failed:
        return failed or run("pytest", *more)
    status = run(*TESTS)
    return run(*AGAIN_ALONE) if status == FAILED else status


@contextmanager
def installed(which: str) -> Iterator[None]:
    """Brings ``.venv`` up to date with requirements/``which``.txt; quick if it is.

    New packages are compiled while the block runs; the context ends when they are.
    """
    requirements = ROOT / "requirements" / f"{which}.txt"
    wanted = hashlib.sha256(requirements.read_bytes() + (ROOT / "pyproject.toml").read_bytes()).hexdigest()
    stamp = ENVIRONMENT / f"installed-{which}"
    if stamp.exists() and stamp.read_text() == wanted:
        yield
        return
    with progress(requirements):
        install(requirements)
    with subprocess.Popen([str(executable("python")), *COMPILE, str(ENVIRONMENT), *map(str, OURS)]):
        yield
    stamp.write_text(wanted)


def install(requirements: Path) -> None:
    """Installs the pinned requirements and spotctl itself into ``.venv``."""
    if not executable("python").exists():
        venv.create(ENVIRONMENT, with_pip=True)
    pip("install", "--quiet", "--require-hashes", "-r", str(requirements.with_name("installer.txt")))
    settings = pip_settings()
    uv(settings, "install", "--no-deps", "--require-hashes", "-r", str(requirements))
    uv(settings, "install", "--no-deps", "--no-build-isolation", "--editable", str(ROOT))
    uv(settings, "check")  # that no pin is missing


@contextmanager
def progress(requirements: Path) -> Iterator[None]:
    """Shows the progress of an installation: one line on a terminal, else a line every ten seconds."""
    wanted = len(re.findall(r"^[a-z0-9][\w.-]*==", requirements.read_text(), flags=re.MULTILINE))
    line, over, began = sys.stderr.isatty(), Event(), monotonic()
    print(f"installing {wanted} packages into {ENVIRONMENT}", file=sys.stderr, flush=True)

    def tell() -> None:
        while not over.wait(0.5 if line else 10.0):
            there = len(list(ENVIRONMENT.glob("[Ll]ib*/**/site-packages/*.dist-info")))
            told = f"  {min(there, wanted)} of {wanted} installed, {monotonic() - began:.0f} s"
            print(f"\r{told} " if line else told, end="" if line else "\n", file=sys.stderr, flush=True)

    telling = Thread(target=tell, daemon=True)
    telling.start()
    try:
        yield
    finally:
        over.set()
        telling.join()
        print(f"{chr(13) if line else ''}  installed in {monotonic() - began:.0f} s        ", file=sys.stderr)


def pip(verb: str, *arguments: str) -> str:
    """Runs pip and returns its standard output."""
    command = [str(executable("python")), "-m", "pip", verb, "--disable-pip-version-check", *arguments]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


def uv(variables: dict[str, str], verb: str, *arguments: str) -> None:
    """Runs uv's version of pip, which uses all cores."""
    command = [str(executable("uv")), "pip", verb, "--quiet", "--python", str(executable("python"))]
    subprocess.run([*command, *arguments], env={**variables, **os.environ}, check=True)


def pip_settings() -> dict[str, str]:
    """Returns pip's settings of package indexes as variables for uv, which does not read them."""
    settings = re.findall(r"^\S+?\.([a-z-]+)='(.*)'$", pip("config", "list"), flags=re.MULTILINE)
    return {UV_VARIABLES[name]: value for name, value in reversed(settings) if name in UV_VARIABLES}


def run(program: str, *arguments: str) -> int:
    """Run a program of the environment in the repository's root; its exit status."""
    if program != "spotctl":
        print("$", program, *arguments, file=sys.stderr, flush=True)
    return subprocess.run([str(executable(program)), *arguments], cwd=ROOT, check=False).returncode


def run_together(*programs: tuple[str, ...]) -> int:
    """Runs programs side by side, prints their outputs in order, and returns the first status not 0."""
    with ExitStack() as files:
        started = []
        for program, *arguments in programs:
            said = files.enter_context(tempfile.TemporaryFile())
            command = [str(executable(program)), *arguments]
            started.append((subprocess.Popen(command, cwd=ROOT, stdout=said, stderr=subprocess.STDOUT), said))
        statuses = []
        for command, (process, said) in zip(programs, started, strict=True):
            statuses.append(process.wait())
            print("$", *command, file=sys.stderr, flush=True)
            said.seek(0)
            sys.stdout.buffer.write(said.read())
            sys.stdout.flush()
    return next(filter(None, statuses), 0)


def executable(program: str) -> Path:
    return ENVIRONMENT / ("Scripts" if os.name == "nt" else "bin") / program


if __name__ == "__main__":
    sys.exit(main())
