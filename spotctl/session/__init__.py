"""Takes a run from its plan to its end: plans, opens, drives, interrupts it, and cleans up afterwards.

Read ``launch_plan.py``, ``open.py`` and ``launch.py``; ``interrupts.py`` and ``stop_signals.py`` are the ways
to end a run early, ``orphans.py`` finds machines that no run owns. Prints nothing: ``spotctl.cli`` does.
"""
