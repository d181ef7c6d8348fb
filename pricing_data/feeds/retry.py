"""Asks a cloud again, and stops when it goes round in circles.

The error's class alone decides what deserves a second try. Knows no cloud, and does not wait long: a cloud
that wants minutes raises, and the caller fetches the whole part again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from pricing_data.errors import FeedBroken, FeedThrottled, FeedUnreachable

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Retries:
    """Sets how often one question is asked, and how long to wait in between."""

    attempts: int = 4
    first_wait_s: float = 0.5
    """Doubled with every further attempt, unless the cloud says how long to wait."""
    longest_wait_s: float = 15.0
    sleep: Callable[[float], None] = time.sleep

    def call_with_retries(self, question: Callable[[], T]) -> T:
        """Returns the answer; raises the error of the last attempt where there is none."""
        wait_s = self.first_wait_s
        for _ in range(self.attempts - 1):
            try:
                return question()
            except FeedThrottled as refusal:
                asked_s = wait_s if refusal.retry_after_s is None else refusal.retry_after_s
                # A wait of minutes belongs to the fetcher, which can report it and be interrupted.
                if asked_s > self.longest_wait_s:
                    raise
                self.sleep(asked_s)
            except FeedUnreachable:
                self.sleep(min(wait_s, self.longest_wait_s))
            wait_s = min(2 * wait_s, self.longest_wait_s)
        return question()

    def pause_for(self, wanted_s: float) -> None:
        """Waits before the next question, where the cloud asked for that with its answer."""
        self.sleep(min(wanted_s, self.longest_wait_s))


@dataclass(frozen=True, slots=True)
class PageTokens:
    """Remembers the page tokens of one listing. Following a repeated token would never end."""

    where: str
    _seen: set[str] = field(default_factory=set)

    def check_new(self, token: str) -> str:
        """Returns ``token`` if it is new; raises FeedBroken otherwise."""
        if token in self._seen:
            raise FeedBroken(
                self.where,
                f"the page token {token[:60]!r} came a second time, where each page has its own",
                "What came before it is kept; fetch again later",
            )
        self._seen.add(token)
        return token
