"""Defines verbs about existing runs: show, follow and end them."""

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
    for verb in (status, logs, cancel, down, wait, gc):
        app.command()(verb)


def status(
    job: Annotated[
        str | None,
        typer.Argument(
            metavar="[JOB]",
            help="Name of a job, or ID of a run. Default: all, one line each.",
            autocompletion=options.complete_jobs,
        ),
    ] = None,
    form: options.FormatOption = options.OutputFormat.TABLE,
    as_json: options.JsonOption = False,
) -> None:
    """Show jobs with their progress and cost.

    For one job, also shows its stage, its machines and its next decision.

    \b
    Examples:
      spotctl status
      spotctl status movies --json
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
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Keep printing until the run ends.")] = False,
    tail: Annotated[
        int | None,
        typer.Option(
            min=0, metavar="N", help="Begin with the last N events and the last N lines of each file."
        ),
    ] = None,
) -> None:
    """Print a job's events and the output of its machines.

    Events come first, with their times. Each line of output begins with the name of its log file.

    \b
    Examples:
      spotctl logs movies --follow
      spotctl logs movies --tail 20
    """
    from pricing_data.model.units import format_instant
    from spotctl.cli.format.run_logs import LogFiles, RunStory

    run = _find_run(_run_store(), job)
    files, story = LogFiles(run.machines_folder), RunStory(run)
    while True:
        # Looked at first: what the run writes between this look and the reads below is still printed.
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
    """Stop a job gracefully, and save its model.

    Finishes the clock in progress (for a few minutes at most), saves the model and releases the machines. The
    run's record is kept. To release the machines at once, use `spotctl down`.

    \b
    Examples:
      spotctl cancel movies
    """
    from spotctl.control.entries import UserRequest

    _end_run(_find_run(_run_store(), job), UserRequest.CANCEL)


def down(
    job: Annotated[
        str | None,
        typer.Argument(
            metavar="[JOB]",
            help="Name of a job (its newest run), or ID of a run.",
            autocompletion=options.complete_jobs,
        ),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Release the machines of every unfinished job.")
    ] = False,
) -> None:
    """Release a job's machines at once, without saving.

    Work that is in no checkpoint is lost. The run's record is kept.

    \b
    Examples:
      spotctl down movies
      spotctl down --all
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
    # Runs whose records cannot be read are in ``failures``; the others are ended all the same.
    chosen = [run for run, summary in known.items() if summary.outcome is None]
    for run in chosen:
        try:
            _end_run(run, UserRequest.DOWN)
        # It ended by itself since it was listed.
        except NothingToDo as done:
            output.write_note(str(done))
        except SpotctlError as error:  # the others have to go all the same
            failures.append(f"{run.name}: {error}")
    if failures:
        raise SpotctlError("\n".join(failures))
    if not chosen:
        output.write_note("no job has machines: all runs ended")


def _end_run(run: Run, ask: UserRequest) -> None:
    from spotctl.cli.format import event_text
    from spotctl.cli.watch.observers import RunLogLines
    from spotctl.session import launch

    with RunLogLines() as watcher:
        finished = launch.end_run(run, ask, watcher)
    if finished is None:
        output.write_note(f"{run.name}: request sent; `spotctl wait {run.name}` returns when it is done")
    else:
        final = finished.final
        output.write_note(
            f"{run.name}: {final['why']}; total cost ${final['cost']['total']} ({event_text.NOMINAL})"
        )


def wait(
    job: options.JobName,
    timeout: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Give up after this long, like 2h (exit 1).")
    ] = None,
    form: options.FormatOption = options.OutputFormat.TABLE,
    as_json: options.JsonOption = False,
) -> None:
    """Wait until a job ends, and exit with its exit code.

    \b
    Examples:
      spotctl wait movies && spotctl report
      spotctl wait movies --timeout 2h
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
    # A run that no process drives is reported as it stands, so `wait` never waits for a dead one.
    ended = summary_of(run)
    if options.wants_json(form, as_json):
        output.write_data(json_lines.to_document(runtable.status_document([ended])))
    else:
        output.show_rows(runtable.runs_table({run: ended}))
    raise typer.Exit(runtable.exit_code(ended))


def gc(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the machines; release none.")] = False,
    form: options.FormatOption = options.OutputFormat.TABLE,
    as_json: options.JsonOption = False,
) -> None:
    """Release machines that no running job controls.

    A crash or a killed process can leave such machines behind.

    \b
    Examples:
      spotctl gc --dry-run
      spotctl gc
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
        how = "left" if dry_run else "released"
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
    raise UsageError(f"there is no job {name!r}{suggest_nearest(name, known)}; `spotctl status` lists them")
