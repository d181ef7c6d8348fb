"""Asking a cloud again, and stopping when it goes round in circles.

What deserves a second try is said by the error's class alone. Refuses to know any cloud, and refuses to
wait long: whoever is asked for minutes hears of it, and the whole part is asked for again by its fetcher.
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
    """How often one question is put, and how long to wait in between."""

    attempts: int = 4
    first_wait_s: float = 0.5
    """Doubled with every further attempt, unless the cloud says how long it wants."""
    longest_wait_s: float = 15.0
    sleep: Callable[[float], None] = time.sleep

    def ask_again(self, question: Callable[[], T]) -> T:
        """The answer; the error of the last attempt where there is none."""
        wait_s = self.first_wait_s
        for _ in range(self.attempts - 1):
            try:
                return question()
            except FeedThrottled as refusal:
                asked_s = wait_s if refusal.retry_after_s is None else refusal.retry_after_s
                if asked_s > self.longest_wait_s:
                    raise
                self.sleep(asked_s)
            except FeedUnreachable:
                self.sleep(min(wait_s, self.longest_wait_s))
            wait_s = min(2 * wait_s, self.longest_wait_s)
        return question()

    def pause_for(self, wanted_s: float) -> None:
        """Before the next question, where the cloud said with its answer that it wants a rest."""
        self.sleep(min(wanted_s, self.longest_wait_s))


@dataclass(frozen=True, slots=True)
class PageTokens:
    """The page tokens of one listing. A token that comes twice would be followed for ever."""

    where: str
    _seen: set[str] = field(default_factory=set)

    def check_new(self, token: str) -> str:
        """``token``, seen for the first time; raises FeedBroken otherwise."""
        if token in self._seen:
            raise FeedBroken(
                self.where,
                f"the page token {token[:60]!r} came a second time, where each page has its own",
                "What came before it is kept; fetch again later",
            )
        self._seen.add(token)
        return token
