"""How many jobs share a cluster (Gavel): one ``ShareProblem`` in, shares of time out; ``registry.py`` names all.

``base.py`` is the contract and what policies are put together from, ``linear_program.py`` the program under them.
"""
