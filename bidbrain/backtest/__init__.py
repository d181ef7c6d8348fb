"""Runs a strategy's jobs from many starts over one price history, in arrays. Start with ``run.py``.

``engine.py`` moves time for ``running_jobs.py``, ``spot_provider.py`` answers requests, and
``tier_requests.py`` places reliable machines. ``bills.py`` settles to the micro-dollar; ``oracle.py`` bounds
what any strategy could have paid. Tests hold it to the live control core; it knows no job file and no store.
"""
