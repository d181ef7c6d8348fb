"""Decides, as the control core: ``evolve`` folds what happened into a state, ``plan`` derives the next
commands.

Read ``entries.py`` (facts and commands), ``state.py`` (its parts: ``state_values.py``), ``evolve.py`` and
``step.py``, then ``drive.py``, the loop. ``run_spec.py`` holds what is fixed for a run; ``bidding.py``,
``restart.py``, ``billing.py`` and the others are parts of the fold and of the rules. Pure but for ``drive``:
no clock, no I/O, no randomness.
"""
