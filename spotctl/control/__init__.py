"""The control core: ``evolve`` folds what happened into a state, ``step`` says what to do next.

Read ``entries.py`` (facts and commands), ``state.py``, ``evolve.py`` and ``step.py``, then ``drive.py``, the
loop. ``run_spec.py`` is what a run was started with; ``bidding.py``, ``restart.py``, ``billing.py`` and the
others are parts of the fold and of the rules. Pure but for ``drive``: no clock, no I/O, no randomness.
"""
