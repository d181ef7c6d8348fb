"""Estimators of evictions: configuration, then ``fit``, then answers (``base.py`` is the contract).

``price_crossing`` speaks where prices evict; ``conditioned``, ``lifetime_model``, ``bands`` and ``pooled``
where capacity does, as hazards by age (``hazard.py``); ``chosen`` says by ``scoring`` which of them it is.
"""
