"""Allocates machines to a queue's jobs, round by round. Pure.

Read ``round_inputs.py`` and ``allocate.py``; ``quotas.py`` counts machines, ``deadline_admission.py`` says
which deadlines can be promised, ``lease_moves.py``, ``lease_assignment.py`` and ``lease_changes.py`` turn
shares into leases that change hands one at a time.
"""
