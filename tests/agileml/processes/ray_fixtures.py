"""One Ray cluster for all tests of a file that need one: its head takes seconds to start.

No longer than that: what the nodes of a cluster say is printed by whoever is connected to it, in the middle
of any later test.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.agileml.processes.ray_cluster import RayCluster


@pytest.fixture(scope="module")
def ray_head() -> Iterator[RayCluster]:
    from tests.agileml.processes.ray_cluster import ray_cluster

    with ray_cluster() as made:
        yield made


@pytest.fixture
def cluster(ray_head: RayCluster) -> Iterator[RayCluster]:
    """Without nodes but those that the test adds, which are taken away after it."""
    yield ray_head
    ray_head.remove(*ray_head.nodes)
