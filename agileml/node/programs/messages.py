"""Defines what the supervisor of a command job and the agents of its machines say to each other. Plain
values.

Steps are the job's own unit of progress: what the program writes into its progress file, and the numbers of
its checkpoints.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Final, TypeAlias, get_args

# ---- orders: to an agent ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Prepare:
    """To an agent: put the files in place and run ``setup``."""


@dataclass(frozen=True, slots=True)
class Begin:
    """To an agent: run the program from the newest complete checkpoint. ``attempt`` counts from 1, over all
    machines.
    """

    attempt: int


@dataclass(frozen=True, slots=True)
class Leave:
    """To an agent: have the program stop and store its newest complete checkpoint, within ``seconds`` real
    ones.
    """

    seconds: float


# ---- words: from an agent -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ready:
    """The machine is prepared."""


@dataclass(frozen=True, slots=True)
class Began:
    """The program runs, from the complete checkpoint ``step`` (0: from nothing)."""

    attempt: int
    step: int


@dataclass(frozen=True, slots=True)
class Reached:
    """The program says that it has done ``step`` steps."""

    step: int
    objective: float | None = None


@dataclass(frozen=True, slots=True)
class Saved:
    """The checkpoint ``step`` is complete in the store; ``machine`` wrote it."""

    step: int
    machine: str = ""
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Fetched:
    """The checkpoint ``step``, which ``stored_by`` wrote, has come from the store to this machine."""

    step: int
    stored_by: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Left:
    """The program is stopped and everything complete that it wrote is in the store: safe to kill."""


@dataclass(frozen=True, slots=True)
class Ended:
    """Setup or the program ended by itself. ``what``: "setup" or "run"; ``trouble``: the last words of its
    log, or the store's.
    """

    what: str
    status: int
    trouble: str


Order: TypeAlias = Prepare | Begin | Leave
Word: TypeAlias = Ready | Began | Reached | Saved | Fetched | Left | Ended

# ---- what the supervisor is told ----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Joined:
    machines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Warned:
    """These machines go in ``seconds`` real ones."""

    machines: tuple[str, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class Gone:
    machines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop gracefully, within ``seconds`` real ones."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Said:
    """A word of ``machine``'s agent, and its ``number`` among that agent's words, from 1."""

    machine: str
    number: int
    word: Word


Told: TypeAlias = Joined | Warned | Gone | Stop
Event: TypeAlias = Told | Said

# ---- as JSON ------------------------------------------------------------------------------------

# Class names are the tags in files, so a renamed class is another message.
_KINDS: Final[Mapping[str, type]] = {
    kind.__name__: kind for union in (Order, Word, Told) for kind in get_args(union)
}


class MessageError(ValueError):
    """The content is no message of this version."""


def to_json(message: Order | Word | Told) -> dict[str, Any]:
    """Returns a JSON object; ``kind`` says which message it is."""
    return {"kind": type(message).__name__, **asdict(message)}


def from_json(content: Any) -> Any:
    """Returns the message that ``to_json`` made ``content`` from. Raises MessageError."""
    kind = _KINDS.get(content.get("kind", "")) if isinstance(content, dict) else None
    if kind is None:
        raise MessageError(f"{content!r} is no message")
    values = {name: value for name, value in content.items() if name != "kind"}
    if values.keys() != {field.name for field in fields(kind)}:
        raise MessageError(f"{content!r} does not have the fields of {kind.__name__}")
    return kind(**{name: tuple(v) if isinstance(v, list) else v for name, v in values.items()})
