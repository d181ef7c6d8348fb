"""Defines ``prune``: deletes what no run needs, after listing it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from spotctl.cli.commands import options
from spotctl.cli.format import output
from spotctl.errors import NothingToDo, SpotctlError, UsageError

if TYPE_CHECKING:
    from spotctl.prune import FreedItem


def add_to(app: typer.Typer) -> None:
    """Gives ``app`` the verb of this module."""
    app.command()(prune)


def prune(
    keep: Annotated[
        str | None,
        typer.Option(
            metavar="N|DURATION",
            help="Also delete records of ended runs, except the newest N of each job, or those that ended "
            "within DURATION, like 30d.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List what would be deleted; delete nothing.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Delete without confirmation.")] = False,
    form: options.FormatOption = options.OutputFormat.TABLE,
    as_json: options.JsonOption = False,
) -> None:
    """Delete cached input and old records that no run needs.

    Cached input is data that was cut into shards. Without --keep, deletes all of it that no unfinished run
    uses. With --keep, spares what the kept runs used, or what was used within DURATION. Never touches output
    folders, checkpoint stores or runs that can be resumed.

    \b
    Examples:
      spotctl prune --dry-run
      spotctl prune --keep 30d --yes
    """
    from spotctl.cli.format import json_lines
    from spotctl.prune import Retention, find_unneeded, free_unneeded
    from spotctl.records.run import default_root

    kept = None if keep is None else Retention.parse(keep)
    wants_json = options.wants_json(form, as_json)
    if not (dry_run or yes or output.can_ask()):
        raise UsageError("there is no terminal to confirm at; add --yes, or --dry-run to only list")
    root = default_root()
    found, unreadable = find_unneeded(root, kept)
    if not wants_json:
        _show_items(found)
    if found and not (dry_run or yes) and not typer.confirm("Delete these?", err=True):
        raise NothingToDo("nothing was deleted")
    freed = [] if dry_run else list(free_unneeded(root, found))
    if wants_json:
        rows = [_item_object(one, one in freed) for one in found]
        total = sum(one.size_bytes for one in freed)
        document = {"schema": "spotctl.prune/1", "dry_run": dry_run, "freed_bytes": total, "items": rows}
        output.write_data(json_lines.to_document(document))
    elif found and not dry_run:
        output.write_note(_describe_outcome(found, freed))
    if unreadable:
        raise SpotctlError("\n".join((*unreadable, "these records were left unchanged")))


def _show_items(found: list[FreedItem]) -> None:
    from spotctl.cli.format import event_text

    for one in found:
        loses = f"; also deletes {one.loses}" if one.loses else ""
        what = "record of" if one.what == "run" else "cached input of"
        output.write_data(f"{event_text.format_size(one.size_bytes):>9}  {what} {one.name}: {one.why}{loses}")
    total = event_text.format_size(sum(one.size_bytes for one in found))
    output.write_note(f"{total} in all" if found else "nothing to delete: runs need all that is stored")


def _describe_outcome(found: list[FreedItem], freed: list[FreedItem]) -> str:
    from spotctl.cli.format import event_text

    freed_size = f"freed {event_text.format_size(sum(one.size_bytes for one in freed))}"
    left = len(found) - len(freed)
    if not left:
        return freed_size
    return f"{freed_size}; kept {event_text.count_noun(left, 'item')} that came into use meanwhile"


def _item_object(one: FreedItem, freed: bool) -> dict[str, Any]:
    return {
        "what": one.what,
        "name": one.name,
        "bytes": one.size_bytes,
        "why": one.why,
        "loses": one.loses or None,
        "freed": freed,
    }
