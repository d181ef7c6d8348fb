"""Defines ``init``: writes a job file to start from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from spotctl.cli.format import output
from spotctl.errors import UsageError
from spotctl.job.choices import JobKind


def add_to(app: typer.Typer) -> None:
    """Gives ``app`` the verb of this module."""
    app.command()(init)


def init(
    file: Annotated[Path, typer.Argument(metavar="[JOB.yaml]", help="File to write.")] = Path("job.yaml"),
    kind: Annotated[
        JobKind | None,
        typer.Option(
            "--app",
            help="mf: matrix factorization of ratings; mlr: logistic regression; lda: topic model; command: "
            "your own program.",
        ),
    ] = None,
    data: Annotated[str | None, typer.Option(metavar="FILE", help="Training data: a file or a URL.")] = None,
    run: Annotated[
        str | None, typer.Option(metavar="COMMAND", help="Command line of the program, for --app command.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
) -> None:
    """Write a commented job file to start from.

    Asks for the values that no option sets. Starts nothing.

    \b
    Examples:
      spotctl init
      spotctl init movies.yaml --app mf --data ratings.csv
      spotctl init train.yaml --app command --run "python train.py"
    """
    from spotctl.job.templates import job_file

    if file.exists() and not force:
        raise UsageError(f"{file} exists already; name another file, or add --force")
    if kind is None:
        meanings = "mf: ratings, mlr: classes, lda: topics, command: your own program"
        kind = JobKind(
            _ask_answer(f"What should be trained ({meanings})?", "--app", "mf", [k.value for k in JobKind])
        )
    if kind is JobKind.COMMAND:
        if data is not None:
            raise UsageError("--data: a program finds its own data; leave --data out with --app command")
        run = run or _ask_answer("Its command line?", "--run", "python train.py")
        text = job_file(kind, run, file)
    else:
        if run is not None:
            raise UsageError(f"--run: only for --app command, and this is {kind.value}")
        data = data or _ask_answer("The training data, a file or a URL?", "--data", "data.csv")
        text = job_file(kind, data, file)
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{file}: cannot be written: {error.strerror}") from error
    output.write_note(f"written to {file}; next, see what it would do: spotctl plan {file}")


def _ask_answer(question: str, option: str, default: str, choices: list[str] | None = None) -> str:
    if not output.can_ask():
        raise UsageError(f"there is no terminal to ask at; set {option}")
    while True:
        answer = str(typer.prompt(question, default=default, err=True)).strip()
        if choices is None or answer in choices:
            return answer
        output.write_note(f"found {answer!r}, expected one of {', '.join(choices)}")
