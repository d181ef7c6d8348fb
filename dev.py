#!/usr/bin/env python3
"""All that a fresh machine with Python and git needs: ``python3 dev.py quickstart`` and ``... test``.

Installs the pinned, hashed requirements into ``.venv`` beside this file when they changed, and spotctl
itself in place. Uses nothing but the standard library.
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
AT_ONCE = str((os.cpu_count() or 1) + 1)
TESTS = ("pytest", "--numprocesses", AT_ONCE, "--dist", "loadfile", "--no-loadscope-reorder")
"""A process for each core and one more, as many tests wait; those of one file share what fixtures started.
See tests/conftest.py."""
ALONE = ("pytest", "--last-failed", "--last-failed-no-failures", "none", "--alone")
"""Tests that wait for real processes, on a machine that does much else, may fail for want of time. Those
few are run once more with the machine to themselves, and named; tests/conftest.py refuses it to others."""
AS_UV_SAYS = {"index-url": "UV_DEFAULT_INDEX", "cert": "SSL_CERT_FILE"}
SELDOM_USED = (
    r"site-packages/(.*/(aio|lexers|tests)|cvxpy|moto|mypyc?|narwhals|pip|pydantic"
    r"|ray/(data|llm|rllib|serve|train|tune)|scipy|setuptools|sklearn)/"
)
COMPILE = ("-W", "ignore", "-m", "compileall", "-qq", "-j", "0", "-x", SELDOM_USED)
"""Many processes start at once, and what they import must not warn. What is no Python 3 stays as it is, and
what is seldom used, half of all, until it is."""
FAILED = 1  # pytest's exit status where tests ran and some failed


def main() -> int:
    """Run one of the two commands; the exit status of the first step that failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("quickstart", help="train the example on spot machines of this computer")
    checks = "formatting, lint, types, import contracts and tests"
    verbs.add_parser("test", help=f"{checks}; with arguments: only pytest, with these")
    arguments, more = parser.parse_known_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # whatever is compiled serves many processes
    if sys.version_info < (3, 11):  # noqa: UP036 - said before anything fails obscurely
        parser.error(f"Python 3.11 or newer is needed, this is {sys.version.split()[0]}")
    if arguments.verb == "quickstart":
        with installed("run"):
            pass
        return run("spotctl", "launch", str(ROOT / "examples" / "quickstart.yaml"), "--yes", *more)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as many processes share the cores
    with installed("dev"):
        unfit = 0 if more else run_together(*CHECKS)
    if more or unfit:
        return unfit or run("pytest", *more)
    status = run(*TESTS)
    return run(*ALONE) if status == FAILED else status


@contextmanager
def installed(which: str) -> Iterator[None]:
    """Bring ``.venv`` up to date with requirements/``which``.txt; quick when it is.

    What was installed is compiled while the caller goes on, and is when the context ends.
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
    """Put the pinned requirements and spotctl itself into ``.venv``."""
    if not executable("python").exists():
        venv.create(ENVIRONMENT, with_pip=True)
    pip("install", "--quiet", "--require-hashes", "-r", str(requirements.with_name("installer.txt")))
    told = as_pip_is_told()
    uv(told, "install", "--no-deps", "--require-hashes", "-r", str(requirements))
    uv(told, "install", "--no-deps", "--no-build-isolation", "--editable", str(ROOT))
    uv(told, "check")  # that the pins are whole


@contextmanager
def progress(requirements: Path) -> Iterator[None]:
    """While inside, say how far an installation is: on a terminal in one line, else every ten seconds."""
    wanted = len(re.findall(r"^[a-z0-9][\w.-]*==", requirements.read_text(), flags=re.MULTILINE))
    line, over, began = sys.stderr.isatty(), Event(), monotonic()
    print(f"installing {wanted} packages into {ENVIRONMENT}", file=sys.stderr, flush=True)

    def tell() -> None:
        while not over.wait(0.5 if line else 10.0):
            there = len(list(ENVIRONMENT.glob("[Ll]ib*/**/site-packages/*.dist-info")))
            told = f"  {min(there, wanted)} of {wanted} are there, {monotonic() - began:.0f} s"
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
    """What it says on its standard output."""
    command = [str(executable("python")), "-m", "pip", verb, "--disable-pip-version-check", *arguments]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


def uv(told: dict[str, str], verb: str, *arguments: str) -> None:
    """As pip does, on all cores."""
    command = [str(executable("uv")), "pip", verb, "--quiet", "--python", str(executable("python"))]
    subprocess.run([*command, *arguments], env={**told, **os.environ}, check=True)


def as_pip_is_told() -> dict[str, str]:
    """Where this machine's packages come from, for uv's environment: it reads none of pip's settings."""
    settings = re.findall(r"^\S+?\.([a-z-]+)='(.*)'$", pip("config", "list"), flags=re.MULTILINE)
    return {AS_UV_SAYS[name]: value for name, value in reversed(settings) if name in AS_UV_SAYS}


def run(program: str, *arguments: str) -> int:
    """Run a program of the environment in the repository's root; its exit status."""
    if program != "spotctl":
        print("$", program, *arguments, file=sys.stderr, flush=True)
    return subprocess.run([str(executable(program)), *arguments], cwd=ROOT, check=False).returncode


def run_together(*programs: tuple[str, ...]) -> int:
    """Run them at the same time, show what they say one after the other; the first status that is not 0."""
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
