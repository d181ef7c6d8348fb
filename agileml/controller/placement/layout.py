"""Computes who should own what: the target that the controller steers towards, never the way there.

One rule assigns partitions and shards. Every machine has a quota, and what is within its owner's quota stays.
What must move goes to a previous owner with room, else to the machine with most room. The functions take and
return names: this module knows neither roles nor events.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Mapping, Sequence


def proportional_quotas(total: int, weights: Mapping[str, float], held: Mapping[str, int]) -> dict[str, int]:
    """Divides ``total`` items in proportion to ``weights`` (largest remainders).

    Of equal remainders the machine that holds more now wins, which saves a move, and then the earlier in
    ``weights``. The quotas add up to ``total``.

    >>> proportional_quotas(5, {"a": 1, "b": 1}, held={"b": 3})
    {'a': 2, 'b': 3}
    """
    whole = sum(weights.values())
    exact = {name: total * weight / whole for name, weight in weights.items()}
    result = {name: math.floor(share) for name, share in exact.items()}
    by_remainder = sorted(weights, key=lambda name: (result[name] - exact[name], -held.get(name, 0)))
    for name in by_remainder[: total - sum(result.values())]:
        result[name] += 1
    return result


def assign_owners(claims: Sequence[Sequence[str]], weights: Mapping[str, float]) -> tuple[str | None, ...]:
    """Returns an owner for every item; None only where ``weights`` names nobody.

    ``claims[i]`` lists the item's present owner first and then its previous ones, the latest first. Names
    that are not in ``weights`` have no claim.

    >>> assign_owners([["a"], ["a"], ["gone", "b"]], {"a": 1, "b": 1})
    ('a', 'a', 'b')
    """
    if not weights:
        return (None,) * len(claims)
    held = Counter(claim[0] for claim in claims if claim)
    room = proportional_quotas(len(claims), weights, held)
    owners: list[str | None] = [None] * len(claims)
    for item, claim in enumerate(claims):
        if claim and room.get(claim[0], 0) > 0:
            owners[item] = claim[0]
            room[claim[0]] -= 1
    # Ties go to the earlier name: the same cluster must always get the same layout.
    order = {name: place for place, name in enumerate(room)}
    # The machine with most room, from a heap: a search for each item is quadratic with thousands of shards.
    # Entries are not removed when a machine's room shrinks, so outdated ones are skipped.
    most = [(-left, order[name], name) for name, left in room.items()]
    heapq.heapify(most)
    for item, claim in enumerate(claims):
        if owners[item] is None:
            owner = next((name for name in claim if room.get(name, 0) > 0), None)
            if owner is None:
                while -most[0][0] != room[most[0][2]]:
                    heapq.heappop(most)
                owner = most[0][2]
            owners[item] = owner
            room[owner] -= 1
            heapq.heappush(most, (-room[owner], order[owner], owner))
    return tuple(owners)


def choose_actives(
    available: Sequence[str], serving: frozenset[str], transient: int, share: float, most: int
) -> list[str]:
    """Returns which transient machines run an ActivePS.

    ``available``: machines that can, the longest-running first; ``serving``: those that do now;
    ``transient``: how many transient machines take part; ``share``: the part of them to use (half by default,
    Harlap 4.2.3), at least one machine and at most ``most``, the number of partitions.
    """
    wanted = min(most, max(1, math.ceil(share * transient)))
    # Those that serve now come first, as keeping them moves nothing. The sort is stable, and keeps the age.
    return sorted(available, key=lambda name: name not in serving)[:wanted]
