"""Reads what both kinds of job share: places, and mappings whose keys are the user's own."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, TypeVar

from spotctl.job.yaml_reader import Reader, Section

T = TypeVar("T")

INSTANCE_TYPE: Final = r"[A-Za-z0-9][\w.-]*"
VARIABLE: Final = r"[A-Za-z_][A-Za-z0-9_]*"


def absolute_location(written: str, folder: Path) -> str:
    """Returns a URL as it is, and a path as an absolute one; relative paths start from ``folder``."""
    return written if "://" in written else str((folder / Path(written).expanduser()).resolve())


def own_keys(section: Section, read: Reader[T], pattern: str, expected: str) -> Mapping[str, T]:
    """Reads a mapping whose keys are the user's own; ``expected`` says what they look like."""
    with section:
        for key in section.key_names:
            if re.fullmatch(pattern, key) is None:
                section.reject(key, f"found the key {key!r}, expected {expected}")
        values = {key: section.get(key, read, None) for key in section.key_names}
    return {key: value for key, value in values.items() if value is not None}
