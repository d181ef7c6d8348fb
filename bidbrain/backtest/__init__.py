"""A strategy's jobs from many starts over one history, in arrays: ``run.py`` is the way in.

``engine.py`` moves time, ``bills.py`` settles, ``oracle.py`` bounds what anybody could have paid.
"""
