"""Worlds put time, prices, a provider and an engine together; the core runs in any of them.

``world.py`` turns a trace's prices and a provider's changes (``provider_diff.py``) into facts; ``replay.py``
is virtual time with modelled training, ``local.py`` paced time with real processes. Decides nothing.
"""
