"""Implements Gavel's policies: from a ``ShareProblem`` to shares of time for each job and machine type.

Read ``problem.py``, ``base.py`` (the contract) and ``linear_program.py``, then any policy; ``registry.py``
names all. Policies know no clouds, no prices over time and no rounds: ``bidbrain.cluster.rounds`` has those.
"""
