"""Fetches prices from the clouds: one folder for each cloud, all behind ``base.Feed``.

Read ``base.py`` (the contract) and ``fetch.py`` (which parts are missing, and who fetches them); ``retry.py``
and ``quarantine.py`` are shared by all feeds. A feed imports its SDK when it is first asked: this package
loads without any of them.
"""
