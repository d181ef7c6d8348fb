"""Names what a user chooses on the command line. It imports nothing heavy, as ``--help`` lists them."""

from __future__ import annotations

from enum import StrEnum


class WorldKind(StrEnum):
    LOCAL = "local"
    """Real processes on this machine; prices and evictions from a trace, paced."""
    REPLAY = "replay"
    """The same, without processes, in virtual time."""


class IfRunning(StrEnum):
    """Says what a launch does where the job runs already."""

    SKIP = "skip"
    ATTACH = "attach"
    FAIL = "fail"


class JobKind(StrEnum):
    """Names what a job file to begin with trains: a bundled application, or a program of the user's."""

    MF = "mf"
    MLR = "mlr"
    LDA = "lda"
    COMMAND = "command"


class CloudName(StrEnum):
    AWS = "aws"
    GCP = "gcp"
    AZURE = "azure"
