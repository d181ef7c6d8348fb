"""Estimates evictions: a configuration is fitted to history, and the result answers questions.

``base.py`` is the contract. Where prices evict, see ``price``; where capacity does, ``capacity``.
``selector.py`` chooses an estimator for each market by how well it predicted so far (``scoring.py``);
``scalar_adapter.py`` answers arrays of questions for estimators that take one at a time. Estimators see no
prices or losses later than the moment they are fitted for.
"""
