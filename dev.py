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
PIPS = min(4, os.cpu_count() or 1)
SELDOM_USED = r"site-packages/(.*/tests|moto|mypyc?|pip|ray/(data|llm|rllib|serve|train|tune)|setuptools)/"
COMPILE = ("-W", "ignore", "-m", "compileall", "-qq", "-j", "0", "-x", SELDOM_USED)
"""Many processes start at once, and what they import must not warn. What is no Python 3 stays as it is, and
so does what is seldom used, two fifths of all."""
FAILED = 1  # pytest's exit status where tests ran and some failed


def main() -> int:
    """Run one of the two commands; the exit status of the first step that failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("quickstart", help="train the example on spot machines of this computer")
    checks = "formatting, lint, types, import contracts and tests"
    verbs.add_parser("test", help=f"{checks}; with arguments: only pytest, with these")
    arguments, more = parser.parse_known_args()
    if sys.version_info < (3, 11):  # noqa: UP036 - said before anything fails obscurely
        parser.error(f"Python 3.11 or newer is needed, this is {sys.version.split()[0]}")
    if arguments.verb == "quickstart":
        with installed("run"):
            pass
        return run("spotctl", "launch", str(ROOT / "examples" / "quickstart.yaml"), "--yes", *more)
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
    print(f"installing into {ENVIRONMENT} ...", file=sys.stderr, flush=True)
    if not executable("python").exists():
        venv.create(ENVIRONMENT, with_pip=True)
    install_together(requirements.read_text())
    pip("install", "--no-deps", "--no-build-isolation", "--editable", str(ROOT))
    pip("check")  # that the pins are whole
    with subprocess.Popen([str(executable("python")), *COMPILE, str(ENVIRONMENT), *map(str, OURS)]):
        yield
    stamp.write_text(wanted)


def install_together(requirements: str) -> None:
    """Each process a part of them: pip by itself uses one core, most of the time to unpack.

    Nothing is resolved and no two packages have a file in common, so that they do not meet.
    """
    packages = re.split(r"^(?=\S)", requirements, flags=re.MULTILINE)  # each with the lines of its hashes
    with tempfile.TemporaryDirectory() as place:
        started = []
        for number in range(PIPS):
            part = Path(place) / f"{number}.txt"
            part.write_text("".join(packages[number::PIPS]))
            command = pip_command("install", "--require-hashes", "--no-deps", "-r", str(part))
            started.append(subprocess.Popen(command))
        statuses = [process.wait() for process in started]
    if any(statuses):
        sys.exit("pip could not install what is pinned in requirements/; it says why above")


def pip(verb: str, *arguments: str) -> None:
    subprocess.run(pip_command(verb, *arguments), check=True)


def pip_command(verb: str, *arguments: str) -> list[str]:
    """Without compiling: it would do so in the end, on one core, while everybody waits."""
    options = ("--quiet", "--no-compile") if verb == "install" else ()
    return [
        str(executable("python")),
        "-m",
        "pip",
        verb,
        "--disable-pip-version-check",
        *options,
        *arguments,
    ]


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
