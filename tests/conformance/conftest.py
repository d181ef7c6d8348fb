"""Fixtures of tests that need a Ray cluster."""

from tests.agileml.processes.ray_fixtures import cluster, ray_head

__all__ = ["cluster", "ray_head"]
