"""Keeps what outlives a process on disk: runs, ledgers, models, cut input, and cached prices.

Read ``run.py`` (a run's folder), ``locks.py`` (who may work on it) and ``ledger.py``. ``price_file.py`` holds
the prices that a run began with, ``run_history.py`` sums up runs that ended, ``shared_inputs.py`` and
``trace_cache.py`` keep what several runs share, ``outputs.py`` stores models. Decides nothing.
"""
