"""Fetches Google Cloud prices. Start with ``feed.py``; ``client.py`` is the only module that imports the SDK.

``skus.py`` reads the billing catalogue, ``rows.py`` makes prices of it, ``answers.py`` checks what came.
"""
