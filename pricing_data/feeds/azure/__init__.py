"""Fetches Azure prices. Start with ``feed.py``; ``client.py`` is the only module that imports the SDK.

``retail_prices.py`` reads the public price list, ``rows.py`` makes prices and eviction rates of it.
"""
