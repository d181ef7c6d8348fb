"""Stores price history as Parquet, one file for a region's month; adding the same rows twice changes nothing.

Read ``store.py`` (the entry point), ``commit_log.py`` (what a kill may interrupt), ``content.py``,
``monthly_partitions.py`` and ``validation.py`` (how months are merged and read whole), then the rest:
``rows.py`` and ``reference_tables.py`` for small tables, ``queries.py``, ``evictions.py`` and ``findings.py``
for reading, ``importing.py`` and ``exports.py`` for files. Fetches nothing.
"""
