"""Writes tables of keys in Markdown, for the documentation."""

from __future__ import annotations

from collections.abc import Iterable

from spotctl.schema.table import Key

_HEAD = "| key | default | is |\n| --- | --- | --- |"


def write_table(keys: Iterable[Key]) -> str:
    """Returns a table of ``keys``: name, default and meaning."""
    return "\n".join((_HEAD, *(f"| `{key.name}` | {describe_default(key)} | {key.text} |" for key in keys)))


def describe_default(key: Key) -> str:
    """Returns what stands in for an absent key: a value, words, or that there is none."""
    if key.needs:
        return "required"
    shown = key.shown_default
    if shown is None:
        return key.otherwise
    if isinstance(shown, bool):
        shown = str(shown).lower()
    return f"`{shown}`" if isinstance(shown, str) else f"{shown}"
