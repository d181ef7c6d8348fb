"""Decides what a run does: ``evolve`` folds facts and commands into a state, ``plan`` derives new commands.

Read ``entries.py`` (facts and commands), ``state.py`` (its parts: ``state_values.py``), ``evolve.py`` and
``step.py``, then ``drive.py``, the loop. ``run_spec.py`` holds what is fixed for a run; ``bidding.py``,
``restart.py``, ``billing.py`` and the others are parts of the fold and of the rules. Pure but for ``drive``:
no clock, no I/O, no randomness.
"""
