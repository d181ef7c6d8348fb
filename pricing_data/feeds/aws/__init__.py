"""Fetches AWS prices. Start with ``feed.py``; ``client.py`` is the only module that imports the SDK.

``spot_prices.py`` has the price history, ``advisor.py`` the published rates of interruption, ``catalogue.py``
types and list prices.
"""
