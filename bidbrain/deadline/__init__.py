"""Keeps a deadline at least cost: ``safety_net.py`` says what is safe, ``least_cost.py`` picks the cheapest.

In seconds of one footprint's work, all spot or all on demand; ``benchmark.py``, ``baselines.py`` and
``oracle.py`` are the published benchmark.
"""
