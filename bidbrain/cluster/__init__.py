"""Shares machines among many jobs (Gavel): policies give shares of time, rounds turn them into leases.

Read ``policies`` (one module for each objective), ``rounds.py``, then ``deadline_admission.py`` and
``round_reservation.py`` (which promises can be made, and how they are kept). ``solver.py`` is the only module
that calls an LP solver; ``simulator.py`` runs a trace of jobs. Knows no clouds.
"""
