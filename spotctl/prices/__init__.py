"""Wraps the price store: where it is, how old its prices are, and what they advise.

``fetch_plan.py`` says what is missing, ``quotes.py`` and ``store_status.py`` show it; ``estimates.py``,
``market_table.py`` and ``advice.py`` rank markets by the cost of useful work.
"""
