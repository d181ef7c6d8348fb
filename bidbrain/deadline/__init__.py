"""A deadline kept at least cost: ``net.py`` says what is safe, ``policy.py`` what is cheapest within it.

In seconds of one footprint's work, all spot or all on demand; ``simulator.py``, ``baselines.py`` and
``oracle.py`` are the published benchmark.
"""
