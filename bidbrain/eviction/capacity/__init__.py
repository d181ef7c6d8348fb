"""Estimates evictions by lack of capacity: hazards by a machine's age.

Read ``exposure.py`` and ``hazard.py``, then the estimators: ``lifetime_model.py`` (one market alone),
``pooled.py`` (markets that borrow from their neighbours), ``published_rates.py`` (rates that a cloud
publishes) and ``regime_hazard.py`` (the market's recent losses). ``curves.py`` and ``vectorized_curves.py``
answer for all. Knows no prices and no bids.
"""
