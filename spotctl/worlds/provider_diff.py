"""Derives what has happened from the difference between a provider's reports."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any, TypeVar

from pricing_data.model.billing import EndReason
from pricing_data.model.units import Instant
from spotctl.control import entries as e
from spotctl.control.state import State
from spotctl.providers.base import InstanceStatus, Notice, Provider, Report

K = TypeVar("K", bound=Any)


class ProviderDiff:
    """Remembers which facts it has given; ``new_facts`` returns the others, once.

    Providers are eventually consistent: an instance that is not listed yet may still appear.
    """

    def __init__(self) -> None:
        self._running: set[str] = set()
        self._warned: set[str] = set()
        self._ended: set[str] = set()
        self._heard: tuple[tuple[Report, ...], tuple[Notice, ...]] = ((), ())

    @classmethod
    def from_state(cls, state: State) -> ProviderDiff:
        """Returns a diff that counts everything the ledger holds as given."""
        watch = cls()
        for instance in state.instances.values():
            if instance.running_at is not None:
                watch._running.add(instance.name)
            if instance.warned_at is not None:
                watch._warned.add(instance.name)
            if not instance.is_live:
                watch._ended.add(instance.name)
        return watch

    def new_facts(self, provider: Provider) -> tuple[e.Fact, ...]:
        """Returns news in the order it happened; at one moment: running, then warned, then ended."""
        reports, notices = provider.describe(), provider.notices()
        if reports is self._heard[0] and notices is self._heard[1]:
            return ()  # identity, not equality: providers return the same object while nothing changes
        self._heard = (reports, notices)
        news: list[e.Fact] = [
            *self._new_starts(reports),
            *self._new_warnings(notices),
            *self._new_ends(reports),
        ]
        return tuple(sorted(news, key=lambda fact: fact.at))

    def _new_starts(self, reports: Iterable[Report]) -> Iterator[e.Fact]:
        new = [
            (report.running_at, report.token, report.instance)
            for report in reports
            if report.running_at is not None and report.instance not in self._running
        ]
        for (at, _), names in _group_instances(new):
            self._running.update(names)
            yield e.InstancesRunning(at, names)

    def _new_warnings(self, notices: Iterable[Notice]) -> Iterator[e.Fact]:
        # A notice about an instance that has ended is no news any more.
        new = [
            (n.at, (n.ends_at, n.token), n.instance)
            for n in notices
            if n.instance not in self._warned and n.instance not in self._ended
        ]
        for (at, (ends_at, _)), names in _group_instances(new):
            self._warned.update(names)
            yield e.EvictionWarned(at, names, ends_at)

    def _new_ends(self, reports: Iterable[Report]) -> Iterator[e.Fact]:
        new = [
            (_required_time(report.ended_at), (report.token, _required_reason(report.end)), report.instance)
            for report in reports
            if report.standing is InstanceStatus.ENDED and report.instance not in self._ended
        ]
        for (at, (_, end)), names in _group_instances(new):
            self._ended.update(names)
            yield e.InstancesEnded(at, names, end)


def _group_instances(
    news: Iterable[tuple[Instant, K, str]],
) -> Iterator[tuple[tuple[Instant, K], tuple[str, ...]]]:
    """Groups instances to which the same happened at the same moment; yields that moment and what it was."""
    for key, group in groupby(sorted(news, key=lambda item: item[:2]), key=lambda item: item[:2]):
        yield key, tuple(name for _, _, name in group)


def _required_time(at: Instant | None) -> Instant:
    if at is None:
        raise ValueError("an instance is reported as ended without a time")
    return at


def _required_reason(end: EndReason | None) -> EndReason:
    if end is None:
        raise ValueError("an instance is reported as ended without a reason")
    return end
