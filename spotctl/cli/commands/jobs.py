"""Defines verbs about existing runs: what they are doing, what they wrote, and how to end them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Final

import typer

from spotctl.cli.commands import options
from spotctl.cli.format import output
from spotctl.errors import NothingToDo, SpotctlError, UsageError

if TYPE_CHECKING:
    from spotctl.control.entries import UserRequest
    from spotctl.records.run import Run, RunStore

_POLL_S: Final = 0.3


def add_to(app: typer.Typer) -> None:
    """Gives ``app`` the verbs of this module."""
    app.command(epilog="Example: spotctl status movies --json")(status)
    app.command(epilog="Example: spotctl logs movies --follow")(logs)
    app.command(epilog="Example: spotctl cancel movies")(cancel)
    app.command(epilog="Example: spotctl down --all")(down)
    app.command(epilog="Example: spotctl wait movies && spotctl report")(wait)
    app.command(epilog="Example: spotctl gc --dry-run")(gc)


def status(
    job: Annotated[
        str | None,
        typer.Argument(
            metavar="[JOB]",
            help="One job; default: a line for each.",
            autocompletion=options.complete_jobs,
        ),
    ] = None,
    form: options.FormatOption = options.OutputFormat.TABLE,
    as_json: options.JsonOption = False,
) -> None:
    """Show what runs and what has ended.

    Of one job: its stage, footprint, progress, cost so far and next decision.
    """
    from spotctl.cli.format import disk_sizes, json_lines
    from spotctl.cli.views import runs as runtable
    from spotctl.records.run_history import summarize_runs, summary_of

    runs = _run_store()
    run = None if job is None else _find_run(runs, job)
    if run is not None and not options.wants_json(form, as_json):
        from spotctl.cli.watch import run_status as runview

        output.show_picture(runview.draw_run(run))
        output.write_note(disk_sizes.describe_run(runs, run))
        return
    shown, unreadable = summarize_runs(runs.list_runs()) if run is None else ({run: summary_of(run)}, [])
    if options.wants_json(form, as_json):
        kept = disk_sizes.sizes_document(runs, run)
        output.write_data(
            json_lines.plain_document({**runtable.status_document(shown.values()), "kept": kept})
        )
    elif shown:
        output.show_rows(runtable.runs_table(shown))
        output.write_note(disk_sizes.describe_inputs(runs))
    elif not unreadable:
        output.write_note(runtable.none_yet())
    if unreadable:
        raise SpotctlError("\n".join(unreadable))


def logs(
    job: options.JobName,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the run has ended.")] = False,
    tail: Annotated[
        int | None,
        typer.Option(min=0, metavar="N", help="Of what is there by now, only the last N lines of each."),
    ] = None,
) -> None:
    """Print what happened to a job.

    In plain words, and what its machines wrote: each of their lines follows the name of its file.
    """
    from pricing_data.model.units import format_instant
    from spotctl.cli.format.run_logs import LogFiles, RunStory

    run = _find_run(_run_store(), job)
    files, story = LogFiles(run.machines_folder), RunStory(run)
    while True:
        going = follow and run.is_live()
        happened = list(story.new_sentences())
        for at, said in happened if tail is None else happened[max(0, len(happened) - tail) :]:
            output.write_data(f"{format_instant(at)} {said}")
        for line in files.new_lines(tail):
            output.write_data(line)
        tail = None  # later output is shown whole
        if not going:
            return
        time.sleep(_POLL_S)


def cancel(job: options.JobName) -> None:
    """End a job gracefully.

    Its model is saved, its machines end, its record is kept. The clock in progress is finished first, for
    some minutes at most; `down` does not wait for it.
    """
    from spotctl.control.entries import UserRequest

    _end_run(_find_run(_run_store(), job), UserRequest.CANCEL)


def down(
    job: Annotated[
        str | None,
        typer.Argument(
            metavar="[JOB]", help="The job's name, or one run's.", autocompletion=options.complete_jobs
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All jobs that have not ended.")] = False,
) -> None:
    """Take a job's machines away now.

    What it has learned since its start is lost; its record is kept.
    """
    if (job is None) == (not everything):
        raise UsageError("down: expected the name of a job, or --all")
    from spotctl.control.entries import UserRequest
    from spotctl.records.run_history import summarize_runs

    runs = _run_store()
    if job is not None:
        _end_run(_find_run(runs, job), UserRequest.DOWN)
        return
    known, failures = summarize_runs(runs.list_runs())
    chosen = [run for run, summary in known.items() if summary.outcome is None]
    for run in chosen:
        try:
            _end_run(run, UserRequest.DOWN)
        except NothingToDo as done:
            output.write_note(str(done))
        except SpotctlError as error:  # the others have to go all the same
            failures.append(f"{run.name}: {error}")
    if failures:
        raise SpotctlError("\n".join(failures))
    if not chosen:
        output.write_note("no job has machines: all runs have ended")


def _end_run(run: Run, ask: UserRequest) -> None:
    from spotctl.cli.format import event_text
    from spotctl.cli.watch.observers import RunLogLines
    from spotctl.session import launch

    with RunLogLines() as watcher:
        finished = launch.end_run(run, ask, watcher)
    if finished is None:
        output.write_note(f"{run.name}: asked to; `spotctl wait {run.name}` returns when it is done")
    else:
        final = finished.final
        output.write_note(
            f"{run.name}: {final['why']}; in all it comes to ${final['cost']['total']} ({event_text.NOMINAL})"
        )


def wait(
    job: options.JobName,
    timeout: Annotated[
        str | None, typer.Option(metavar="SPAN", help="Give up after this long (exit 1), like 2h.")
    ] = None,
    form: options.FormatOption = options.OutputFormat.TABLE,
    as_json: options.JsonOption = False,
) -> None:
    """Wait until a job has ended.

    Its exit code becomes this command's.
    """
    from spotctl.cli.format import json_lines
    from spotctl.cli.views import runs as runtable
    from spotctl.records.run_history import summary_of

    limit = options.parse_duration_option("--timeout", timeout)
    run, began = _find_run(_run_store(), job), time.monotonic()
    while run.is_live():
        if limit is not None and time.monotonic() - began > limit:
            raise SpotctlError(f"{run.name} still runs after {timeout}")
        time.sleep(_POLL_S)
    ended = summary_of(run)
    if options.wants_json(form, as_json):
        output.write_data(json_lines.to_document(runtable.status_document([ended])))
    else:
        output.show_rows(runtable.runs_table({run: ended}))
    raise typer.Exit(runtable.exit_code(ended))


def gc(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be ended, end nothing.")
    ] = False,
    form: options.FormatOption = options.OutputFormat.TABLE,
    as_json: options.JsonOption = False,
) -> None:
    """End machines that no job answers for.

    Whatever left them there: a crash, a killed process, an ended run.
    """
    from spotctl.cli.format import amounts, json_lines
    from spotctl.cli.watch.observers import RunLogLines
    from spotctl.session.orphans import find_orphans, release_orphans

    found = tuple(find_orphans(_run_store()))
    rows = [
        {"job": orphaned.run.name, "run": orphaned.run.id, "machine": machine}
        for orphaned in found
        for machine in orphaned.machines
    ]
    with RunLogLines() as watcher:
        failures = [] if dry_run else release_orphans(found, watcher)
    if options.wants_json(form, as_json):
        output.write_data(
            json_lines.to_document({"schema": "spotctl.gc/1", "dry_run": dry_run, "machines": rows})
        )
    else:
        how = "is left" if dry_run else "ended"
        for row in rows:
            output.write_data(f"{row['job']}: {row['machine']} of run {row['run']} {how}")
        output.write_note(f"{amounts.count_noun(len(rows), 'machine')} without a job")
    if failures:
        raise SpotctlError("\n".join(failures))


def _run_store() -> RunStore:
    from spotctl.records.run import RunStore

    return RunStore()


def _find_run(runs: RunStore, name: str) -> Run:
    run = runs.find_run(name)
    if run is not None:
        return run
    from spotctl.schema.document import suggest_nearest

    known = [known.name for known in runs.list_runs()]
    raise UsageError(f"there is no job {name!r}{suggest_nearest(name, known)}; `spotctl status` lists all")
