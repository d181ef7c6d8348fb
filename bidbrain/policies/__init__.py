"""How many jobs share a cluster (Gavel): one ``ShareProblem`` in, shares of time out; ``menu.py`` names all.

``base.py`` is the contract and what policies are put together from, ``program.py`` the program under them.
"""
