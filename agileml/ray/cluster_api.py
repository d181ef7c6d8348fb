"""Asks the Ray cluster that this process is connected to for its nodes. Changes nothing there."""

from __future__ import annotations

from typing import Any

import ray
import ray._private.state

from agileml.ray.nodes import Node


def living_nodes() -> list[Node]:
    """Returns the nodes that are alive, with the labels that Ray and their operators gave."""
    drains = _draining_deadlines()
    return [
        Node(
            found["NodeID"],
            int(found["Resources"].get("CPU", 0)),
            dict(found["Labels"]),
            drains.get(found["NodeID"]),
        )
        for found in _list_nodes()
        if found["Alive"]
    ]


def _list_nodes() -> list[dict[str, Any]]:
    return list(ray.nodes())  # type: ignore[no-untyped-call]


def _draining_deadlines() -> dict[str, float]:
    """Returns the deadlines, in Unix seconds, of the nodes that drain.

    Ray has no public call for these; its own libraries (Train, Data) read them here as well. It writes 0
    where nobody gave a deadline.
    """
    deadlines: dict[str, int] = ray._private.state.state.get_draining_nodes()
    return {node: at / 1000 if at else float("inf") for node, at in deadlines.items()}
