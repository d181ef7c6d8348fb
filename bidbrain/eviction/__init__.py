"""Estimates evictions: fits a configuration to history, and returns an object that answers questions.

``base.py`` is the contract. ``price`` serves markets where prices evict, ``capacity`` all others.
``selector.py`` chooses an estimator for each market by its past predictions (``scoring.py``).
``scalar_adapter.py`` answers arrays of questions for estimators that take one at a time. Estimators see no
price and no loss after the moment that they are fitted for.
"""
