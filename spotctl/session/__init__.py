"""A run from its plan to its end: planned, opened, driven, interrupted, and cleaned up after.

Read ``launch_plan.py``, ``open.py`` and ``launch.py``; ``interrupts.py`` and ``stop_signals.py`` are the ways
a run is told to end, ``orphans.py`` finds machines that no run owns. Prints nothing: ``spotctl.cli`` does.
"""
