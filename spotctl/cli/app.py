"""Assembles the command ``spotctl`` from its verbs, and turns errors into messages and exit codes.

Verbs parse, call and render; the layers below do the work. Nothing heavy is imported here or at the top of
a verb's module, so that help and completion load neither numpy nor sockets nor YAML.
"""

from __future__ import annotations

import errno
import io
import os
import sys
import traceback
from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from spotctl.cli.commands import (
    advise,
    backtest,
    doctor,
    init,
    jobs,
    launch,
    prices,
    prune,
    queue,
    report,
    schema,
)
from spotctl.errors import SpotctlError

_CTRL_C: Final = 130
"""Exit code that a shell reports for a program that Ctrl-C ended."""
EXIT_CODES: Final = (
    ("0", "success"),
    ("1", "the job failed, or another error that is not the user's"),
    ("2", "wrong usage or a bad file; the message says what and where"),
    ("3", "nothing to do: declined, already ended, or already running with --if-running skip"),
    ("4", "a cloud rejected the credentials or permissions"),
    ("5", "no capacity or quota in any allowed market"),
    ("6", "the deadline or the budget cannot be met, or was missed"),
    ("7", "interrupted; the message says whether the job goes on or was torn down"),
    ("8", "the job is already running; nothing was started"),
    ("130", "Ctrl-C, SIGTERM or a closed terminal before anything was started"),
)
"""What every verb's exit codes mean, for help and docs/cli.md."""


class _Verbs(TyperGroup):
    """Holds the verbs; prints the message of an error of ours and exits with its code."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Reads plain option values without loading pydantic, which only unusual ones need."""
        try:
            from spotctl.cli.commands.option_values import use_quick_params
        except ImportError:  # another version of Typer, which reads all options itself
            return super().parse_args(ctx, args)
        use_quick_params(self, ctx)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except SpotctlError as error:
            print(f"spotctl: {error}", file=sys.stderr)
            raise typer.Exit(error.exit_code) from error
        except OSError as error:
            # `spotctl status | head` is no error: click ends the program quietly.
            if error.errno == errno.EPIPE:  # the reader of standard output has closed it
                raise
            print(f"spotctl: {_describe_error(error)}", file=sys.stderr)
            raise typer.Exit(SpotctlError.exit_code) from error
        except typer.Abort:  # Ctrl-C at a question, which every verb asks before it does anything
            print("spotctl: interrupted; nothing was started", file=sys.stderr)
            raise typer.Exit(_CTRL_C) from None
        except KeyboardInterrupt:  # perhaps after all was done; a verb that it cuts short says what is left
            print("spotctl: interrupted", file=sys.stderr)
            raise typer.Exit(_CTRL_C) from None


def _describe_error(error: OSError) -> str:
    """Returns the message of a failed system call, with its file if it names one."""
    return f"{error.strerror or error}" + (f": {error.filename}" if error.filename else "")


app = typer.Typer(
    name="spotctl",
    cls=_Verbs,
    help="""Train models on cheap spot machines, without losing work to evictions.

    \b
    Examples:
      spotctl init movies.yaml     write a job file
      spotctl plan movies.yaml     see what it would cost
      spotctl launch movies.yaml   run it
    """,
    epilog="\b\nExit codes:\n" + "\n".join(f"  {code:>3}  {meaning}" for code, meaning in EXIT_CODES),
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


class _Shell(StrEnum):
    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"
    POWERSHELL = "powershell"


def _print_version(wanted: bool) -> None:
    if not wanted:
        return
    from importlib.metadata import PackageNotFoundError, version  # which takes longer than Typer itself

    try:
        print(f"spotctl {version('spotctl')}")
    except PackageNotFoundError:
        print("spotctl, not installed: run from a source tree")
    raise typer.Exit


@app.callback()
def _root_options(
    show_version: Annotated[
        bool,
        typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True),
    ] = False,
) -> None:
    """Takes the options before the verb."""


launch.add_to(app)
jobs.add_to(app)
prune.add_to(app)
report.add_to(app)
prices.add_to(app)
advise.add_to(app)
backtest.add_to(app)
queue.add_to(app)
init.add_to(app)
schema.add_to(app)
doctor.add_to(app)


@app.command("version")
def show_version() -> None:
    """Print the version.

    \b
    Examples:
      spotctl version
    """
    _print_version(True)


@app.command()
def completion(
    ctx: typer.Context,
    shell: Annotated[
        _Shell, typer.Argument(metavar="SHELL", help="Shell to complete in.", show_default=False)
    ],
) -> None:
    """Print a shell completion script for verbs, jobs and values.

    \b
    Examples:
      eval "$(spotctl completion bash)"
      spotctl completion zsh > ~/.zfunc/_spotctl
    """
    from typer.completion import shell_complete

    raise typer.Exit(
        shell_complete(ctx.find_root().command, {}, "spotctl", "_SPOTCTL_COMPLETE", f"source_{shell}")
    )


def main(command: Callable[..., Any] = app) -> None:
    """Runs the program. A bug ends in one line; SPOTCTL_DEBUG=1 shows its traceback.

    Characters that the terminal's encoding lacks are shown as question marks.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A name in the output must not end a run because the terminal is set to ASCII.
            stream.reconfigure(errors="replace")
    try:
        command(prog_name="spotctl")
    except OSError as error:  # of help and completion, which no verb handles
        print(f"spotctl: {_describe_error(error)}", file=sys.stderr)
        sys.exit(SpotctlError.exit_code)
    except Exception as bug:
        if os.environ.get("SPOTCTL_DEBUG") == "1":
            traceback.print_exc()
        print(
            f"spotctl: a bug in spotctl: {type(bug).__name__}: {bug} (SPOTCTL_DEBUG=1 shows where)",
            file=sys.stderr,
        )
        sys.exit(1)
    finally:
        _forget_interrupt()


def _forget_interrupt() -> None:
    """Makes Python end with our exit code after a handled Ctrl-C, instead of killing itself with SIGINT."""
    # A KeyboardInterrupt that leaves code run from a string (dataclasses make their methods so) marks the
    # interpreter as interrupted, even if it is caught later. Running any other string clears that mark.
    eval("None")
