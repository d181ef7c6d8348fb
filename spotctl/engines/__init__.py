"""Runs what trains: AgileML's elastic training, or any program, each real and simulated.

``base.py`` is the contract, ``registry.py`` chooses. ``agileml.py`` and ``command.py`` run real processes,
``agileml_model.py`` and ``command_model.py`` stand in for them where time is virtual; ``shadowed.py`` couples
the two. ``scoring.py`` scores a model once its run is paid for. Knows no market.
"""
