"""Defines ``doctor``: checks whether this computer can run jobs, and gives remedies."""

from __future__ import annotations

import typer

from spotctl.cli.commands import options
from spotctl.cli.format import output


def add_to(app: typer.Typer) -> None:
    """Gives ``app`` the verb of this module."""
    app.command()(doctor)


def doctor(
    form: options.FormatOption = options.OutputFormat.TABLE, as_json: options.JsonOption = False
) -> None:
    """Check whether this computer can run jobs.

    Lists what was found, what is missing and how to fix it. Exits with 1 if no job can run here.

    \b
    Examples:
      spotctl doctor
    """
    from spotctl.cli.format import amounts, json_lines
    from spotctl.records.run import default_root
    from spotctl.session.computer_check import Verdict, diagnose

    found = list(diagnose(default_root()))
    failed = [finding for finding in found if finding.verdict is Verdict.FAIL]
    if options.wants_json(form, as_json):
        rows = [
            {"what": one.what, "verdict": one.verdict.value, "found": one.found, "advice": one.advice or None}
            for one in found
        ]
        output.write_data(
            json_lines.to_document({"schema": "spotctl.doctor/1", "ok": not failed, "findings": rows})
        )
    else:
        for one in found:
            advice = f"  -> {one.advice}" if one.advice else ""
            output.write_data(f"{one.verdict.value:<5} {one.what}: {one.found}{advice}")
        problems = f"{amounts.count_noun(len(failed), 'problem')} to fix before a job can run"
        output.write_note(problems if failed else "jobs can run here")
    if failed:
        raise typer.Exit(1)
