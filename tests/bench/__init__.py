"""Benchmarks: one entry, ``python -m tests.bench NAME``. None of them is a test."""
