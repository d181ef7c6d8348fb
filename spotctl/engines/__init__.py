"""What trains: AgileML's elastic training, or any program, each real and modelled.

``base.py`` is the contract, ``registry.py`` chooses. ``agileml.py`` and ``command.py`` run real processes,
``agileml_model.py`` and ``command_model.py`` stand in for them where time is virtual; ``paired.py`` holds the
two together. ``scoring.py`` scores a model once its run is paid for. Knows no market.
"""
