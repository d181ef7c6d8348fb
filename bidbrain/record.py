"""Decisions as plain JSON values and back, exactly: a ledger keeps them, a report shows them.

Floats are left to ``json``, which writes the shortest text that reads back as the same double. JSON has no
infinity; here only E can be infinite, so null stands for it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, TypeAlias

from bidbrain.model import Action, Decision, Weighed
from pricing_data.market import Market
from pricing_data.units import Instant, Usd, UsdPerHour

Json: TypeAlias = dict[str, Any]


def decision_to_json(decision: Decision) -> Json:
    """Strings, numbers, lists, dicts, booleans and None only."""
    return {
        "at": decision.at,
        "action": decision.action.value,
        "holding": decision.holding,
        "market": _market_to_json(decision.market),
        "count": decision.count,
        "bid": decision.bid,
        "cost_per_work_now": _finite(decision.cost_per_work_now),
        "considered": decision.considered,
        "why": decision.why,
        "weighed": [_weighed_to_json(option) for option in decision.weighed],
    }


def decision_from_json(record: Mapping[str, Any]) -> Decision:
    """The decision that ``decision_to_json`` wrote. Raises KeyError or ValueError on anything else."""
    bid = record["bid"]
    return Decision(
        at=Instant(record["at"]),
        action=Action(record["action"]),
        holding=record["holding"],
        market=_market_from_json(record["market"]),
        count=record["count"],
        bid=None if bid is None else UsdPerHour(bid),
        cost_per_work_now=_number(record["cost_per_work_now"]),
        considered=record["considered"],
        why=record["why"],
        weighed=tuple(_weighed_from_json(option) for option in record["weighed"]),
    )


def _weighed_to_json(option: Weighed) -> Json:
    return {
        "action": option.action.value,
        "market": _market_to_json(option.market),
        "count": option.count,
        "bid_delta": option.bid_delta,
        "beta": option.beta,
        "expected_charge": option.expected_charge,
        "expected_work": option.expected_work,
        "cost_per_work": _finite(option.cost_per_work),
        "chosen": option.chosen,
        "why": option.why,
    }


def _weighed_from_json(record: Mapping[str, Any]) -> Weighed:
    return Weighed(
        action=Action(record["action"]),
        market=_market_from_json(record["market"]),
        count=record["count"],
        bid_delta=record["bid_delta"],
        beta=record["beta"],
        expected_charge=Usd(record["expected_charge"]),
        expected_work=record["expected_work"],
        cost_per_work=_number(record["cost_per_work"]),
        chosen=record["chosen"],
        why=record["why"],
    )


def _market_to_json(market: Market | None) -> Json | None:
    if market is None:
        return None
    return {
        "cloud": market.cloud,
        "region": market.region,
        "zone": market.zone,
        "instance_type": market.instance_type,
    }


def _market_from_json(record: Mapping[str, str] | None) -> Market | None:
    return None if record is None else Market(**record)


def _finite(cost_per_work: float) -> float | None:
    return None if math.isinf(cost_per_work) else cost_per_work


def _number(recorded: float | None) -> float:
    return math.inf if recorded is None else recorded
