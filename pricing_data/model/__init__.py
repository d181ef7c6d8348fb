"""Defines the values that all packages share: times, money, markets, billing rules.

Read ``units.py``, then ``market.py`` (markets and price histories), ``rules.py`` (each cloud's billing) and
``billing.py`` (one machine's bill); ``capacity_spells.py`` has the times when machines could be had. Knows no
file and no cloud API.
"""
