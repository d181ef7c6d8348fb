"""Reports what runs cost and what they are compared with. Pure.

Read ``fold.py`` (a run's account), ``baselines.py`` (the same work on demand), ``outcome.py`` (why it came
out otherwise than planned), then the objects that scripts read: ``final.py``, ``status.py``, ``summary.py``.
"""
