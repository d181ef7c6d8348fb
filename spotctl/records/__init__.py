"""Keeps what outlives a process on disk: runs, ledgers, models, cut input, and cached prices.

Read ``run.py`` (a run's folder and lock) and ``ledger.py``; ``run_history.py`` sums up runs that ended,
``shared_inputs.py`` and ``trace_cache.py`` keep what several runs share, ``outputs.py`` says where models go.
Decides nothing.
"""
