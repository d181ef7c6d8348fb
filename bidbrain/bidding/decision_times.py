"""Computes when to decide next (Harlap 4.4): plain data in, an instant out.

Evictions are not scheduled here: each is followed by a decision at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from bidbrain.model import Holding
from pricing_data.model.units import Instant

DECISION_PERIOD_S: Final = 120
"""The paper considers new allocations every two minutes."""
REFUSED_REST_S: Final = 600
"""Seconds before a market that refused is asked again."""
RENEWAL_LEAD_S: Final = 180
"""The paper's "briefly before the end of a billing hour": time for a notice and a slow request."""


def next_decision_at(now: Instant, footprint: Iterable[Holding], anchor: Instant) -> Instant:
    """Returns the next moment after ``now`` at which there is something to decide.

    That is the next on a grid of decision periods from ``anchor`` (the job's start), or the next renewal of a
    holding, if sooner. Decisions in between do not shift the grid.

    >>> next_decision_at(Instant(130), (), anchor=Instant(10))
    250
    """
    periods = (now - anchor) // DECISION_PERIOD_S + 1
    moments = [anchor + periods * DECISION_PERIOD_S]
    # A lead that has passed already is filtered below: the holding was decided about then.
    moments += [holding.hour_ends - RENEWAL_LEAD_S for holding in footprint]
    return Instant(min(moment for moment in moments if moment > now))


def due_for_renewal(now: Instant, footprint: Iterable[Holding]) -> tuple[str, ...]:
    """Returns ids of holdings whose hour ends within the lead, soonest first, for ``renew_or_terminate``."""
    # A holding whose instances are all warned needs no decision; a renewal has moved ``hour_ends`` already.
    due = [h for h in footprint if h.counts_for and h.hour_ends - RENEWAL_LEAD_S <= now]
    return tuple(h.id for h in sorted(due, key=lambda h: (h.hour_ends, h.id)))
