"""Decides which machines to buy, exchange and release, and when.

``base.py`` is the contract, ``registry.py`` lists what a job file can name. ``auto.py`` is the default;
``proteus.py``, ``tierml.py`` and ``price_only.py`` are the others. ``without_reliable_tier.py``,
``lease_bound.py`` and ``deadline_bound.py`` wrap any of them. A strategy sees one moment and the past before
it; it reads no clock and no file.
"""
