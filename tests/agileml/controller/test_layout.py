"""Fair shares with few moves."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agileml.controller.placement.layout import assign_owners, choose_actives, proportional_quotas

NAMES = st.sampled_from("abcdef")
WEIGHTS = st.dictionaries(NAMES, st.sampled_from([1.0, 2.0, 4.0, 96.0]), min_size=1)
CLAIMS = st.lists(st.lists(NAMES, max_size=3), max_size=30)


@settings(max_examples=200)
@given(st.integers(0, 100), WEIGHTS, st.dictionaries(NAMES, st.integers(0, 9)))
def test_quotas_share_everything_within_one_of_the_exact_part(
    total: int, weights: dict[str, float], held: dict[str, int]
) -> None:
    shares = proportional_quotas(total, weights, held)
    assert sum(shares.values()) == total
    whole = sum(weights.values())
    assert all(abs(shares[name] - total * weight / whole) < 1 for name, weight in weights.items())


@settings(max_examples=200)
@given(CLAIMS, WEIGHTS)
def test_everything_is_owned_and_nobody_owns_more_than_a_quota(
    claims: list[list[str]], weights: dict[str, float]
) -> None:
    owned = Counter(assign_owners(claims, weights))
    held = Counter(claim[0] for claim in claims if claim)
    assert owned == Counter(proportional_quotas(len(claims), weights, held)) + Counter()


@settings(max_examples=200)
@given(CLAIMS, WEIGHTS)
def test_nothing_moves_that_has_room_where_it_is(claims: list[list[str]], weights: dict[str, float]) -> None:
    """The fewest moves there can be: each owner loses exactly what exceeds its quota."""
    owners = assign_owners(claims, weights)
    held = Counter(claim[0] for claim in claims if claim)
    room = proportional_quotas(len(claims), weights, held)
    stayed = Counter(
        owner for owner, claim in zip(owners, claims, strict=True) if claim and claim[0] == owner
    )
    assert stayed == Counter({name: min(held[name], room.get(name, 0)) for name in held}) + Counter()


@settings(max_examples=200)
@given(CLAIMS, WEIGHTS)
def test_a_layout_that_is_in_place_stays(claims: list[list[str]], weights: dict[str, float]) -> None:
    owners = assign_owners(claims, weights)
    assert assign_owners([[owner] for owner in owners if owner], weights) == owners


def test_with_nobody_there_nothing_is_owned() -> None:
    assert assign_owners([["a"], []], {}) == (None, None)


def test_what_must_move_goes_to_the_latest_previous_owner_with_room() -> None:
    assert assign_owners([["gone", "b", "a"], ["gone", "b", "a"]], {"a": 1, "b": 1}) == ("b", "a")


@pytest.mark.parametrize(
    ("serving", "transient", "share", "most", "expected"),
    [
        ("", 4, 0.5, 8, "ab"),
        ("c", 4, 0.5, 8, "ca"),
        ("", 5, 0.5, 8, "abc"),
        ("", 1, 0.1, 8, "a"),
        ("", 4, 1.0, 2, "ab"),
        ("", 9, 0.5, 9, "abcd"),  # five wanted, four up
    ],
)
def test_actives_are_those_that_serve_and_then_the_longest_running(
    serving: str, transient: int, share: float, most: int, expected: str
) -> None:
    assert choose_actives(list("abcd"), frozenset(serving), transient, share, most) == list(expected)
