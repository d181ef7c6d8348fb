"""Runs a strategy's jobs from many starts over one price history, in arrays. Start with ``run.py``.

``engine.py`` moves time, ``bills.py`` settles to the micro-dollar, ``oracle.py`` bounds what any strategy
could have paid. Held to the live control core by tests; knows no job file and no store.
"""
