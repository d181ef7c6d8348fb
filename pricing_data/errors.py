"""Defines what can be wrong with price data as a whole. Bad single rows are findings (``quality.py``).

Feeds say what to do next:

TraceError              a file cannot be read as the price file it claims to be
    NoSuchMarket            it can, and has none of the markets asked for
FeedError               a cloud's prices could not be fetched
    FeedUnavailable         its SDK or its credentials are missing: do without the feed, say how to get them
    FeedCredentialsRejected drop the feed for this run
        FeedCredentialsExpired  ... and log in again
    RegionRefused           do without this part, the others are available
    FeedThrottled           wait, then ask again
    FeedUnreachable         the connection broke: ask again
    FeedBroken              the answer is not what the API promises: asking again does not help
StoreDamaged            a file of the store is not what the store wrote
StoreUnwritable         nothing can be stored: no room, or no permission
ExportRefused           there is nothing to export, or no way to write it
"""

from __future__ import annotations


class TraceError(Exception):
    """Reports an unusable price file.

    The message says where, what was found, what was expected, what to do.
    """

    def __init__(self, path: str, line: int | None, found: str, expected: str, advice: str) -> None:
        where = path if line is None else f"{path}, line {line}"
        super().__init__(f"{where}: found {found}; expected {expected}. {advice}")
        self.path = path
        self.line = line
        self.found = found
        self.expected = expected
        self.advice = advice


class NoSuchMarket(TraceError):
    """Reports that a price file has none of the requested markets. ``offered``: some of those it has."""

    def __init__(self, path: str, offered: str) -> None:
        advice = f"The file holds {offered}."
        super().__init__(path, None, "no Linux row of the markets asked for", "at least one", advice)
        self.offered = offered


class FeedError(Exception):
    """Reports that prices could not be fetched.

    The message says where, what happened and what to do about it.
    """

    def __init__(self, where: str, found: str, advice: str) -> None:
        super().__init__(f"{where}: {found}. {advice}")
        self.where = where
        self.found = found
        self.advice = advice


class FeedUnavailable(FeedError):
    """Reports that the feed's SDK or its credentials are missing."""


class FeedCredentialsRejected(FeedError):
    """Reports that the cloud does not accept these credentials, for any part."""


class FeedCredentialsExpired(FeedCredentialsRejected):
    """Reports credentials that were valid once."""


class RegionRefused(FeedError):
    """Reports that this part is not open to these credentials; others may be."""


class FeedThrottled(FeedError):
    """Reports that the cloud throttles, for ``retry_after_s`` seconds where it says so."""

    def __init__(self, where: str, found: str, advice: str, retry_after_s: float | None = None) -> None:
        super().__init__(where, found, advice)
        self.retry_after_s = retry_after_s


class FeedUnreachable(FeedError):
    """Reports that there is no connection, or that it broke before the answer was whole."""


class FeedBroken(FeedError):
    """Reports an answer that is not what the API promises. ``found`` says where it differs."""


class StoreDamaged(Exception):
    """Reports a file of the price store that cannot be read. The message says which one and what to do."""

    def __init__(self, path: str, found: str) -> None:
        advice = "Move it out of the store and fetch or import that month again."
        super().__init__(f"{path}: {found}; expected a file that this store wrote. {advice}")
        self.path = path
        self.found = found


class StoreUnwritable(Exception):
    """Reports that nothing of the batch was stored. The message says what could not be written."""

    def __init__(self, path: str, found: str) -> None:
        super().__init__(f"{path}: {found}. Make room or give permission, then fetch or import again.")
        self.path = path
        self.found = found


class ExportRefused(Exception):
    """Reports that nothing was written. The message says what was found and what was expected."""

    def __init__(self, path: str, found: str, expected: str) -> None:
        super().__init__(f"{path}: found {found}; expected {expected}.")
        self.path = path
        self.found = found
        self.expected = expected
