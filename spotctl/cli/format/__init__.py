"""Turns values into text: events, money, tables, JSON.

``event_text.py`` has a sentence for each entry of a ledger, ``run_logs.py`` reads a run's story and logs,
``output.py`` knows terminals. Imports nothing that decides.
"""
